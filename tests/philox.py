"""Philox4x32-10 in numpy, for the native and the torch versions to be compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def philox4x32(key: tuple[int, int], counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """(..., 4) uint32 words of a key of two 32-bit words and (..., 4) uint32 counters."""
    c0, c1, c2, c3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & mask
        c2, c3 = (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)
