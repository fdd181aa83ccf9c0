"""Random resized crops by torchvision's definition, all tries at once, from the tests' own Philox."""

from __future__ import annotations

import math

import numpy as np

from lightning_gpuaug import RandomResizedCrop
from tests.philox import philox4x32

TRIES = 10


def uniforms(keys: np.ndarray, epoch: int, seed: int, slots: int) -> np.ndarray:
    """(N, slots, 4) float64 of the slots 0..slots-1."""
    wide = keys.astype(np.uint64)[:, None]
    counter = np.broadcast_arrays(wide & np.uint64(2**32 - 1), wide >> np.uint64(32), np.arange(slots), 0)
    return (philox4x32((seed, epoch), np.stack(counter, -1).astype(np.uint32)) >> 8) * 2.0**-24


def random_crops(
    crop: RandomResizedCrop, keys: np.ndarray, epoch: int, seed: int, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(top, left) and (height, width), (N, 2) each."""
    u = uniforms(keys, epoch, seed, TRIES)
    area = crop.scale[0] + (crop.scale[1] - crop.scale[0]) * u[..., 0]
    narrow, wide = (math.log(r) for r in crop.ratio)
    half_ratio = np.exp(0.5 * (narrow + (wide - narrow) * u[..., 1]))  # sqrt(width / height)
    relative = np.sqrt(area)[..., None] * np.stack([1 / half_ratio, half_ratio], axis=-1)
    extent = np.maximum(sizes, 1).astype(np.float64)
    windows = np.floor(relative * np.sqrt(extent.prod(axis=1))[:, None, None] + 0.5)  # (N, tries, 2)
    start, size = np.empty_like(sizes), np.empty_like(sizes)
    for row, (height, width) in enumerate(extent):
        for drawn, place in zip(windows[row], u[row, :, 2:], strict=True):
            if (drawn >= 1).all() and (drawn <= extent[row]).all():
                start[row], size[row] = np.floor(place * (extent[row] - drawn + 1)), drawn
                break
        else:  # the largest window within the ratios, in the centre
            limits = [math.floor(width / crop.ratio[0] + 0.5), math.floor(height * crop.ratio[1] + 0.5)]
            size[row] = np.maximum(np.minimum(extent[row], limits), 1)
            start[row] = (extent[row] - size[row]) // 2
    return start, size
