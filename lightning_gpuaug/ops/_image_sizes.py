"""The public `image_sizes`."""

from __future__ import annotations

import torch


def image_sizes(paths: torch.Tensor, *, exif_orientation: bool = False, threads: int = 8) -> torch.Tensor:
    """Height and width of image files, from a few bytes of each.

    Reads JPEG and (without `exif_orientation`) PNG headers. Everything else, an unreadable file among it, is left to
    a slower reader: its size is 0 × 0. The plain-torch fallback knows no format.

    Args:
        paths: uint8, shape (N, L), on the CPU: file names as bytes, each row ending in at least one zero byte.
        exif_orientation: give the size after the rotation that the Exif data asks for.
        threads: files read at the same time, at least 1.

    Returns:
        int32, shape (N, 2): height and width in pixels, or 0 and 0.

    Raises:
        ValueError: paths has another dtype, shape or device, or threads is below 1.
        RuntimeError: a row of paths does not end in a zero byte.
    """
    if paths.dtype != torch.uint8 or paths.dim() != 2 or paths.device.type != "cpu":
        raise ValueError(
            f"paths must be a uint8 tensor of shape (N, L) on the CPU, got {paths.dtype} {tuple(paths.shape)} "
            f"on {paths.device}"
        )
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    sizes: torch.Tensor = torch.ops.lightning_gpuaug.image_sizes(paths, exif_orientation, threads)
    return sizes
