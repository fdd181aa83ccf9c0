"""The public `resize_packed`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import check_choice, check_flag, check_size
from lightning_gpuaug.ops._checks import channel_constants, check_inside, check_layout, check_output, check_per_sample
from lightning_gpuaug.ops.record import INTERPOLATIONS

LONGEST_RESULT = 32768


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
        A new tensor of shape (N, 3, *size) and type `dtype`. On a GPU, where offsets and sizes cannot be checked
        without waiting for it, an image that does not lie inside of data, or has a size below 1, is never read: all its
        levels are 0 before normalisation.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; or, on the CPU, an image does not lie
            inside of data.
    """
    op = "resize_packed"
    check_choice(op, "interpolation", interpolation, INTERPOLATIONS)
    height, width = check_size(op, size, LONGEST_RESULT)
    mean, std = channel_constants(op, mean, std)
    if not torch.compiler.is_compiling():
        check_layout(op, data, offsets, sizes)
        check_inside(op, data, offsets, sizes)
        if flip is not None:
            check_per_sample(op, "flip", flip, offsets, torch.bool)
        check_output(op, dtype, channels_last)
        check_flag(op, "antialias", antialias)
    result: torch.Tensor = torch.ops.lightning_gpuaug.resize_packed(
        data,
        offsets,
        sizes,
        height,
        width,
        mean,
        std,
        flip,
        dtype,
        channels_last,
        INTERPOLATIONS.index(interpolation),
        antialias,
    )
    return result
