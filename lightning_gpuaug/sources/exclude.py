"""Samples to leave out: a tuple of names, or a file that lists them (as `gpuaug scan` writes it)."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

#: Names of samples as `sample_name(i)` gives them, or the path of a list of them.
Exclude = Sequence[str] | str | os.PathLike[str]


def validated_exclude(value: Exclude, owner: str) -> str | tuple[str, ...]:
    """`value` as the path of a list or a tuple of names; nothing is read.

    Raises:
        TypeError: it is neither; names `owner`, the argument.
    """
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if not isinstance(value, Iterable):
        raise TypeError(f"{owner} must be the path of a list or a sequence of sample names, got {value!r}")
    names = tuple(os.fspath(name) if isinstance(name, os.PathLike) else name for name in value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{owner} must hold sample names, got {name!r} ({type(name).__name__})")
    return names


def excluded_names(value: str | tuple[str, ...], owner: str) -> tuple[str, ...]:
    """The names that `value` (see `validated_exclude`) stands for, in order.

    A list is UTF-8 text, a name a line, where blank lines and those that begin with `#` say nothing; or, called
    `.json`, an array of names.

    Raises:
        ValueError: the list cannot be read or is no list; names `owner` and the file.
    """
    if not isinstance(value, str):
        return value
    try:
        with open(os.path.expanduser(value), encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{owner} as one string must be a text or JSON file of paths or names (one path goes in a list), "
            f"got {value!r}: {error}"
        ) from None
    if value.lower().endswith(".json"):
        return _from_json(text, value, owner)
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))


def kept(names: Iterable[str], count: int, excluded: Sequence[str], where: str) -> npt.NDArray[np.int64] | None:
    """Positions of the `count` samples `names` that are not `excluded`; None for all of them.

    Warns:
        UserWarning: some of `excluded` are no samples of `where`.
    """
    if not excluded:
        return None
    unwanted = set(excluded)
    hits = [(i, name) for i, name in enumerate(names) if name in unwanted]
    missed = sorted(unwanted.difference(name for _, name in hits))
    if missed:
        warnings.warn(
            f"{len(missed)} of the excluded names match nothing in {where}, the first being {missed[0]!r}",
            UserWarning,
            stacklevel=3,
        )
    return np.delete(np.arange(count, dtype=np.int64), [i for i, _ in hits])


def _from_json(text: str, path: str, owner: str) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{owner}: {path} is not JSON: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{owner}: {path} must be a JSON array of sample names")
    return tuple(names)
