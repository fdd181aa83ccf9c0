"""Millions of file names in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

S3 = "s3://"
ABSOLUTE = ("/", S3)
"""What names begin with that stand below no folder."""


class NameList(Sequence[str]):
    """Read-only strings in one UTF-8 block: their bytes and 8 more each, where Python strings take about 80 more.

    Made of blocks in which every name ends with a NUL (no file name can hold one). `prefix` is put before each name
    that is not an absolute path or an `s3://` address, so that names and paths of a data set share one block.
    """

    def __init__(self, blob: bytes, prefix: str = "", ends: np.ndarray | None = None) -> None:
        """`blob`: names, each followed by a NUL; `ends`: the NULs' positions, when they are known already."""
        self._blob = blob
        self._prefix = prefix
        self._ends = np.flatnonzero(np.frombuffer(blob, dtype=np.uint8) == 0) if ends is None else ends

    @classmethod
    def of(cls, names: Iterable[str]) -> NameList:
        """Pack `names`. Raises ValueError for one that is not Unicode text or holds a NUL."""
        return cls(pack(names))

    def with_prefix(self, prefix: str) -> NameList:
        """The same names under `prefix`, sharing the memory."""
        return NameList(self._blob, prefix, self._ends)

    @property
    def blob(self) -> bytes:
        """The names without the prefix, a NUL after each."""
        return self._blob

    def __len__(self) -> int:
        """Number of names."""
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One name, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"sample index must be in 0..{len(self) - 1}, got {index}")
        start = self._ends[i - 1] + 1 if i else 0
        return self._join(self._blob[start : self._ends[i]].decode("utf-8"))

    def __iter__(self) -> Iterator[str]:
        """All names, several times faster than by index."""
        names = self._blob.decode("utf-8").split("\0")
        names.pop()  # what follows the last NUL: nothing
        return map(self._join, names) if self._prefix else iter(names)

    def _join(self, name: str) -> str:
        return name if name.startswith(ABSOLUTE) else self._prefix + name


def pack(names: Iterable[str]) -> bytes:
    """`names` as UTF-8, a NUL after each; one that holds a NUL itself is a ValueError."""
    names = list(names)
    text = "\0".join([*names, ""])
    if text.count("\0") != len(names):
        raise ValueError(f"a name must not hold a NUL, got {next(name for name in names if chr(0) in name)!r}")
    return text.encode("utf-8")


def is_utf8(name: str) -> bool:
    """Whether a file's name, as Python has it, is UTF-8 on the disk."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
