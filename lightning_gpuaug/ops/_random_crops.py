"""The public `random_crops`, and what serves it without the native library."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import check_integer, check_tensor, finite_number, listed, shown
from lightning_gpuaug.ops._uniforms import plain_uniforms

ATTEMPTS = 10
"""Tries of a random resized crop before its fallback, as torchvision has it; the slots 0..9 of a key."""
FLIP_SLOT = ATTEMPTS
"""The slot of a key whose first number decides about the flip."""
LEAST_RATIO = 2.0**-126

SCHEMAS = {
    "random_crops": "random_crops(Tensor keys, Tensor sizes, float[] scale, float[] ratio, float hflip, int epoch, "
    "int seed) -> (Tensor, Tensor, Tensor)",
}

Crops = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def random_crops(
    keys: torch.Tensor,
    sizes: torch.Tensor,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    hflip: float,
    epoch: int,
    seed: int,
) -> Crops:
    """Windows of random resized crops and flips, as torchvision defines and `uniforms` draws them.

    Of `ATTEMPTS` windows whose share of the image's area is uniform in `scale` and whose ratio is log-uniform in
    `ratio`, the first that fits, at a uniform place; or the largest centred window within `ratio`.

    Args:
        keys: int64, shape (N,), on the CPU: all that a row's draws depend on, with `epoch` and `seed`.
        sizes: int32, shape (N, 2), on the CPU: height and width of the images, pixels; what is below 1 counts as 1.
        scale: least and greatest share of the area, 0..1.
        ratio: least and greatest width / height, above 0.
        hflip: probability of a flip, 0..1.
        epoch: its low 32 bits count.
        seed: its low 32 bits count.

    Returns:
        top and left of each window, int32 (N, 2); its height and width, int32 (N, 2); whether to flip it, bool (N,).

    Raises:
        ValueError: keys or sizes have another dtype or are not on the CPU, or an argument has a wrong type or value.
        RuntimeError: their shapes do not fit.
    """
    op = "random_crops"
    check_integer(op, "epoch", epoch)
    check_integer(op, "seed", seed)
    scale, ratio = _range(op, "scale", scale, 0.0, 1.0), _range(op, "ratio", ratio, LEAST_RATIO)
    hflip = finite_number(op, "hflip", hflip, 0.0, 1.0)
    for name, tensor, dtype in (("keys", keys, torch.int64), ("sizes", sizes, torch.int32)):
        check_tensor(op, name, tensor)
        if tensor.dtype != dtype or tensor.device.type != "cpu":
            raise ValueError(f"random_crops: {name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    crops: Crops = torch.ops.lightning_gpuaug.random_crops(keys, sizes, scale, ratio, hflip, epoch, seed)
    return crops


def _range(op: str, name: str, pair: Sequence[float], least: float, most: float | None = None) -> tuple[float, float]:
    """Two numbers within limits, the lesser first."""
    numbers = listed(pair)
    if numbers is None or len(numbers) != 2:
        raise ValueError(f"{op}: {name} must be two numbers, got {shown(pair)}")
    low, high = (finite_number(op, f"{name}[{i}]", v, least, most) for i, v in enumerate(numbers))
    if low > high:
        raise ValueError(f"{op}: {name} must be the lesser number first, got {shown(pair)}")
    return low, high


def plain_random_crops(
    keys: torch.Tensor,
    sizes: torch.Tensor,
    scale: Sequence[float],
    ratio: Sequence[float],
    hflip: float,
    epoch: int,
    seed: int,
) -> Crops:
    """The same by torch."""
    if keys.ndim != 1 or sizes.shape != (len(keys), 2):
        raise RuntimeError(
            "random_crops: keys and sizes must have the shapes (N,) and (N, 2), got "
            f"{tuple(keys.shape)} and {tuple(sizes.shape)}"
        )
    u = plain_uniforms(keys, torch.arange(ATTEMPTS + 1), epoch, seed)
    flip = u[:, FLIP_SLOT, 0] < hflip
    u = u[:, :ATTEMPTS]
    narrow, wide = ratio
    area = scale[0] + (scale[1] - scale[0]) * u[..., 0]
    half_ratio = torch.exp(0.5 * (math.log(narrow) + (math.log(wide) - math.log(narrow)) * u[..., 1]))
    side = area.sqrt()
    extent = sizes.clamp(min=1).double()
    relative = torch.stack([side / half_ratio, side * half_ratio], dim=-1)  # (N, attempts, 2)
    windows = torch.floor(relative * extent.prod(dim=1).sqrt()[:, None, None] + 0.5)
    fits = ((windows >= 1) & (windows <= extent[:, None])).all(dim=-1)
    row, first = torch.arange(len(keys)), fits.to(torch.uint8).argmax(dim=1)
    drawn = windows[row, first]
    start = torch.floor(u[row, first, 2:] * (extent - drawn + 1))
    limits = torch.floor(torch.stack([extent[:, 1] / narrow, extent[:, 0] * wide], dim=1) + 0.5)
    centred = torch.minimum(extent, limits).clamp(min=1)
    lucky = fits.any(dim=1)[:, None]
    size = torch.where(lucky, drawn, centred)
    start = torch.where(lucky, start, torch.floor((extent - centred) / 2))
    return start.to(torch.int32), size.to(torch.int32), flip


def _fake(
    keys: torch.Tensor,
    sizes: torch.Tensor,
    scale: Sequence[float],
    ratio: Sequence[float],
    hflip: float,
    epoch: int,
    seed: int,
) -> Crops:
    count = keys.shape[0]
    return sizes.new_empty((count, 2)), sizes.new_empty((count, 2)), sizes.new_empty((count,), dtype=torch.bool)


def register(library: torch.library.Library) -> None:
    """Add the plain kernel, for when there is no native one, and the fake."""
    library.impl("random_crops", plain_random_crops, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("lightning_gpuaug::random_crops", _fake, lib=library)
