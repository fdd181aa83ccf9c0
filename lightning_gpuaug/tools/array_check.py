"""What is wrong with an image in a `.npy` file, by the rules of `NumpyFolder`."""

from __future__ import annotations

import warnings
from typing import NamedTuple

from lightning_gpuaug.sources.arrayheader import header_of, parse_header
from lightning_gpuaug.sources.imagefile import Problem


class ArrayFacts(NamedTuple):
    """What a `.npy` file says of itself.

    Attributes:
        width: pixels; 0 where it is no image.
        height: pixels; 0 where it is no image.
        problem: what keeps it from being used.
    """

    width: int = 0
    height: int = 0
    problem: Problem | None = None


def array_facts(data: bytes) -> ArrayFacts:
    """Size of the image in a `.npy` file, or what is wrong: it must be uint8 (height, width, 3), and whole.

    The pixels themselves are not looked at, nor what follows them.
    """
    if not data:
        return ArrayFacts(problem=Problem("empty", "empty file"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of headers that Python 2 wrote
        found = parse_header(header_of(data))
    if isinstance(found, Problem):
        return ArrayFacts(problem=found)
    return ArrayFacts(found.width, found.height, found.cut_off(len(data)))
