"""The public ops on encoded records: reading them, the state of their files, checksums, image sizes in memory."""

from __future__ import annotations

import torch


def read_ranges(
    out: torch.Tensor,
    start: torch.Tensor,
    paths: torch.Tensor,
    file: torch.Tensor,
    offset: torch.Tensor,
    length: torch.Tensor,
    *,
    threads: int = 8,
) -> torch.Tensor:
    """Read ranges of files into one buffer, in several threads and without the GIL.

    Args:
        out: uint8, shape (B,), on the CPU (pinned or not): written to.
        start: int64, shape (N,): where in `out` each range goes.
        paths: uint8, shape (F, L): file names as bytes, each row ending in at least one zero byte.
        file: int64, shape (N,): row of `paths` of each range.
        offset: int64, shape (N,): where in the file each range begins.
        length: int64, shape (N,): its bytes.
        threads: reads at the same time, at least 1.

    Returns:
        int64, shape (N,): bytes read, fewer than `length` where the file ends before; or minus the error number where
        the file cannot be read.

    Raises:
        ValueError: a tensor has another dtype or is not on the CPU, or threads is below 1.
        RuntimeError: shapes do not fit, a range is not inside of `out`, or a row of `file` is not one of `paths`.
    """
    _check("read_ranges", threads, {"out": out, "paths": paths}, start=start, file=file, offset=offset, length=length)
    got: torch.Tensor = torch.ops.lightning_gpuaug.read_ranges(out, start, paths, file, offset, length, threads)
    return got


def file_states(paths: torch.Tensor) -> torch.Tensor:
    """Size and time of change of files, without the GIL.

    Args:
        paths: uint8, shape (F, L), on the CPU: file names as bytes, each row ending in at least one zero byte.

    Returns:
        int64, shape (F, 2): bytes, and nanoseconds since 1970; or minus the error number, and 0.

    Raises:
        ValueError: paths has another dtype or is not on the CPU.
        RuntimeError: paths has another shape, or a row does not end in a zero byte.
    """
    _check("file_states", 1, {"paths": paths})
    states: torch.Tensor = torch.ops.lightning_gpuaug.file_states(paths)
    return states


def crc32c(data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, *, threads: int = 1) -> torch.Tensor:
    """CRC-32C (Castagnoli, as in iSCSI and TFRecord) of ranges of bytes.

    Args:
        data: uint8, shape (B,), on the CPU.
        start: int64, shape (N,): where each range begins.
        length: int64, shape (N,): its bytes.
        threads: ranges at the same time, at least 1.

    Returns:
        int64, shape (N,): values in 0..2**32-1.

    Raises:
        ValueError: a tensor has another dtype or is not on the CPU, or threads is below 1.
        RuntimeError: shapes do not fit, or a range is not inside of `data`.
    """
    _check("crc32c", threads, {"data": data}, start=start, length=length)
    crc: torch.Tensor = torch.ops.lightning_gpuaug.crc32c(data, start, length, threads)
    return crc


def image_sizes_packed(
    data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, *, exif_orientation: bool = False
) -> torch.Tensor:
    """Height and width of encoded images in memory, as `image_sizes` tells them of files.

    Args:
        data: uint8, shape (B,), on the CPU.
        start: int64, shape (N,): where each image begins.
        length: int64, shape (N,): its bytes.
        exif_orientation: give the size after the rotation that the Exif data asks for.

    Returns:
        int32, shape (N, 2): height and width in pixels, or 0 and 0.

    Raises:
        ValueError: a tensor has another dtype or is not on the CPU.
        RuntimeError: shapes do not fit, or a range is not inside of `data`.
    """
    _check("image_sizes_packed", 1, {"data": data}, start=start, length=length)
    sizes: torch.Tensor = torch.ops.lightning_gpuaug.image_sizes_packed(data, start, length, exif_orientation)
    return sizes


def _check(op: str, threads: int, texts: dict[str, torch.Tensor], **positions: torch.Tensor) -> None:
    for tensors, dtype in ((texts, torch.uint8), (positions, torch.int64)):
        for name, tensor in tensors.items():
            if tensor.dtype != dtype or tensor.device.type != "cpu":
                raise ValueError(f"{op}: {name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if threads < 1:
        raise ValueError(f"{op}: threads must be at least 1, got {threads}")
