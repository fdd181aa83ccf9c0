"""Warps and filters of an (H, W, 3) int32 image in plain torch, with the rounding of the native kernels."""

from __future__ import annotations

import math

import torch

from lightning_gpuaug.ops.record import MAX_BLUR_KERNEL, Opcode
from lightning_gpuaug.ops.reference_math import fma


def _scalar_fma(a: float, b: float, c: float) -> float:
    return float(fma(*(torch.tensor([v], dtype=torch.float32) for v in (a, b, c))))


def warp_numbers(opcode: Opcode, numbers: list[float], height: int, width: int) -> list[float]:
    """Destination to source, eight numbers."""
    m = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    match opcode:
        case Opcode.TRANSLATE:
            m[2], m[5] = numbers
        case Opcode.SHEAR_X:
            m[1] = numbers[0]
        case Opcode.SHEAR_Y:
            m[3] = numbers[0]
        case Opcode.ROTATE:
            c, s = numbers
            x, y = 0.5 * width, 0.5 * height
            m[:6] = [c, s, _scalar_fma(-s, y, _scalar_fma(-c, x, x)), -s, c, _scalar_fma(s, x, _scalar_fma(-c, y, y))]
        case _:
            m[: len(numbers)] = numbers
    return m


def _source(m: list[float], perspective: bool, height: int, width: int,
            device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    x = (torch.arange(width, device=device).float() + 0.5).expand(height, width)
    y = (torch.arange(height, device=device).float() + 0.5)[:, None].expand(height, width)

    def row(a: float, b: float, c: float) -> torch.Tensor:
        return fma(torch.full_like(x, a), x, fma(torch.full_like(x, b), y, torch.full_like(x, c)))

    sx, sy = row(*m[0:3]), row(*m[3:6])
    if perspective:
        depth = row(m[6], m[7], 1.0)
        sx, sy = sx / depth, sy / depth
    return tuple(torch.nan_to_num(v, nan=-1e6).clamp(-1e6, 1e6) for v in (sx, sy))  # type: ignore[return-value]


def _bordered(i: torch.Tensor, size: int, border: str) -> torch.Tensor:
    if border == "reflect":
        r = i % (2 * size)
        return torch.where(r < size, r, 2 * size - 1 - r)
    if border == "reflect101":
        if size == 1:
            return torch.zeros_like(i)
        r = i % (2 * size - 2)
        return torch.where(r < size, r, 2 * size - 2 - r)
    return i.clamp(0, size - 1)


def _tap(image: torch.Tensor, x: torch.Tensor, y: torch.Tensor, border: str, fill: torch.Tensor) -> torch.Tensor:
    height, width, _ = image.shape
    value = image[_bordered(y, height, border), _bordered(x, width, border)]
    if border == "constant":
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        value = torch.where(inside[..., None], value, fill)
    return value


def _cubic(t: torch.Tensor, a: float) -> list[torch.Tensor]:
    u = 1.0 - t

    def inner(s: torch.Tensor) -> torch.Tensor:
        slope = fma(torch.full_like(s, a + 2.0), s, torch.full_like(s, -(a + 3.0)))
        return fma(slope, s * s, torch.ones_like(s))

    return [a * t * u * u, inner(t), inner(u), a * u * t * t]


def warped(image: torch.Tensor, opcode: Opcode, numbers: list[float], interpolation: str, border: str,
           fill: tuple[int, int, int]) -> torch.Tensor:  # fmt: skip
    """The image seen through a warp."""
    height, width, _ = image.shape
    color = torch.tensor(fill, dtype=torch.int32, device=image.device)
    perspective = opcode == Opcode.PERSPECTIVE
    sx, sy = _source(warp_numbers(opcode, numbers, height, width), perspective, height, width, image.device)

    def tap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _tap(image, x, y, border, color)

    if interpolation == "nearest":
        result = tap(sx.floor().long(), sy.floor().long())
    else:
        fx, fy = sx - 0.5, sy - 0.5
        x, y = fx.floor().long(), fy.floor().long()
        wx, wy = (fx - fx.floor())[..., None].expand_as(image), (fy - fy.floor())[..., None].expand_as(image)
        if interpolation == "bilinear":
            a, b, c, d = tap(x, y), tap(x + 1, y), tap(x, y + 1), tap(x + 1, y + 1)
            top, bottom = fma(wx, (b - a).float(), a.float()), fma(wx, (d - c).float(), c.float())
            total = fma(wy, bottom - top, top)
        else:
            sharpness = -1.0 if border == "pil" else -0.75
            cx, cy = _cubic(wx, sharpness), _cubic(wy, sharpness)
            total = torch.zeros_like(wx)
            for j in range(4):
                line = torch.zeros_like(wx)
                for i in range(4):
                    line = fma(cx[i], tap(x - 1 + i, y - 1 + j).float(), line)
                total = fma(cy[j], line, total)
            total = total.clamp(0, 255)
        result = (total if border == "pil" else total.round()).to(torch.int32)
    if border == "pil":
        covered = (sx >= 0) & (sx < width) & (sy >= 0) & (sy < height)
        result = torch.where(covered[..., None], result, color)
    return result


def sharpened(image: torch.Tensor, rest: float) -> torch.Tensor:
    """Away from the 3 x 3 smoothing; `rest` is 1 - factor."""
    height, width, _ = image.shape
    if height < 3 or width < 3:
        return image
    centre = image[1:-1, 1:-1]
    total = 4 * centre
    for dy in range(3):
        for dx in range(3):
            total = total + image[dy : height - 2 + dy, dx : width - 2 + dx]
    smooth = (2 * total + 13) // 26
    change = (smooth - centre).float()
    result = image.clone()
    value = fma(torch.full_like(change, rest), change, centre.float())
    result[1:-1, 1:-1] = value.clamp(0, 255).to(torch.int32)
    return result


def _blur_weights(sigma: float, radius: int) -> list[int]:
    sigma = min(max(sigma, 1e-3), 1e3)
    density = [math.exp(-0.5 * (i / sigma) * (i / sigma)) for i in range(radius + 1)]
    total = 1.0
    for value in density[1:]:
        total += 2.0 * value
    weights = [round(65536.0 * value / total) for value in density]
    weights[0] = 65536 - 2 * sum(weights[1:])
    return weights


def blurred(image: torch.Tensor, sigma: float, kernel: int) -> torch.Tensor:
    """Gaussian blur, rows then columns, each rounded to integers."""
    radius = min(max((kernel - 1) // 2, 0), (MAX_BLUR_KERNEL - 1) // 2)
    weights = _blur_weights(sigma, radius)
    for axis in (1, 0):
        size = image.shape[axis]
        at = torch.arange(size, device=image.device)
        total = weights[0] * image + 32768
        for i in range(1, radius + 1):
            before = image.index_select(axis, _bordered(at - i, size, "reflect101"))
            after = image.index_select(axis, _bordered(at + i, size, "reflect101"))
            total = total + weights[i] * (before + after)
        image = total >> 16
    return image
