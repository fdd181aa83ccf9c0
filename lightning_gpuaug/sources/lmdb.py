"""LMDB databases in Caffe's layout, read from the file itself: the images in them are ranges of bytes."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from lightning_gpuaug.sources.imageheader import sniff
from lightning_gpuaug.sources.index import DataFile, Indexer, ShardIndex, Skips
from lightning_gpuaug.sources.labels import Label, LabelColumn
from lightning_gpuaug.sources.names import NameList
from lightning_gpuaug.sources.protobuf import BYTES, VARINT, WireError, fields, signed
from lightning_gpuaug.sources.records import RecordSource

# The on-disk format, which has been the same since LMDB 0.9: little-endian, 64 bit.
_META = struct.Struct("<II")  # magic, version; an address and a size follow
_DATABASE = struct.Struct("<IHH5Q")  # page size (of the first), flags, depth, kinds of pages, entries, root
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_PAGE_HEADER = 16
_BRANCH, _LEAF, _OVERFLOW, _LEAF2 = 0x01, 0x02, 0x04, 0x20
_BIG_DATA, _SUB_DATABASE, _DUPLICATES = 0x01, 0x02, 0x04
_NO_PAGE = 2**64 - 1


@dataclass(frozen=True)
class LMDB(RecordSource):
    """Images in an LMDB of Caffe's `Datum` messages with encoded images, in the order of the keys.

    The label is the datum's `label`. A datum of raw pixels, or one without a label, is an error that names its key, or,
    with `missing="skip"`, left out. The database must not be written to meanwhile.

    Attributes:
        path: the database's folder (with `data.mdb` in it) or file; or a pattern, or several.
        labelled: data have labels; False for images alone (all targets are -1).
    """

    path: Sequence[str] | str | os.PathLike[str]
    labelled: bool = True

    _patterns_field: ClassVar[str] = "path"
    _in_s3: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        super().__post_init__()
        if not isinstance(self.labelled, bool):
            raise TypeError(f"LMDB.labelled must be True or False, got {self.labelled!r}")

    @property
    def _labelled(self) -> bool:
        return self.labelled

    @cached_property
    def _files(self) -> tuple[str, ...]:
        found = super()._files
        files = tuple(os.path.join(path, "data.mdb") if os.path.isdir(path) else path for path in found)
        for path, file in zip(found, files, strict=True):
            if not os.path.exists(file):
                raise FileNotFoundError(f"LMDB.path: no data.mdb in the folder {path}")
        return files

    def _indexer(self) -> Indexer:
        return partial(index_lmdb, labelled=self.labelled, missing=self.missing)

    def _index_options(self) -> tuple[str, ...]:
        return (repr(self.labelled),)


def index_lmdb(file: DataFile, data: mmap.mmap, labelled: bool, missing: str) -> ShardIndex:
    """Find the images of a database.

    Raises:
        ValueError: the file is damaged or no LMDB; or a datum breaks a rule and `missing` is "raise".
    """
    path = file.name
    skips = Skips(missing)
    rows, keys, labels = list[tuple[int, int, int]](), list[str](), list[Label | None]()
    for number, (raw_key, first, last) in enumerate(_whole(path, _entries(path, data))):
        key = raw_key.decode("utf-8", "backslashreplace").replace("\0", "\\x00")
        try:
            begin, length, label = _datum(data, first, last)
            if labelled and label is None:
                raise ValueError("is a Datum without a label (labelled=False for images alone)")
        except ValueError as error:
            skips.note(f"{path}:{key}: {error}")
            continue
        rows.append((number, begin, length))
        keys.append(key)
        labels.append(label if labelled else None)
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    column = LabelColumn.of(labels, lambda i: f"{path}:{keys[i]}")
    return ShardIndex(table[:, 1].copy(), table[:, 2].copy(), column, table[:, 0].copy(), NameList.of(keys),
                      skipped=tuple(skips.first), skipped_count=skips.count)  # fmt: skip


def _datum(data: mmap.mmap, first: int, last: int) -> tuple[int, int, int | None]:
    """First byte and length of the encoded image, and the label; None without one."""
    image: tuple[int, int] | None = None
    label: int | None = None
    encoded = 0
    shape = [0, 0, 0]
    try:
        for number, wire, x, y in fields(data, first, last):
            if number in (1, 2, 3) and wire == VARINT:
                shape[number - 1] = x
            elif number == 4 and wire == BYTES:
                image = x, y
            elif number == 5 and wire == VARINT:
                label = signed(x)
            elif number == 7 and wire == VARINT:
                encoded = x
    except WireError as error:
        raise ValueError(f"is no Datum message: {error}") from None
    if image is None:
        raise ValueError("is a Datum without data")
    begin, end = image
    if not encoded and sniff(data[begin : min(end, begin + 64)]) is None:
        raise ValueError(f"holds raw pixels ({' × '.join(map(str, shape))}); images must be encoded (Datum.encoded)")
    return begin, end - begin, label


def _whole(path: str, entries: Iterator[tuple[bytes, int, int]]) -> Iterator[tuple[bytes, int, int]]:
    """`entries`; a place outside of the file that one of them leads to is a ValueError."""
    try:
        yield from entries
    except struct.error as error:
        raise ValueError(f"{path}: is damaged or cut off: {error}") from None


def _entries(path: str, data: mmap.mmap) -> Iterator[tuple[bytes, int, int]]:
    """(key, first byte and end of the value) of each entry, in the order of the keys."""
    size, depth, entries, root = _main_database(path, data)
    if root == _NO_PAGE:
        return
    found = 0
    pages = [root]
    while pages:
        number = pages.pop()
        at = number * size
        if at + size > len(data):
            raise ValueError(f"{path}: is cut off: page {number} ends at byte {at + size}, the file has {len(data)}")
        flags, lower = struct.unpack_from("<HH", data, at + 10)
        count = (lower - _PAGE_HEADER) // 2
        if not flags & (_BRANCH | _LEAF) or flags & _LEAF2 or not 0 <= count <= size // 2 or found > entries:
            raise ValueError(f"{path}: is damaged: page {number} is no page of its tree")
        nodes = [at + pointer for pointer in struct.unpack_from(f"<{count}H", data, at + _PAGE_HEADER)]
        if flags & _BRANCH:
            children = []
            for node in nodes:
                low, high, top = struct.unpack_from("<HHH", data, node)
                children.append(low | high << 16 | top << 32)
            pages += reversed(children)
            if len(pages) > entries + depth:
                raise ValueError(f"{path}: is damaged: page {number} leads nowhere")
            continue
        for node in nodes:
            found += 1
            yield _leaf(path, data, node, size)
    if found != entries:
        raise ValueError(f"{path}: is damaged: {found} entries found, {entries} counted in its header")


def _leaf(path: str, data: mmap.mmap, node: int, size: int) -> tuple[bytes, int, int]:
    low, high, flags, key_size = struct.unpack_from("<HHHH", data, node)
    key, begin, length = data[node + 8 : node + 8 + key_size], node + 8 + key_size, low | high << 16
    if flags & (_SUB_DATABASE | _DUPLICATES):
        raise ValueError(f"{path}: has named databases or several values a key, and so is not Caffe's layout")
    if flags & _BIG_DATA:
        (page,) = struct.unpack_from("<Q", data, begin)
        begin = page * size + _PAGE_HEADER
        if begin + length <= len(data) and not struct.unpack_from("<H", data, page * size + 10)[0] & _OVERFLOW:
            raise ValueError(f"{path}: is damaged: page {page} should hold the value of {key!r}")
    if begin + length > len(data):
        raise ValueError(f"{path}: is cut off: the value of {key!r} ends at byte {begin + length} of {len(data)}")
    return key, begin, begin + length


def _main_database(path: str, data: mmap.mmap) -> tuple[int, int, int, int]:
    """Page size, and depth, entries and root page of the main database, as of the last transaction."""
    best: tuple[int, tuple[int, int, int, int]] | None = None
    page = 0
    for _ in range(2):
        at = page + _PAGE_HEADER
        if at + 24 + 2 * _DATABASE.size + 16 > len(data):
            break
        magic, version = _META.unpack_from(data, at)
        if magic != _MAGIC:
            break
        if version != _VERSION:
            raise ValueError(f"{path}: LMDB format {_VERSION} is read, this is {version}")
        size = _DATABASE.unpack_from(data, at + 24)[0]
        if size < 256 or size & (size - 1):
            raise ValueError(f"{path}: is damaged: pages of {size} bytes")
        _, flags, depth, _, _, _, entries, root = _DATABASE.unpack_from(data, at + 24 + _DATABASE.size)
        if flags & _DUPLICATES:
            raise ValueError(f"{path}: has several values a key, and so is not Caffe's layout")
        (transaction,) = struct.unpack_from("<Q", data, at + 24 + 2 * _DATABASE.size + 8)
        if best is None or transaction > best[0]:
            best = transaction, (size, depth, entries, root)
        page = size
    if best is None:
        raise ValueError(f"{path}: is no LMDB database")
    return best[1]
