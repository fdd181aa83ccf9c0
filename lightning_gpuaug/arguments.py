"""Checks of arguments: one-line ValueErrors that name the argument, the rule and the value received."""

from __future__ import annotations

import operator


def whole(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """`value` as an int, NumPy's integers among what it may be."""
    rule = f"a whole number of at least {least}" if most is None else f"in {least}..{most} and whole"
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be {rule}, got {value!r}")
    return number


def share(name: str, value: float) -> None:
    """Require a number in 0..1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f'{name} must be a share in 0..1 or "auto", got {value!r}')


def one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    """Require one of `allowed`, of its very type: 1 is not True."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def instance(name: str, value: object, kind: type) -> None:
    """Require an instance of `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
