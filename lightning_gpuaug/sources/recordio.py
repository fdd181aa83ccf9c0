"""MXNet's RecordIO files of packed images."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from lightning_gpuaug.sources.index import DataFile, Indexer, ShardIndex, Skips
from lightning_gpuaug.sources.labels import Label, LabelColumn
from lightning_gpuaug.sources.names import NameList
from lightning_gpuaug.sources.records import RecordSource
from lightning_gpuaug.sources.shards import expand, refuse_folders, validated_paths

_MAGIC = struct.pack("<I", 0xCED7230A)
_HEADER = struct.Struct("<IfQQ")  # IRHeader: number of labels (0: the one that follows), label, id, id2
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


@dataclass(frozen=True)
class RecordIO(RecordSource):
    """Images in MXNet's `.rec` files, as `im2rec` and `recordio.pack_img` write them.

    A record's label is the one number of its header, which must be whole; or, with `multilabel`, the header's vector
    of numbers, one a class. Records are named by their number in the file, or by their key in `idx`.

    Attributes:
        rec: data files: a path, a pattern (`*`, `?`, `[…]`, `{a,b}`, `{00..12}`), or several; `s3://` with braces
            alone.
        idx: their `.idx` files in the same order, which are not needed: they are checked against the data, and give
            the records their order and their names.
    """

    rec: Sequence[str] | str | os.PathLike[str]
    idx: Sequence[str] | str | os.PathLike[str] | None = None

    _patterns_field: ClassVar[str] = "rec"
    _usual_names: ClassVar[str] = "*.rec"

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        super().__post_init__()
        if self.idx is not None:
            object.__setattr__(self, "idx", validated_paths(self.idx, "RecordIO.idx"))

    @cached_property
    def _idx_files(self) -> tuple[str, ...]:
        if self.idx is None:
            return ()
        files = expand(validated_paths(self.idx, "RecordIO.idx"), "RecordIO.idx")
        refuse_folders(files, "RecordIO.idx", "*.idx")
        if len(files) != len(self._files):
            raise ValueError(
                f"RecordIO.idx must name one file for each of rec, got {len(files)} for {len(self._files)}"
            )
        return files

    def _beside(self) -> Sequence[str]:
        return self._idx_files

    def _indexer(self) -> Indexer:
        return partial(index_recordio, idx=dict(zip(self._files, self._idx_files, strict=False)), missing=self.missing)

    def _index_options(self) -> tuple[str, ...]:
        return ()


def index_recordio(file: DataFile, data: mmap.mmap, idx: Mapping[str, str], missing: str) -> ShardIndex:
    """Find the records of a file; `idx` names each data file's own index for messages, which is read if there is one.

    Raises:
        ValueError: the file is damaged or does not belong to its index; or a record breaks a rule and `missing` is
            "raise".
    """
    path = file.name
    skips = Skips(missing)
    begins = list[int]()
    good = dict[int, tuple[int, int, int, list[int]]]()  # record → number, image's first byte and length, cuts
    labels = dict[int, Label]()
    for number, (begin, parts) in enumerate(_records(path, data)):
        begins.append(begin)
        (first, count), where = parts[0], f"{path}: record {number}"
        if count < _HEADER.size:
            skips.note(f"{where}: is {count} bytes long, its header alone needs {_HEADER.size}")
            continue
        flag, label, _, _ = _HEADER.unpack_from(data, first)
        image = first + _HEADER.size + 4 * flag
        if image > first + count:
            skips.note(f"{where}: claims {flag} labels in {count} bytes")
            continue
        last_start, last_count = parts[-1]
        end = last_start + last_count
        if image == end:
            skips.note(f"{where}: holds no image")
            continue
        # Where the image holds the magic number the writer cut the record; 4 bytes of a part's header lie in between.
        good[number] = number, image, end - image, [start - 4 - image for start, _ in parts[1:]]
        labels[number] = list(struct.unpack_from(f"<{flag}f", data, first + _HEADER.size)) if flag else [label]
    keys, order = None, list(good)
    if file.beside:
        named = _read_idx(path, DataFile(idx[path], file.beside), begins)
        order = [number for _, number in named if number in good]
        keys = NameList.of(key for key, number in named if number in good)
    rows = [good[number] for number in order]
    table = np.array([row[:3] for row in rows], dtype=np.int64).reshape(-1, 3)
    cuts = np.array([(i, at, 4) for i, row in enumerate(rows) for at in row[3]], dtype=np.int64).reshape(-1, 3)
    column = LabelColumn.of((labels[number] for number in order), lambda i: f"{path}: record {order[i]}")
    return ShardIndex(table[:, 1].copy(), table[:, 2].copy(), column, table[:, 0].copy(), keys, cuts,
                      tuple(skips.first), skips.count)  # fmt: skip


def _records(path: str, data: mmap.mmap) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """(first byte, parts) of each record; a part is the first byte and the length of its content."""
    at, end, number = 0, len(data), 0
    begin, parts = 0, list[tuple[int, int]]()
    while at < end:
        if data[at : at + 4] != _MAGIC:
            what = "no RecordIO file" if at == 0 else f"damaged: no record at byte {at}, behind record {number - 1}"
            raise ValueError(f"{path}: is {what}")
        if at + 8 > end:
            raise ValueError(f"{path}: is cut off in record {number}, at byte {end}")
        (word,) = struct.unpack_from("<I", data, at + 4)
        kind, length = word >> 29, word & 0x1FFFFFFF
        start, at = at + 8, at + 8 + (length + 3 & ~3)
        if at > end:
            raise ValueError(f"{path}: is cut off in record {number}, which ends at byte {at}; the file has {end}")
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or (kind in (_WHOLE, _FIRST)) != (not parts):
            raise ValueError(f"{path}: is damaged: record {number} has parts out of order (byte {start - 8})")
        if not parts:
            begin = start - 8
        parts.append((start, length))
        if kind in (_WHOLE, _LAST):
            yield begin, parts
            number, parts = number + 1, []
    if parts:
        raise ValueError(f"{path}: is cut off in record {number}, at byte {end}")


def _read_idx(path: str, idx_file: DataFile, begins: list[int]) -> list[tuple[str, int]]:
    """(key, number of the record) of each line."""
    idx = idx_file.name
    numbers = {begin: number for number, begin in enumerate(begins)}
    named: list[tuple[str, int]] = []
    lines: dict[str, int] = {}  # of the keys
    with open(idx_file.path, "rb") as file:
        if file.read(len(_MAGIC)) == _MAGIC:
            raise ValueError(f"{idx}: must be lines of a key, a tab and a byte, is a RecordIO file itself")
        file.seek(0)
        for line, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            key, offset = _key_and_byte(raw, f"{idx}:{line}")
            if offset not in numbers:
                raise ValueError(f"{idx}:{line}: {path} has no record at byte {offset}: they do not belong together")
            if (before := lines.setdefault(key, line)) != line:
                raise ValueError(f"{idx}:{line}: keys must be distinct, got {key!r} in line {before} too")
            named.append((key, numbers[offset]))
    if len({number for _, number in named}) != len(begins) or len(named) != len(begins):
        raise ValueError(f"{idx}: lists {len(named)} records, {path} has {len(begins)}: they do not belong together")
    return named


def _key_and_byte(line: bytes, where: str) -> tuple[str, int]:
    """What a line of an index says."""
    try:
        key, tab, offset = line.decode("utf-8").rstrip("\r\n").partition("\t")
    except UnicodeDecodeError:
        raise ValueError(f"{where}: must be text in UTF-8: a key, a tab and a byte, got {line[:20]!r}") from None
    if not tab or not (offset.isascii() and offset.isdecimal() and len(offset) <= 20) or "\0" in key:
        raise ValueError(f"{where}: must be a key, a tab and a byte, got {line.decode().strip()[:80]!r}")
    return key, int(offset)
