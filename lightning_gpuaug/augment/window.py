"""Which part of an image is shown: integer windows from image sizes, the definitions of torchvision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.recipe import EvalRecipe, RandomResizedCrop

Sizes = NDArray[np.int32]
"""(N, 2): height and width, pixels."""


def random_window(sizes: Sizes, candidates: NDArray[np.float64], crop: RandomResizedCrop) -> tuple[Sizes, Sizes]:
    """The random resized crop of each image.

    Args:
        sizes: (N, 2) of the images, at least 1.
        candidates: (N, 4, K), a drawn window a column, as `augment.draw.Draws.crop` describes it.
        crop: gives the ratio of the fallback.

    Returns:
        (top, left) and (height, width), (N, 2) each: the first candidate that fits the image, or the largest centred
        window within `crop.ratio`.
    """
    extent = sizes.astype(np.float64)
    sides = np.floor(candidates[:, :2] * np.sqrt(extent.prod(axis=1))[:, None, None] + 0.5)  # (N, 2, K)
    fits = ((sides >= 1) & (sides <= extent[:, :, None])).all(axis=1)
    first = fits.argmax(axis=1)
    rows = np.arange(len(sizes))
    drawn, place = sides[rows, :, first], candidates[rows, 2:, first]
    start = np.floor(place * (extent - drawn + 1))

    narrow, wide = crop.ratio
    limits = np.stack([np.floor(extent[:, 1] / narrow + 0.5), np.floor(extent[:, 0] * wide + 0.5)], axis=1)
    centred = np.clip(np.minimum(extent, limits), 1, None)
    lucky = fits.any(axis=1)[:, None]
    size = np.where(lucky, drawn, centred)
    start = np.where(lucky, start, np.floor((extent - centred) / 2))
    return start.astype(np.int32), size.astype(np.int32)


def centre_window(sizes: Sizes, image_size: int, recipe: EvalRecipe) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The part of each image that torchvision's `Resize(shorter)` and `CenterCrop(image_size)` would show.

    One resampling of that part gives the pixels of the two steps without making those that the crop throws away.
    The integers are torchvision's: the longer side is truncated, an odd margin is rounded half to even.

    Args:
        sizes: (N, 2) of the images, at least 1.
        image_size: of the result.
        recipe: gives the shorter side, image_size / crop_ratio.

    Returns:
        Where the part begins and ends, (N, 2) each, (y, x) in pixels of the image, fractions included.
    """
    shorter = round(image_size / recipe.crop_ratio)
    extent = sizes.astype(np.int64)
    resized = shorter * extent // extent.min(axis=1, keepdims=True)
    start = np.rint((resized - image_size) / 2)
    scale = extent / resized
    return (start * scale).astype(np.float32), ((start + image_size) * scale).astype(np.float32)
