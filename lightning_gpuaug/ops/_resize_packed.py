"""The public `resize_packed`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._checks import check_mean_std, check_output_dtype, check_per_sample

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")


def resize_packed(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    size: tuple[int, int],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    interpolation: str = "bilinear",
    antialias: bool = True,
) -> torch.Tensor:
    """Images of different sizes, end to end in one buffer, as one batch: resize, flip, normalise, cast, in one pass.

    The resize is Pillow's (filter, taps, border), with weights in float32 and one rounding to whole levels at the end,
    so it differs from Pillow's two roundings by at most one level. The rest is that of `normalize`. CPU and CUDA agree
    bit for bit; the plain-torch fallback by one level before normalisation.

    Args:
        data: uint8, one dimension: height × width × 3 bytes of every image (rows of RGB pixels).
        offsets: int64, shape (N,), on the device of data: where each image begins in it.
        sizes: int32, shape (N, 2), on the device of data: height and width of each image, at least 1.
        size: height and width of the result, 1..32768.
        mean: three numbers, one a channel, on the 0..1 scale; None means 0.
        std: three numbers above 0, one a channel, on the 0..1 scale; None means 1.
        flip: bool, shape (N,), on the device of data: which samples to mirror left to right; None means none.
        dtype: `torch.float32`, `torch.float16`, `torch.bfloat16`, or `torch.uint8` for whole levels, not normalised.
        channels_last: memory format of the result.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking.

    Returns:
        A new tensor of shape (N, 3, *size) and type `dtype`. An image that does not lie inside of data, or has a size
        below 1, is never read: all its levels are 0 before normalisation. (Sizes and offsets of a CUDA batch cannot
        be checked without waiting for the GPU.)

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    op = "resize_packed"
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"{op}: interpolation must be one of {INTERPOLATIONS}, got {interpolation!r}")
    height, width = size
    if not torch.compiler.is_compiling():
        _check(op, data, offsets, sizes, height, width, flip)
        check_output_dtype(op, dtype)
        check_mean_std(op, mean or (0.0,) * 3, std or (1.0,) * 3)
    result: torch.Tensor = torch.ops.lightning_gpuaug.resize_packed(
        data,
        offsets,
        sizes,
        height,
        width,
        (0.0, 0.0, 0.0) if mean is None else tuple(mean),
        (1.0, 1.0, 1.0) if std is None else tuple(std),
        flip,
        dtype,
        channels_last,
        INTERPOLATIONS.index(interpolation),
        antialias,
    )
    return result


def _check(
    op: str,
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    height: int,
    width: int,
    flip: torch.Tensor | None,
) -> None:
    if data.dtype != torch.uint8 or data.ndim != 1:
        raise ValueError(f"{op}: data must be uint8 with one dimension, got {data.dtype} {tuple(data.shape)}")
    if offsets.dtype != torch.int64 or offsets.ndim != 1:
        raise ValueError(f"{op}: offsets must be int64 of shape (N,), got {offsets.dtype} {tuple(offsets.shape)}")
    if sizes.dtype != torch.int32 or tuple(sizes.shape) != (offsets.shape[0], 2):
        rule = f"must be int32 of shape ({offsets.shape[0]}, 2)"
        raise ValueError(f"{op}: sizes {rule}, got {sizes.dtype} {tuple(sizes.shape)}")
    for name, tensor in (("offsets", offsets), ("sizes", sizes)):
        if tensor.device != data.device:
            raise ValueError(f"{op}: {name} must be on the device of data ({data.device}), got {tensor.device}")
    if flip is not None:
        check_per_sample(op, "flip", flip, offsets, torch.bool)
    if not (1 <= height <= 32768 and 1 <= width <= 32768):
        raise ValueError(f"{op}: size must be two numbers in 1..32768, got ({height}, {width})")
