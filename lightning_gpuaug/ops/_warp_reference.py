"""`warp` in plain torch: what the native kernels are tested against, and what serves where there are none.

Coordinates and weights are float64, so uint8 results differ from the native ones by a level where a value is next to a
tie (or, with the border `"pil"`, next to a whole number), and nearest neighbours where a point is next to an edge.
"""

from __future__ import annotations

import torch

from lightning_gpuaug.ops._roi_align import is_channels_last, memory_format
from lightning_gpuaug.ops._warp import BORDERS, INTERPOLATIONS


def bordered(i: torch.Tensor, size: int, border: str) -> torch.Tensor:
    """The pixel that stands for pixel i of a row of `size`; -1 for the fill colour."""
    if border == "constant":
        return torch.where((i >= 0) & (i < size), i, -1)
    if border == "reflect":
        i = i.remainder(2 * size)
        return torch.where(i < size, i, 2 * size - 1 - i)
    if border == "reflect101":
        i = i.remainder(max(2 * size - 2, 1))
        return torch.where(i < size, i, 2 * size - 2 - i)
    return i.clamp(0, size - 1)


def axis_taps(
    corner: torch.Tensor, size: int, interpolation: str, border: str
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The (pixel, weight) pairs along one axis, for points measured from the corner of pixel 0."""
    if interpolation == "nearest":
        return [(bordered(corner.floor().long(), size, border), torch.ones_like(corner))]
    whole = (corner - 0.5).floor()
    t, first = corner - 0.5 - whole, whole.long()
    if interpolation == "bilinear":
        return [(bordered(first, size, border), 1 - t), (bordered(first + 1, size, border), t)]
    a = -1.0 if border == "pil" else -0.75
    weights = (
        a * (t**3 - 2 * t**2 + t),
        (a + 2) * t**3 - (a + 3) * t**2 + 1,
        -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t,
        a * (t**2 - t**3),
    )
    return [(bordered(first + i - 1, size, border), w) for i, w in enumerate(weights)]


def image_taps(
    matrix: torch.Tensor,
    out: tuple[int, int],
    size: tuple[int, int],
    interpolation: str,
    border: str,
    half_pixel: bool,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The (flat pixel, weight) pairs of each result pixel, each (N, out_h * out_w); pixel -1 is the fill colour."""
    m = matrix.double()
    shift = 0.5 if half_pixel else 0.0
    v, u = (torch.arange(n, dtype=torch.float64, device=m.device) + shift for n in out)
    v, u = v.repeat_interleave(out[1]), u.repeat(out[0])
    x, y = (m[:, i, 0, None] * u + m[:, i, 1, None] * v + m[:, i, 2, None] for i in (0, 1))
    if m.shape[1] == 3:
        w = m[:, 2, 0, None] * u + m[:, 2, 1, None] * v + m[:, 2, 2, None]
        x, y = x / w, y / w
    x, y = x + 0.5 - shift, y + 0.5 - shift
    inside = (x.abs() < 2.0**30) & (y.abs() < 2.0**30)
    if border == "pil":
        inside &= (x >= 0) & (x < size[1]) & (y >= 0) & (y < size[0])
    x, y = torch.where(inside, x, 0.5), torch.where(inside, y, 0.5)
    pairs = []
    for row, row_weight in axis_taps(y, size[0], interpolation, border):
        for column, column_weight in axis_taps(x, size[1], interpolation, border):
            outside = ~inside | (row < 0) | (column < 0)
            pairs.append((torch.where(outside, -1, row * size[1] + column), row_weight * column_weight))
    return pairs


def warp(
    x: torch.Tensor,
    matrix: torch.Tensor,
    out_h: int,
    out_w: int,
    interpolation: int,
    border: int,
    fill: list[float],
    half_pixel: bool,
) -> torch.Tensor:
    """See `lightning_gpuaug.ops.warp`."""
    n, c, h, w = x.shape
    pairs = image_taps(matrix, (out_h, out_w), (h, w), INTERPOLATIONS[interpolation], BORDERS[border], half_pixel)
    pixels = x.reshape(n, c, h * w).double()
    colour = torch.tensor(fill, dtype=torch.float64, device=x.device).expand(c)[None, :, None]
    total = torch.zeros((n, c, out_h * out_w), dtype=torch.float64, device=x.device)
    for pixel, weight in pairs:
        value = pixels.gather(2, pixel.clamp(min=0)[:, None].expand(-1, c, -1))
        total += weight[:, None] * torch.where(pixel[:, None] < 0, colour, value)
    if x.dtype == torch.uint8:
        total = total.clamp(0, 255)
        total = (total + 1e-9).floor() if BORDERS[border] == "pil" else total.round()
    result = new_images(x, out_h, out_w)
    return result.copy_(total.view(n, c, out_h, out_w))


def warp_backward(
    grad: torch.Tensor,
    matrix: torch.Tensor,
    height: int,
    width: int,
    interpolation: int,
    border: int,
    half_pixel: bool,
    channels_last: bool,
) -> torch.Tensor:
    """The gradient of `warp` with respect to x."""
    n, c, out_h, out_w = grad.shape
    pairs = image_taps(
        matrix, (out_h, out_w), (height, width), INTERPOLATIONS[interpolation], BORDERS[border], half_pixel
    )
    flat = grad.reshape(n, c, out_h * out_w).double()
    total = torch.zeros((n, c, height * width), dtype=torch.float64, device=grad.device)
    for pixel, weight in pairs:
        value = torch.where(pixel < 0, 0, weight)[:, None] * flat
        total.scatter_add_(2, pixel.clamp(min=0)[:, None].expand(-1, c, -1), value)
    result = new_sources(grad, height, width, channels_last)
    return result.copy_(total.view(n, c, height, width))


def new_images(x: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
    """An uninitialised result of `warp`."""
    shape = (x.shape[0], x.shape[1], out_h, out_w)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(is_channels_last(x)))


def new_sources(grad: torch.Tensor, height: int, width: int, channels_last: bool) -> torch.Tensor:
    """An uninitialised gradient of x."""
    shape = (grad.shape[0], grad.shape[1], height, width)
    return torch.empty(shape, dtype=grad.dtype, device=grad.device, memory_format=memory_format(channels_last))
