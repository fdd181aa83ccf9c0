"""Targets of single samples of a Python dataset: which there are, and how they become those of a batch."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Targets
from lightning_gpuaug.sources.fetching import ABSENT


def as_array(target: Any, name: Callable[[int], str], row: int) -> npt.NDArray[Any]:
    """A target as NumPy has it: a number, or numbers.

    Raises:
        ValueError: it is something else, or does not fit int64; says `name(row)`.
    """
    if target is ABSENT:
        return np.array(-1)
    try:
        values = np.asarray(target)
    except ValueError:  # lists of different lengths
        values = np.empty(0, dtype=np.object_)
    whole = target if isinstance(target, int) else int(values) if values.ndim == 0 and values.dtype.kind == "u" else 0
    if not -(2**63) <= whole < 2**63:
        raise ValueError(f"{name(row)}: a target must fit 64 bits with a sign, got {whole}")
    if values.dtype.kind not in "biuf":
        got = " ".join(reprlib.repr(target).split())
        raise ValueError(f"{name(row)}: a target must be a number or a vector of numbers, got {got}")
    return values


def kind_of(target: npt.NDArray[Any]) -> str:
    """What a target is, in words."""
    if target.ndim:
        return f"numbers of shape {target.shape}"
    if target.dtype.kind == "f":
        return "a floating-point number"
    return "none (-1)" if int(target) == -1 else "a whole number"


def is_whole(target: npt.NDArray[Any]) -> bool:
    """Whether a target is a class number (or -1, none)."""
    return target.ndim == 0 and target.dtype.kind in "biu"


def without_targets(targets: Targets) -> bool:
    """Whether all samples have -1, which stands for none."""
    return targets.ndim == 1 and targets.dtype == np.int64 and bool((targets == -1).all())


def as_float32(values: npt.NDArray[Any], name: Callable[[int], str]) -> npt.NDArray[np.float32]:
    """Numbers of samples, (N, …), as float32.

    Raises:
        ValueError: a number is beyond float32; says `name(row)`.
    """
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    lost = np.isinf(single) & np.isfinite(values)
    if lost.any():
        raise ValueError(f"{name(int(np.argwhere(lost)[0, 0]))}: a target must fit float32, got {values[lost][0]}")
    return single


def as_targets(known: Any, owner: str) -> Targets:
    """Known targets: int64 for whole numbers of any kind, float32 for other numbers and for vectors.

    Raises:
        ValueError: they are no numbers, or do not fit int64; says `owner`.
    """
    try:
        values = np.asarray(known)
    except ValueError:
        raise ValueError(f"{owner}: targets must be of one kind, got rows of different lengths") from None
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{owner}: a target must be a number or a vector of numbers, got {values.dtype}")
    if values.ndim == 1 and values.dtype.kind in "biu":
        if len(values) and values.max() >= 2**63:
            raise ValueError(f"{owner}: a target must fit 64 bits with a sign, got {values.max()}")
        return values.astype(np.int64)
    return as_float32(values, lambda row: f"{owner}[{row}]")
