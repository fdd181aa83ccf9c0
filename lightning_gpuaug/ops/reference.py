"""The ops in plain torch: what the native kernels are tested against, and what serves where there are none.

The results equal those of the native kernels bit for bit, on every device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._checks import check_normalize


def normalize(
    x: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    flip: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    """Flip, normalise, cast and lay out a uint8 batch; see `lightning_gpuaug.ops.normalize`."""
    check_normalize(x, mean, std, flip, dtype)
    if flip is not None:
        x = torch.where(flip[:, None, None, None], x.flip(2), x)
    out = new_images(x, dtype, channels_last)
    if dtype == torch.uint8:
        return out.copy_(x.permute(0, 3, 1, 2))
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        table = affine_table(1.0 / (255.0 * s), -m / s, x.device).to(dtype)
        out[:, channel] = table[x[..., channel].int()]
    return out


def new_images(x: torch.Tensor, dtype: torch.dtype, channels_last: bool) -> torch.Tensor:
    """An uninitialised (N, 3, H, W) batch for the (N, H, W, 3) batch x, on its device."""
    n, h, w, _ = x.shape
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty((n, 3, h, w), dtype=dtype, device=x.device, memory_format=memory_format)


def affine_table(scale: float, bias: float, device: torch.device) -> torch.Tensor:
    """`fmaf(v, float32(scale), float32(bias))` for v = 0 … 255, shape (256,), float32.

    torch has no fused multiply-add, so the sum is taken in float64 (the product of 8 and 24 bits is exact there) and
    rounded to odd, after which rounding to float32 gives what one rounding of the exact sum would have given.
    """
    where = device if device.type == "cuda" else torch.device("cpu")  # not every backend has float64
    scale32, bias32 = torch.tensor([scale, bias], dtype=torch.float64).to(torch.float32).tolist()
    product = torch.arange(256, dtype=torch.float64, device=where) * scale32
    total = product + bias32
    bias_part = total - product
    lost = (product - (total - bias_part)) + (bias32 - bias_part)  # exact: Knuth's two-sum
    bits = total.view(torch.int64)
    towards_lost = torch.where((lost > 0) == (total > 0), 1, -1)
    odd = torch.where((lost != 0) & (bits & 1 == 0), bits + towards_lost, bits)
    return odd.view(torch.float64).to(torch.float32).to(device)
