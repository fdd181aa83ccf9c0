"""A folder of class sub-folders with images as NumPy arrays: pixels that need no decoding."""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.arrayheader import LONGEST, ArrayHeader, header_end, header_of, parse_header
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
from lightning_gpuaug.sources.imagefile import Problem, unreadable

_HEAD = 256  # bytes of a file that hold its header, nearly always


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
        self._parsed: dict[bytes, ArrayHeader | Problem] = {}

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
            if isinstance(found, Problem):
                problems[index] = found.reason
            elif cut := found.cut_off(int(file_bytes[row])):  # not seen where the rows that are wanted are there
                problems[index] = cut.reason
            else:
                self._sizes[index] = found.height, found.width
                self._fortran[index] = found.fortran
                self._offset[index] = found.offset  # the last: other threads look at it
        return problems

    def _header(self, head: bytes, index: int) -> ArrayHeader | Problem:
        """What the first bytes of a file say, or what is wrong."""
        end = header_end(head)
        if end > len(head) == _HEAD:  # a very long one
            try:
                with open(os.fsdecode(bytes(self._paths[index])), "rb") as file:
                    head = file.read(min(end, LONGEST))
            except OSError as error:
                return unreadable(error)
        key = header_of(head)
        if key not in self._parsed:
            if len(self._parsed) > 4096:
                self._parsed.clear()
            self._parsed[key] = parse_header(key)
        return self._parsed[key]


def _turn(pixels: npt.NDArray[np.uint8], height: int, width: int) -> None:
    """Pixels in Fortran order, in C order from now on."""
    pixels[:] = pixels.reshape(3, width, height).transpose(2, 1, 0).reshape(-1)
