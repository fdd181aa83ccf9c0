"""The random numbers of a batch, drawn on the host before any pixel is read.

A draw is keyed by (seed, epoch, sample index, slot) and by nothing else: not by the position in the batch, the rank,
the number of ranks, or what was drawn before. That makes a resumed run, another world size and a test see the same
augmentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.recipe import TrainRecipe

CROP_ATTEMPTS = 10
"""Tries of a random resized crop before its fallback, as torchvision has it."""

FLIP_SLOT = CROP_ATTEMPTS
_SLOTS = CROP_ATTEMPTS + 1


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


@dataclass(frozen=True)
class Draws:
    """What was drawn for a batch of N samples.

    Attributes:
        crop: (N, 4, CROP_ATTEMPTS) float64, one candidate window a column: height and width as multiples of
            sqrt(image area), then the uniform positions of its top and left; None without a random crop. The image's
            size is not known here, so the first candidate that fits is chosen where the image's header is read.
        flip: (N,) bool, mirror left to right; None where the recipe never flips.
    """

    crop: NDArray[np.float64] | None
    flip: NDArray[np.bool_] | None


def draw(recipe: TrainRecipe, indices: NDArray[np.int64], epoch: int, seed: int) -> Draws:
    """Draw everything random about a batch.

    Args:
        recipe: what may happen.
        indices: (N,) sample indices.
        epoch: number of the epoch.
        seed: 0..2**32-1.
    """
    u = uniforms(indices, epoch, seed, _SLOTS)
    crop = None
    if recipe.crop is not None:
        low, high = recipe.crop.scale
        narrow, wide = (math.log(r) for r in recipe.crop.ratio)
        tries = u[:, :CROP_ATTEMPTS]
        area = low + (high - low) * tries[..., 0]
        half_ratio = np.exp(0.5 * (narrow + (wide - narrow) * tries[..., 1]))  # sqrt(width / height)
        side = np.sqrt(area)
        crop = np.stack([side / half_ratio, side * half_ratio, tries[..., 2], tries[..., 3]], axis=1)
    flip = u[:, FLIP_SLOT, 0] < recipe.hflip if recipe.hflip > 0 else None
    return Draws(crop, flip)
