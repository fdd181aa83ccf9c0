"""Headers of `.npy` files that hold an image."""

from __future__ import annotations

import io
import re
import threading
from typing import NamedTuple

import numpy as np

from lightning_gpuaug.sources.imagefile import Problem

MAGIC = b"\x93NUMPY"
LONGEST = 65536
"""Bytes of a header that are looked at: more than NumPy takes."""
_PLAIN = re.compile(rb"\{'descr': '\|u1', 'fortran_order': (False|True), 'shape': \((\d+), (\d+), 3\), \} *\n")
"""The header of an image as `numpy.save` writes it. What else NumPy understands it reads through `ast`, which fails in
CPython 3.11 now and then when two threads use it at the same time."""
_ONE_AT_A_TIME = threading.Lock()


class ArrayHeader(NamedTuple):
    """What the header of an image says.

    Attributes:
        height: in pixels.
        width: in pixels.
        offset: first byte of the pixels.
        fortran: the first index runs fastest, so that no row lies in one piece.
    """

    height: int
    width: int
    offset: int
    fortran: bool

    def cut_off(self, file_bytes: int) -> Problem | None:
        """What is wrong with a file of this header that ends after `file_bytes`."""
        there, whole = file_bytes - self.offset, self.height * self.width * 3
        return Problem("truncated", f"cut: the file ends after {there} of {whole} bytes") if there < whole else None


def header_of(head: bytes) -> bytes:
    """The header that `head`, the first bytes of a file, begins with; or as much as tells that there is none."""
    return head[: header_end(head) or 16]


def header_end(head: bytes) -> int:
    """Where the header ends, which may be behind `head`; 0 if the bytes do not say."""
    if head[:6] != MAGIC or len(head) < 12:
        return 0
    return 10 + int.from_bytes(head[8:10], "little") if head[6] == 1 else 12 + int.from_bytes(head[8:12], "little")


def parse_header(header: bytes) -> ArrayHeader | Problem:
    """What a header (`header_of`) says, or why the file is no image: it must be uint8 (height, width, 3)."""
    begin = 10 if header[6:7] == b"\1" else 12
    plain = _PLAIN.fullmatch(header, begin)
    if plain is not None:
        return _within_limits((int(plain[2]), int(plain[3]), 3), len(header), plain[1] == b"True")
    file = io.BytesIO(header)
    try:
        with _ONE_AT_A_TIME:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
    except SystemError:  # CPython's, see `_PLAIN`: it says nothing of the file
        raise
    except Exception:  # NumPy lets through whatever tokenize, ast and dtype raise
        if header[:6] == MAGIC:
            reason = f"is damaged: NumPy cannot read its header {header[begin : begin + 80]!r}"
        else:
            reason = f"is no array that numpy.save wrote (first bytes {header[:8].hex(' ')})"
        return Problem("not an image", reason)
    if dtype != np.uint8 or len(shape) != 3 or shape[2] != 3:
        return Problem("undecodable type", f"must be uint8 (height, width, 3), is {dtype} {tuple(shape)}")
    return _within_limits(shape, file.tell(), fortran)


def _within_limits(shape: tuple[int, ...], offset: int, fortran: bool) -> ArrayHeader | Problem:
    """The header of an image of that size, if DALI takes one."""
    if min(shape) < 1 or max(shape) > 65_535:
        reason = f"must be 1..65535 pixels wide and high, is {tuple(shape)}"
        return Problem("oversized" if min(shape) > 0 else "undecodable type", reason)
    return ArrayHeader(int(shape[0]), int(shape[1]), offset, fortran)
