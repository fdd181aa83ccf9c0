"""How far two sides that draw for themselves lie apart, and how far chance alone would bring them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STANDARD_ERRORS = 4.5
"""How many standard errors apart two means may be: with some hundred comparisons, chance alone stays below this."""
MOST_DISTRIBUTION_APART = 2.4
"""The same for `distribution_apart`: chance alone goes beyond it as rarely (about once in 50,000 comparisons)."""


def means_apart(ours: Floats, theirs: Floats) -> float:
    """Largest difference of the means over D draws, in standard errors.

    Args:
        ours: (D, C), a number a draw and channel; the draws are independent.
        theirs: (D', C).
    """
    variance = ours.var(axis=0, ddof=1) / len(ours) + theirs.var(axis=0, ddof=1) / len(theirs)
    difference = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
    noise = np.sqrt(variance)
    known = (noise > 0) | (difference > 0)
    return float(np.max(difference[known] / np.maximum(noise[known], 1e-9), initial=0.0))


def histogram_distance(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Earth mover's distance of histograms (3, levels), in levels, averaged over the channels."""
    shares = [counts / counts.sum(axis=1, keepdims=True) for counts in (a, b)]
    return float(np.abs(np.cumsum(shares[0] - shares[1], axis=1)).sum(axis=1).mean())


def distribution_distance(a: Floats, b: Floats) -> float:
    """Largest difference of two samples' cumulative distributions, 0..1 (Kolmogorov and Smirnov)."""
    at = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def distribution_apart(a: Floats, b: Floats) -> float:
    """`distribution_distance` in units of what chance makes: 0.83 in the median, above 1.63 once in a hundred."""
    return distribution_distance(a, b) * math.sqrt(len(a) * len(b) / (len(a) + len(b)))
