"""Normal, Gamma, Beta and Dirichlet numbers from keyed uniform ones, the same whatever the CPU.

NumPy's own logarithms, exponentials and powers differ in the last bit between CPUs with AVX-512 and others. Those of
the C library do not, on any with fused multiply-add (x86 since 2013), so the transcendental functions are taken from
there, a number at a time. NumPy does the rest: sums, products, quotients, square roots and roundings are those of
IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DrawAt = Callable[[Ints, Ints], Floats]
"""(rows, slots) -> (len(rows), len(slots), 4) uniform numbers."""

GAMMA_ATTEMPTS = 12
"""Slots of one Gamma number. Each attempt is accepted with a probability above 0.95."""
_DRAWN_TOGETHER = 3
"""Attempts for which numbers are drawn at once: a batch seldom needs more, and a draw costs more than its numbers."""


_TINY = 2.0**-25  # below the grid of the uniform numbers


def each(function: Callable[[float], float], values: Floats) -> Floats:
    """A function of `math`, of every value."""
    return np.array([*map(function, values.ravel().tolist())], dtype=np.float64).reshape(values.shape)


def normal(first: Floats, second: Floats) -> Floats:
    """Standard normal numbers from two uniform ones each (Box and Muller)."""
    result: Floats = np.sqrt(-2.0 * each(math.log1p, -first)) * each(math.cos, 2.0 * np.pi * second)
    return result


def gamma(alpha: float, width: int, rows: Ints, slot: int, draw_at: DrawAt) -> Floats:
    """Gamma(alpha, 1) numbers, `width` a row: (N, width), from width * GAMMA_ATTEMPTS slots from `slot` on.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000); below 1, alpha + 1 and a power of a
    uniform number. Where every attempt fails (once in 10**15 numbers), the mean is taken.
    """
    slots = slot + GAMMA_ATTEMPTS * np.arange(width)
    if alpha == 1.0:
        return -each(math.log1p, -draw_at(rows, slots)[..., 0])
    d = (alpha + 1.0 if alpha < 1.0 else alpha) - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    result = np.full(len(rows) * width, alpha)
    missing = np.arange(len(result))
    first = (slots[:, None] + np.arange(_DRAWN_TOGETHER)).ravel()
    drawn = draw_at(rows, first).reshape(len(result), _DRAWN_TOGETHER, 4)
    for attempt in range(GAMMA_ATTEMPTS):
        if not len(missing):
            break
        if attempt < _DRAWN_TOGETHER:
            u = drawn[missing, attempt]
        else:
            row, column = np.divmod(missing, width)
            u = draw_at(rows[row], slots + attempt)[np.arange(len(row)), column]
        x = normal(u[:, 0], u[:, 1])
        root = 1.0 + c * x
        v = root * root * root
        positive = v > 0
        log_v = each(math.log, np.where(positive, v, 1.0))
        accepted = positive & (each(math.log, np.maximum(u[:, 2], _TINY)) < 0.5 * x * x + d - d * v + d * log_v)
        value = d * v[accepted]
        if alpha < 1.0:
            value = value * each(lambda number: math.pow(number, 1.0 / alpha), np.maximum(u[accepted, 3], _TINY))
        result[missing[accepted]] = value
        missing = missing[~accepted]
    return result.reshape(len(rows), width)


def beta(alpha: float, rows: Ints, slot: int, draw_at: DrawAt) -> Floats:
    """Beta(alpha, alpha) numbers, one a row, from 2 * GAMMA_ATTEMPTS slots."""
    if alpha == 1.0:
        return draw_at(rows, np.array([slot]))[:, 0, 0]
    return dirichlet(alpha, 2, rows, slot, draw_at)[:, 0]


def dirichlet(alpha: float, width: int, rows: Ints, slot: int, draw_at: DrawAt) -> Floats:
    """Dirichlet(alpha, …, alpha) weights: (N, width), each row summing to 1, from width * GAMMA_ATTEMPTS slots."""
    parts = np.maximum(gamma(alpha, width, rows, slot, draw_at), 1e-300)
    result: Floats = parts / parts.sum(axis=1, keepdims=True)
    return result
