"""What is wrong with an image in a `.npy` file, by the rules of `NumpyFolder`."""

from __future__ import annotations

import io
import math
import warnings
from typing import NamedTuple

import numpy as np

from lightning_gpuaug.sources.imagefile import Problem

MAGIC = b"\x93NUMPY"
_MOST = 65_535


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
    file = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
    except Exception:  # numpy parses the header as Python, which raises nearly anything on damaged ones
        reason = f"is no array that numpy.save wrote (first bytes {data[:8].hex(' ')})"
        return ArrayFacts(problem=Problem("not an image", reason))
    if dtype != np.uint8 or len(shape) != 3 or shape[2] != 3:
        reason = f"must be uint8 (height, width, 3), is {dtype} {tuple(shape)}"
        return ArrayFacts(problem=Problem("undecodable type", reason))
    if min(shape) < 1 or max(shape) > _MOST:
        reason = f"must be 1..{_MOST} pixels wide and high, is {tuple(shape)}"
        return ArrayFacts(problem=Problem("oversized" if min(shape) > 0 else "undecodable type", reason))
    height, width, _ = shape
    there, whole = len(data) - file.tell(), math.prod(shape)
    cut = Problem("truncated", f"cut: the file ends after {there} of {whole} bytes") if there < whole else None
    return ArrayFacts(width, height, cut)
