"""Which part of an image evaluation shows, from its size, by the definitions of torchvision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.recipe import EvalRecipe

Sizes = NDArray[np.int32]
"""(N, 2): height and width, pixels."""


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
