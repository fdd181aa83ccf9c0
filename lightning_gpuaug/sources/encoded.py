"""Encoded images of a batch in memory, and reading them ahead."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Targets

if TYPE_CHECKING:
    import torch

Indices = npt.NDArray[np.int64]

#: Batches read at the same time, each by `READERS` threads.
BATCHES = 2
READERS = 8


@dataclass(frozen=True)
class Encoded:
    """The images of a batch as bytes, one after the other.

    Attributes:
        data: uint8 (B,), on the CPU.
        start: where each image begins, int64 (N,).
        length: its bytes, int64 (N,); 0 where it could not be read.
        problems: row to reason, where it could not.
        sizes: int32 (N, 2) height and width, when the bytes are pixels (rows × width × 3) rather than a file.
        rows: int32 (N, 2) the first of the image's rows that is there, and how many are; None for all.
        targets: of the rows, when the source knows them only now.
    """

    data: torch.Tensor
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    problems: dict[int, str] = field(default_factory=dict)
    sizes: npt.NDArray[np.int32] | None = None
    targets: Targets | None = None
    rows: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.start)

    def row(self, i: int) -> Encoded:
        """The batch of one image of this batch."""
        part = slice(i, i + 1)
        return Encoded(
            self.data,
            self.start[part],
            self.length[part],
            {0: self.problems[i]} if i in self.problems else {},
            None if self.sizes is None else self.sizes[part],
            None if self.targets is None else self.targets[part],
            None if self.rows is None else self.rows[part],
        )

    def content(self, i: int) -> bytes:
        """The bytes of an image."""
        return self.data[int(self.start[i]) : int(self.start[i] + self.length[i])].numpy().tobytes()


#: From the sizes of a batch's images, int32 (N, 2), to what is wanted of each: first row and how many, int32 (N, 2).
WantedRows = Callable[[npt.NDArray[np.int32]], npt.NDArray[np.int32]]


class Reader(Protocol):
    """Reads the encoded images of a source, several batches at the same time."""

    def begin(self, indices: Indices, pinned: bool, wanted: WantedRows | None = None) -> Future[Encoded]:
        """Begin to read the images of samples.

        Args:
            indices: (N,) samples.
            pinned: into page-locked memory.
            wanted: what will be used of each image: a reader of pixels may leave out the other rows.
        """

    def close(self) -> None:
        """Stop the threads; the reader can be used again afterwards."""


@dataclass(frozen=True)
class Ranges:
    """Where the images of N samples are.

    Attributes:
        paths: data files as zero-padded bytes, each with a zero byte at its end.
        file: which of `paths`, int32 (N,).
        offset: first byte, int64 (N,).
        length: bytes, int64 (N,).
        cuts: sample to (first byte, bytes) pairs of its range that are not part of the image.
        states: size and time of change (ns) of each of `paths`, int64 (F, 2), without which the ranges mean nothing.
    """

    paths: npt.NDArray[np.bytes_]
    file: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    cuts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    states: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

    def check(self, files: npt.NDArray[np.integer]) -> None:
        """Raise RuntimeError naming the first of `files` that is not the one that was indexed."""
        found = file_states(self.paths[files])
        changed = (found != self.states[files]).any(axis=1)
        changed &= found[:, 0] != -errno.ENOENT  # reading tells
        if changed.any():
            path = os.fsdecode(bytes(self.paths[files[changed.argmax()]]))
            raise RuntimeError(
                f"{path}: was changed since this run indexed it, so that its labels may be others; start again"
            )


class Background:
    """Threads that read batches, started when the first one is asked for."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, pinned: bool, read: Callable[..., Encoded], *args: object) -> Future[Encoded]:
        """Call `read` with `args` in a thread, if `pinned` under the caller's CUDA device, as its memory will be."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(BATCHES, thread_name_prefix="gpuaug-read")
        return self._pool.submit(_under_this_device(read) if pinned else read, *args)

    def close(self) -> None:
        """Stop them."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _under_this_device(read: Callable[..., Encoded]) -> Callable[..., Encoded]:
    import torch

    device = torch.cuda.current_device()

    def call(*args: object) -> Encoded:
        with torch.cuda.device(device):
            return read(*args)

    return call


class RangeReader:
    """Reads images that are ranges of files.

    Args:
        ranges: where they are.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._background = Background()

    @property
    def ranges(self) -> Ranges:
        """Where the images are."""
        return self._ranges

    def begin(self, indices: Indices, pinned: bool, wanted: WantedRows | None = None) -> Future[Encoded]:
        """Begin to read; see `Reader`."""
        return self._background.submit(pinned, self._read, indices, pinned)

    def close(self) -> None:
        """Stop the threads."""
        self._background.close()

    def _read(self, indices: Indices, pinned: bool) -> Encoded:
        ranges = self._ranges
        length = ranges.length[indices]
        data = new_buffer(int(length.sum()), pinned)
        files, file = np.unique(ranges.file[indices], return_inverse=True)
        start, got = read_into(data, ranges.paths[files], file.reshape(-1), ranges.offset[indices], length)
        ranges.check(files)  # now, for a file may change while it is read
        problems = read_problems(got, length)
        length = np.where(got == length, length, 0)
        for row, index in enumerate(indices.tolist() if ranges.cuts else ()):
            if index in ranges.cuts and length[row]:
                length[row] = _close_gaps(data.numpy(), int(start[row]), int(length[row]), ranges.cuts[index])
        return Encoded(data, start, length, problems)


def new_buffer(size: int, pinned: bool) -> torch.Tensor:
    """`size` bytes of memory, page-locked if `pinned`."""
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)


def read_into(
    data: torch.Tensor,
    paths: npt.NDArray[np.bytes_],
    file: npt.NDArray[np.integer],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Read ranges end to end into `data`: where each begins in it, and what `ops.read_ranges` says of each."""
    start = np.cumsum(length) - length
    return start, read_at(data, start, paths, file, offset, length)


def read_at(
    data: torch.Tensor,
    start: npt.NDArray[np.int64],
    paths: npt.NDArray[np.bytes_],
    file: npt.NDArray[np.integer],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Read ranges into `data`, each to its `start`; what `ops.read_ranges` says of each."""
    import torch

    from lightning_gpuaug import ops

    at, *tensors = (torch.from_numpy(np.array(a, dtype=np.int64)) for a in (start, file, offset, length))
    got: npt.NDArray[np.int64] = ops.read_ranges(
        data, at, torch.from_numpy(path_bytes(paths)), *tensors, threads=READERS
    ).numpy()
    return got


def file_states(paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.int64]:
    """(F, 2) what `ops.file_states` says of files: bytes, or minus the error number; and time of change, ns."""
    import torch

    from lightning_gpuaug import ops

    states: npt.NDArray[np.int64] = ops.file_states(torch.from_numpy(path_bytes(paths))).numpy()
    return states


def read_problems(got: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> dict[int, str]:
    """Row to reason, of what was not read in full."""
    return {
        row: f"unreadable: {os.strerror(-int(got[row])).lower()}"
        if got[row] < 0
        else f"cut: the file ends after {got[row]} of {length[row]} bytes"
        for row in np.flatnonzero(got != length).tolist()
    }


def path_bytes(paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint8]:
    """(F, L) uint8 view of (F,) file names, each row ending in a zero byte."""
    return np.ascontiguousarray(paths).view(np.uint8).reshape(len(paths), paths.dtype.itemsize)


def fixed_paths(paths: Sequence[str]) -> npt.NDArray[np.bytes_]:
    """`paths` as bytes of one length, with a zero byte at the end of each."""
    names = [os.fsencode(path) for path in paths]
    return np.array(names, dtype=f"S{max(map(len, names)) + 1}")


def _close_gaps(data: npt.NDArray[np.uint8], start: int, length: int, cuts: list[tuple[int, int]]) -> int:
    """Move what follows each cut over it; the length that is left."""
    for at, count in reversed(cuts):
        data[start + at : start + length - count] = data[start + at + count : start + length].copy()
        length -= count
    return length
