"""Keys of draws: a sample's index and, where it is shown more than once in an epoch, which showing it is.

A draw depends on (seed, epoch, key, slot). The key of a sample that is shown once is its index, so that recipes without
repeats, splits or views draw what they always drew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.recipe import MOST_SPLITS, MOST_VIEWS

Keys = NDArray[np.int64]

_SHOWING_SHIFT = 48  # indices lie below; 64 repeats x 8 splits x 64 views fill the 15 bits above


def keys_of(indices: Keys, repeats: Keys | int = 0, split: int = 0, view: int = 0) -> Keys:
    """The keys of a batch's draws.

    Args:
        indices: (N,) sample indices, below 2**48.
        repeats: (N,) which showing of its sample each row is, below `MOST_REPEATS`.
        split: which augmentation split, below `MOST_SPLITS`.
        view: which view, below `MOST_VIEWS`.
    """
    showing = (np.asarray(repeats, dtype=np.int64) * MOST_SPLITS + split) * MOST_VIEWS + view
    keys: Keys = indices + (showing << _SHOWING_SHIFT)
    return keys
