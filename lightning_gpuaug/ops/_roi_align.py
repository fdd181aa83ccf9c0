"""The public `roi_align`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import check_device, check_output_size, check_tensor, is_number, is_whole

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def roi_align(
    x: torch.Tensor,
    rois: torch.Tensor | Sequence[torch.Tensor],
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    *,
    validate: bool = False,
) -> torch.Tensor:
    """Pool regions of feature maps to one size: RoIAlign (He et al., "Mask R-CNN", 2017), as torchvision defines it.

    Each region is cut into `output_size` bins; a bin is the mean of a `sampling_ratio` x `sampling_ratio` grid of
    bilinear samples. Sums are taken in float32 (float64 for float64). Differentiable in x, twice; not in rois. NCHW and
    channels_last inputs are read as they lie, and the result has the memory format of x.

    Args:
        x: features, (N, C, H, W), float32, float16 or bfloat16; float64 on the CPU.
        rois: (K, 5), `image, x1, y1, x2, y2` in the coordinates of the input image, any floating type (computed in
            float32; float64 for a float64 x); or N tensors (Kᵢ, 4) of `x1, y1, x2, y2`, one an image.
        output_size: bins down and across, or one number for both.
        spatial_scale: feature pixels per image pixel, e.g. 1/16.
        sampling_ratio: samples along each side of a bin; 0 or less: as many as the bin has feature pixels (adaptive).
        aligned: True shifts regions by half a pixel, so that pixel centres are at whole numbers (right for boxes whose
            pixel i covers i..i+1); False is the legacy rule, which also makes regions at least one pixel large.
        validate: on CUDA, wait for the device and raise for a bad region. Without it a region that is not finite or
            names an image that is not there gives NaN (and no gradient). On the CPU it always raises.

    Returns:
        (K, C, output_size), in the type, device and memory format of x.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.

    Note:
        The CUDA gradient adds with atomics, in no fixed order: refused under `torch.use_deterministic_algorithms`.
        The CPU gradient is the same on every run and for any number of threads.

    Example:
        >>> x = torch.arange(16.0).view(1, 1, 4, 4)
        >>> roi_align(x, torch.tensor([[0.0, 0, 0, 4, 4]]), 2, sampling_ratio=2, aligned=True).flatten().tolist()
        [2.5, 4.5, 10.5, 12.5]
    """
    size = (output_size, output_size) if isinstance(output_size, int) else output_size
    out_h, out_w = check_output_size("roi_align", size)
    if not isinstance(rois, torch.Tensor):
        rois = _with_image_index(rois, x)
    if not torch.compiler.is_compiling():
        check_roi_align(x, rois, spatial_scale)
        if not is_whole(sampling_ratio):
            raise ValueError(f"roi_align: sampling_ratio must be a whole number, got {sampling_ratio!r}")
        if validate or x.device.type == "cpu":
            check_regions(rois, x.shape[0])
    result: torch.Tensor = torch.ops.lightning_gpuaug.roi_align(
        x, rois, out_h, out_w, spatial_scale, sampling_ratio, aligned
    )
    return result


def _with_image_index(rois: Sequence[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    if len(rois) != x.shape[0]:
        raise ValueError(f"roi_align: rois must be one tensor an image ({x.shape[0]}), got {len(rois)}")
    for i, boxes in enumerate(rois):
        check_tensor("roi_align", f"rois[{i}]", boxes)
        if boxes.ndim != 2 or boxes.shape[1] != 4:
            raise ValueError(f"roi_align: rois[{i}] must have shape (K, 4), got {tuple(boxes.shape)}")
    columns = [boxes.new_full((len(boxes), 1), i, dtype=torch.float32) for i, boxes in enumerate(rois)]
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    parts = [torch.cat([column.to(kind), boxes.to(kind)], 1) for column, boxes in zip(columns, rois, strict=True)]
    return torch.cat(parts) if parts else x.new_empty((0, 5), dtype=kind)


def check_roi_align(x: torch.Tensor, rois: torch.Tensor, spatial_scale: float, name: str = "x") -> None:
    """Check what can be known while tracing."""
    for argument, value in ((name, x), ("rois", rois)):
        check_tensor("roi_align", argument, value)
        if value.dtype not in FLOATS:
            raise ValueError(f"roi_align: {argument} must be a floating tensor, got {value.dtype}")
    if x.ndim != 4:
        raise ValueError(f"roi_align: {name} must have shape (N, C, H, W), got {tuple(x.shape)}")
    if not torch.compiler.is_compiling() and min(x.shape[2:]) < 1:
        raise ValueError(f"roi_align: {name} must have a height and a width, got {tuple(x.shape)}")
    if x.dtype == torch.float64 and x.device.type == "cuda":
        raise ValueError(
            f"roi_align: on CUDA {name} must be torch.float32, torch.float16 or torch.bfloat16, got {x.dtype}"
        )
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(f"roi_align: rois must have shape (K, 5), got {tuple(rois.shape)}")
    check_device("roi_align", "rois", rois, name, x)
    if not (is_number(spatial_scale) and math.isfinite(spatial_scale) and spatial_scale > 0):
        raise ValueError(f"roi_align: spatial_scale must be finite and above 0, got {spatial_scale!r}")


def check_regions(rois: torch.Tensor, images: int) -> None:
    """Require finite regions that name an image. Waits for the device."""
    bad = ~rois.isfinite().all(1) | (rois[:, 0] < 0) | (rois[:, 0] >= images)
    if bad.any():
        k = int(torch.nonzero(bad)[0])
        raise ValueError(
            f"roi_align: rois must be finite and name an image in 0..{images - 1}, got rois[{k}] = {rois[k].tolist()}"
        )


def is_channels_last(x: torch.Tensor) -> bool:
    """Whether x is dense with its channels innermost, and not dense in NCHW order too."""
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def memory_format(channels_last: bool) -> torch.memory_format:
    """The torch name of a layout."""
    return torch.channels_last if channels_last else torch.contiguous_format
