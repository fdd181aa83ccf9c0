"""A folder of class sub-folders with images as NumPy arrays: pixels that need no decoding."""

from __future__ import annotations

import io
import os
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Feed
from lightning_gpuaug.sources.encoded import (
    Background,
    Encoded,
    Indices,
    WantedRows,
    file_states,
    fixed_paths,
    new_buffer,
    read_into,
    read_problems,
)
from lightning_gpuaug.sources.folder import ImageFolder

_HEAD = 256  # bytes of a file that hold its header, nearly always
_LONGEST = 65536
_MAGIC = b"\x93NUMPY"
_PLAIN = re.compile(rb"\{'descr': '\|u1', 'fortran_order': (False|True), 'shape': \((\d+), (\d+), 3\), \} *\n")
"""The header of an image as `numpy.save` writes it. What else NumPy understands it reads through `ast`, which fails in
CPython 3.11 now and then when two threads use it at the same time."""
_ONE_AT_A_TIME = threading.Lock()


class _Header(NamedTuple):
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


@dataclass(frozen=True)
class NumpyFolder(ImageFolder):
    """`root/<class>/**/<image>.npy`: RGB pixels as `numpy.save` writes them, uint8 (height, width, 3).

    Everything else is as with `ImageFolder`. A file with an array of another type or shape is a bad image. In C order,
    as arrays are unless they were made otherwise, training reads the rows of its window alone; a file in Fortran order
    is read whole and turned.
    """

    _extensions: ClassVar[frozenset[str]] = frozenset({".npy"})

    @property
    def feed(self) -> Feed:
        """The reader reads pixels."""
        return "pixels"

    def reader(self) -> NumpyReader:
        """Reads the arrays."""
        return NumpyReader(fixed_paths(self.paths))


class NumpyReader:
    """Reads the pixels of `.npy` files. A file's header is read when it first comes up, and kept.

    Args:
        paths: of the files, zero-padded.
    """

    def __init__(self, paths: npt.NDArray[np.bytes_]) -> None:
        self._paths = paths
        self._offset = np.zeros(len(paths), dtype=np.int64)  # of the pixels; 0: not known yet
        self._sizes = np.zeros((len(paths), 2), dtype=np.int32)
        self._fortran = np.zeros(len(paths), dtype=np.bool_)
        self._background = Background()
        self._parsed: dict[bytes, _Header | str] = {}

    def begin(self, indices: Indices, pinned: bool, wanted: WantedRows | None = None) -> Future[Encoded]:
        """Begin to read the pixels of samples; see `Reader`."""
        return self._background.submit(pinned, self._read, indices, pinned, wanted)

    def close(self) -> None:
        """Stop the threads."""
        self._background.close()

    def _read(self, indices: Indices, pinned: bool, wanted: WantedRows | None) -> Encoded:
        problems = self._learn(indices[self._offset[indices] == 0])
        sizes = self._sizes[indices]
        rows = np.stack([np.zeros_like(sizes[:, 0]), sizes[:, 0]], axis=1)
        if wanted is not None:
            rows = np.where(sizes[:, :1] > 0, wanted(sizes), 0).astype(np.int32)
        row_bytes = sizes[:, 1].astype(np.int64) * 3
        length = rows[:, 1] * row_bytes
        fortran = self._fortran[indices]
        begin = self._offset[indices] + np.where(fortran, 0, rows[:, 0] * row_bytes)
        read = np.where(fortran, sizes[:, 0] * row_bytes, length)
        data = new_buffer(int(read.sum()), pinned)
        start, got = read_into(data, self._paths[indices], np.arange(len(indices)), begin, read)
        by_row = {row: problems[index] for row, index in enumerate(indices.tolist()) if index in problems}
        by_row |= read_problems(got, read)
        for row in np.flatnonzero(fortran & (got == read)).tolist():
            _turn(data.numpy()[start[row] : start[row] + read[row]], *sizes[row].tolist())
        start = start + np.where(fortran, rows[:, 0] * row_bytes, 0)
        failed = list(by_row)
        sizes[failed] = rows[failed] = 0
        length[failed] = 0
        return Encoded(data, start, length, by_row, sizes, rows=None if wanted is None else rows)

    def _learn(self, unknown: Indices) -> dict[int, str]:
        """Read headers; sample to reason, where there is none that can be used."""
        if not len(unknown):
            return {}
        import torch

        heads = torch.zeros(len(unknown) * _HEAD, dtype=torch.uint8)
        wanted = np.full(len(unknown), _HEAD, dtype=np.int64)
        _, got = read_into(heads, self._paths[unknown], np.arange(len(unknown)), np.zeros_like(unknown), wanted)
        file_bytes = file_states(self._paths[unknown])[:, 0]
        problems: dict[int, str] = {}
        for row, index in enumerate(unknown.tolist()):
            if got[row] < 0:
                problems[index] = f"unreadable: {os.strerror(-int(got[row])).lower()}"
                continue
            found = self._header(heads[row * _HEAD : row * _HEAD + int(got[row])].numpy().tobytes(), index)
            if isinstance(found, str):
                problems[index] = found
                continue
            there, whole = int(file_bytes[row]) - found.offset, found.height * found.width * 3
            if there < whole:  # which is not seen where the rows that are wanted are there
                problems[index] = f"cut: the file ends after {there} of {whole} bytes"
            else:
                self._sizes[index] = found.height, found.width
                self._fortran[index] = found.fortran
                self._offset[index] = found.offset  # the last: other threads look at it
        return problems

    def _header(self, head: bytes, index: int) -> _Header | str:
        """What the first bytes of a file say, or what is wrong."""
        end = _header_end(head)
        if end > len(head) == _HEAD:  # a very long one
            try:
                with open(os.fsdecode(bytes(self._paths[index])), "rb") as file:
                    head = file.read(min(end, _LONGEST))
            except OSError as error:
                return f"unreadable: {str(error.strerror).lower()}"
        key = head[:end] if end else head[:16]
        if key not in self._parsed:
            if len(self._parsed) > 4096:
                self._parsed.clear()
            self._parsed[key] = _parse(key)
        return self._parsed[key]


def _turn(pixels: npt.NDArray[np.uint8], height: int, width: int) -> None:
    """Pixels in Fortran order, in C order from now on."""
    pixels[:] = pixels.reshape(3, width, height).transpose(2, 1, 0).reshape(-1)


def _header_end(head: bytes) -> int:
    """Where the header ends; 0 if the bytes do not say."""
    if head[:6] != _MAGIC or len(head) < 12:
        return 0
    return 10 + int.from_bytes(head[8:10], "little") if head[6] == 1 else 12 + int.from_bytes(head[8:12], "little")


def _parse(header: bytes) -> _Header | str:
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
        if header[:6] == _MAGIC:
            return f"is damaged: NumPy cannot read its header {header[begin : begin + 80]!r}"
        return f"is no array that numpy.save wrote (first bytes {header[:8].hex(' ')})"
    if dtype != np.uint8 or len(shape) != 3 or shape[2] != 3:
        return f"must be uint8 (height, width, 3), is {dtype} {tuple(shape)}"
    return _within_limits(shape, file.tell(), fortran)


def _within_limits(shape: tuple[int, ...], begin: int, fortran: bool) -> _Header | str:
    """The header of an image of that size, if DALI takes one."""
    if min(shape) < 1 or max(shape) > 65_535:
        return f"must be 1..65535 pixels wide and high, is {tuple(shape)}"
    return _Header(int(shape[0]), int(shape[1]), begin, fortran)
