"""Checks of fields: errors name the field, the rule and the value received."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal

Interpolation = Literal["nearest", "bilinear", "bicubic"]
INTERPOLATIONS: tuple[str, ...] = ("nearest", "bilinear", "bicubic")


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise a ValueError unless `condition`."""
    if not condition:
        raise ValueError(f"{name} {rule}, got {value!r}")


def is_number(value: object) -> bool:
    """Whether it is a finite number, booleans left out."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object) -> bool:
    """Whether it is an integer, booleans left out."""
    return isinstance(value, int) and not isinstance(value, bool)


def numbers(name: str, value: Sequence[float], count: int, rule: str) -> tuple[float, ...]:
    """`value` as a tuple of floats, so that recipes from Python and from YAML compare equal."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    require(listed and len(value) == count and all(map(is_number, value)), name, rule, value)
    return tuple(map(float, value))


def positive_range(name: str, value: Sequence[float], most: float | None = None) -> tuple[float, float]:
    """`value` as two numbers 0 < a ≤ b (≤ most)."""
    rule = "must be two numbers 0 < a ≤ b" + (f" ≤ {most:g}" if most is not None else "")
    low, high = numbers(name, value, 2, rule)
    require(0 < low <= high and (most is None or high <= most), name, rule, value)
    return low, high


def check_switch(name: str, value: bool) -> None:
    """True or False and nothing else."""
    require(isinstance(value, bool), name, "must be True or False", value)


def check_step(name: str, value: object, kind: type) -> None:
    """A step of its kind, or None."""
    require(value is None or isinstance(value, kind), name, f"must be a {kind.__name__} or None", value)


def check_resampling(owner: str, interpolation: str, antialias: bool) -> None:
    """Fields `interpolation` and `antialias`."""
    check_interpolation(f"{owner}.interpolation", interpolation)
    check_switch(f"{owner}.antialias", antialias)


def check_interpolation(name: str, value: str) -> None:
    """The name of a filter."""
    require(value in INTERPOLATIONS, name, f"must be one of {INTERPOLATIONS}", value)


def check_probability(name: str, value: float) -> None:
    """A number in 0..1."""
    require(is_number(value) and 0.0 <= value <= 1.0, name, "must be a probability in 0..1", value)


def check_whole(name: str, value: int, low: int, high: int) -> None:
    """An integer in low..high."""
    require(is_whole(value) and low <= value <= high, name, f"must be a whole number in {low}..{high}", value)


def pixel(name: str, value: Sequence[int]) -> tuple[int, ...]:
    """`value` as three integers in 0..255."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    require(listed and len(value) == 3 and all(is_whole(v) and 0 <= v <= 255 for v in value), name,
            "must be three integers in 0..255", value)  # fmt: skip
    return tuple(value)
