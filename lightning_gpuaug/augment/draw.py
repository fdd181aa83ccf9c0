"""The random numbers of a batch, drawn on the host before any pixel is read.

A draw is keyed by (seed, epoch, sample index, slot) and by nothing else: not by the position in the batch, the rank,
the number of ranks, or what was drawn before. That makes a resumed run, another world size and a test see the same
augmentation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.arguments import instance, whole
from lightning_gpuaug.augment.slots import Slot
from lightning_gpuaug.augment.window import Sizes
from lightning_gpuaug.recipe import TrainRecipe


def uniforms(indices: NDArray[np.int64], epoch: int, seed: int, slots: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) on a grid of 2**-24, keyed by (seed, epoch, index, slot); see `ops.uniforms`.

    Args:
        indices: (N,) sample indices.
        epoch: number of the epoch.
        seed: 0..2**32-1.
        slots: (S,) slots below 2**32, or S for the slots 0..S-1. A slot's numbers do not depend on which others are
            asked for, so rare ones can be drawn when they are needed.

    Returns:
        (N, S, 4) float64.
    """
    wanted = np.arange(slots) if isinstance(slots, int) else slots
    drawn = ops.uniforms(_tensor(indices), _tensor(wanted), epoch=epoch, seed=seed)
    numbers: NDArray[np.float64] = drawn.numpy()
    return numbers


def _tensor(values: NDArray[np.integer]) -> torch.Tensor:
    return torch.from_numpy(np.require(values, np.int64, ["C", "W"]))


def check_key(
    op: str, recipe: TrainRecipe, indices: NDArray[np.int64], epoch: int, seed: int, sizes: Sizes | None
) -> None:
    """Require what a batch is drawn by: one-line ValueErrors name the argument, the rule and the value."""
    instance(f"{op}: recipe", recipe, TrainRecipe)
    whole(f"{op}: epoch", epoch, 0, 2**32 - 1)
    whole(f"{op}: seed", seed, 0, 2**32 - 1)
    _check_integers(op, "indices", indices, 1, "(N,)")
    if sizes is not None:
        _check_integers(op, "sizes", sizes, 2, f"({len(indices)}, 2)")
        if sizes.shape != (len(indices), 2):
            raise ValueError(f"{op}: sizes must have shape ({len(indices)}, 2), got {sizes.shape}")


def _check_integers(op: str, name: str, values: NDArray[np.integer], ndim: int, shape: str) -> None:
    if not isinstance(values, np.ndarray):
        raise ValueError(f"{op}: {name} must be a NumPy array of integers {shape}, got {type(values).__name__}")
    if values.dtype.kind not in "iu" or not np.can_cast(values.dtype, np.int64) or values.ndim != ndim:
        raise ValueError(
            f"{op}: {name} must be a NumPy array of integers {shape}, got {values.dtype} of shape {values.shape}"
        )


@dataclass(frozen=True)
class Draws:
    """What was drawn for a batch of N samples.

    Attributes:
        start: (N, 2) int32, top and left of the window to show.
        size: (N, 2) int32, its height and width; without a random crop the whole image.
        flip: (N,) bool, mirror left to right; None where the recipe never flips.
    """

    start: Sizes
    size: Sizes
    flip: NDArray[np.bool_] | None


def draw(recipe: TrainRecipe, indices: NDArray[np.int64], epoch: int, seed: int, sizes: Sizes) -> Draws:
    """Draw the random crops and flips of a batch; see `ops.random_crops`.

    Args:
        recipe: what may happen.
        indices: (N,) sample indices, or keys.
        epoch: number of the epoch.
        seed: 0..2**32-1.
        sizes: (N, 2) height and width of the images, pixels; what is below 1 counts as 1.

    Raises:
        ValueError: an argument has a wrong type, shape or value.
    """
    check_key("draw", recipe, indices, epoch, seed, sizes)
    crop, flip = recipe.crop, None
    if crop is None:
        start, size = np.zeros_like(sizes), np.maximum(sizes, 1)
        if recipe.hflip > 0:
            flip = uniforms(indices, epoch, seed, np.array([Slot.FLIP]))[:, 0, 0] < recipe.hflip
        return Draws(start, size, flip)
    drawn = ops.random_crops(
        _tensor(indices), torch.from_numpy(np.require(sizes, np.int32, ["C", "W"])),
        scale=crop.scale, ratio=crop.ratio, hflip=recipe.hflip, epoch=epoch, seed=seed,
    )  # fmt: skip
    start, size, flip = (tensor.numpy() for tensor in drawn)
    return Draws(start, size, flip if recipe.hflip > 0 else None)
