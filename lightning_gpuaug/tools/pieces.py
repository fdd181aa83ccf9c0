"""Where the bytes of samples are: whole files, or parts of shards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

#: What a file may weigh before it is called oversized without being read.
MAX_BYTES = 2**30


class Piece(NamedTuple):
    """The bytes of one sample.

    Attributes:
        path: the file.
        offset: where the sample begins in it.
        length: how many bytes it has; -1 for all of the file.
        cuts: (first byte, bytes) of what lies in it and does not belong to the sample, in order.
    """

    path: str
    offset: int = 0
    length: int = -1
    cuts: tuple[tuple[int, int], ...] = ()


@dataclass
class PieceReader:
    """Reads pieces; a shard stays open while its pieces follow each other."""

    _path: str = ""
    _file: int = -1

    def size(self, piece: Piece) -> int:
        """Bytes of the piece. Raises OSError."""
        if piece.length < 0:
            return os.stat(piece.path).st_size
        return piece.length - sum(count for _, count in piece.cuts)

    def read(self, piece: Piece) -> bytes:
        """The bytes of the piece, fewer if the file ends before.

        Raises:
            OSError: the file cannot be read.
        """
        if piece.length < 0:
            with open(piece.path, "rb", buffering=0) as file:
                return file.read()
        if piece.path != self._path:
            self.close()
            self._file, self._path = os.open(piece.path, os.O_RDONLY), piece.path
        data = os.pread(self._file, piece.length, piece.offset)
        begins = [0, *(at + count for at, count in piece.cuts)]
        ends = [*(at for at, _ in piece.cuts), len(data)]
        return b"".join(data[begin:end] for begin, end in zip(begins, ends, strict=True)) if piece.cuts else data

    def close(self) -> None:
        """Close the shard that is open."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._path = -1, ""
