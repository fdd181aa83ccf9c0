"""The public `normalize`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._checks import channel_constants, check_normalize_tensors, check_output


def normalize(
    x: torch.Tensor,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    """Turn a uint8 image batch into a network's input: flip, normalise, cast and lay out in one pass.

    Each value becomes `(x / 255 - mean) / std`, computed as one float32 fused multiply-add (scale and bias are derived
    in float64) and rounded once, to nearest even, to `dtype`. CPU, CUDA and the plain-torch fallback agree bit for bit.

    Args:
        x: images, uint8, shape (N, H, W, 3), values 0..255, on any device. N, H and W may be 0. A tensor that is not
            contiguous is copied first; any storage offset is fine.
        mean: three numbers, one a channel, on the 0..1 scale; None means 0.
        std: three numbers above 0, one a channel, on the 0..1 scale; None means 1.
        flip: bool, shape (N,), on the device of x: which samples to mirror left to right; None means none.
        dtype: `torch.float32`, `torch.float16` or `torch.bfloat16`, or `torch.uint8`, which keeps the pixel values as
            they are (mean and std are then checked but not applied).
        channels_last: memory format of the result: channels_last, or contiguous NCHW when False.

    Returns:
        A new tensor of shape (N, 3, H, W) and type `dtype` on the device of x. On CUDA the work is queued on the
        current stream; nothing synchronises.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.

    Example:
        >>> batch = torch.zeros(2, 4, 5, 3, dtype=torch.uint8)
        >>> normalize(batch, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), dtype=torch.bfloat16).unique().item()
        -1.0
    """
    mean, std = channel_constants("normalize", mean, std)
    if not torch.compiler.is_compiling():  # then the fake checks the tensors, and the kernel mean and std
        check_output("normalize", dtype, channels_last)
        check_normalize_tensors(x, flip, dtype)
    result: torch.Tensor = torch.ops.lightning_gpuaug.normalize(x, mean, std, flip, dtype, channels_last)
    return result
