"""The ops in plain torch: what the native kernels are tested against, and what serves where there are none.

The results equal those of the native kernels bit for bit, on every device, unless a function says otherwise.
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


def resize_packed(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    height: int,
    width: int,
    interpolation: int,
    antialias: bool,
) -> torch.Tensor:
    """(N, height, width, 3) uint8 of the images in a buffer; see `lightning_gpuaug.ops.resize_packed`.

    One level off the native kernels here and there: a matrix product sums in another order.
    """
    out = data.new_zeros((offsets.shape[0], height, width, 3))
    for row, (offset, (h, w)) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
        if h < 1 or w < 1 or offset < 0 or offset + h * w * 3 > data.numel():
            continue
        image = data[offset : offset + h * w * 3].view(h, w, 3).to(torch.float32)
        rows = resampling_matrix(h, height, interpolation, antialias, data.device)
        columns = resampling_matrix(w, width, interpolation, antialias, data.device)
        # Pillow cuts bicubic's overshoot off between the two passes.
        levels = torch.einsum("yh,hxc->yxc", rows, torch.einsum("hwc,xw->hxc", image, columns).clamp(0, 255))
        out[row] = levels.clamp(0, 255).round().to(torch.uint8)
    return out


def resampling_matrix(
    source: int, output: int, interpolation: int, antialias: bool, device: torch.device
) -> torch.Tensor:
    """(output, source) float32 weights of Pillow's resampling along one axis; rows sum to 1."""
    scale = source / output
    stretch = max(scale, 1.0) if antialias else 1.0
    centre = (torch.arange(output, device=device, dtype=torch.float32) + 0.5) * scale
    if interpolation == 0:
        nearest = (2 * torch.arange(output, device=device) + 1) * source // (2 * output)
        return torch.nn.functional.one_hot(nearest, source).to(torch.float32)
    support = (2.0 if interpolation == 2 else 1.0) * stretch
    begin, end = (centre - support + 0.5).trunc().clamp(min=0), (centre + support + 0.5).trunc().clamp(max=source)
    position = torch.arange(source, device=device, dtype=torch.float32)
    x = ((position[None] + 0.5 - centre[:, None]) / stretch).abs()
    if interpolation == 1:
        weights = (1.0 - x).clamp(min=0)
    else:
        a = -0.5
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        weights = torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))
    weights = torch.where((position >= begin[:, None]) & (position < end[:, None]), weights, 0.0)
    return weights / weights.sum(dim=1, keepdim=True)
