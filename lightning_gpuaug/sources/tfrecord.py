"""TFRecord files of `tf.train.Example`, without TensorFlow."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.encoded import Indices
from lightning_gpuaug.sources.index import DataFile, Indexer, ShardIndex, Skips
from lightning_gpuaug.sources.labels import Label, LabelColumn
from lightning_gpuaug.sources.protobuf import BYTES, FIXED32, VARINT, WireError, fields, floats, signed, varints
from lightning_gpuaug.sources.records import RecordSource

Checksums = Literal["all", "lengths"]
_KINDS = {1: "bytes", 2: "float", 3: "int64"}
_FRAME, _CHECKSUM = 12, 4  # bytes before a record's data (its length, and that one's checksum) and behind it
_BLOCK = 64 << 20  # bytes read at a time


@dataclass(frozen=True)
class TFRecord(RecordSource):
    """Images in TFRecord files of `tf.train.Example` messages.

    A record is named by its file and its number in it, from 0. The label is an `int64_list` (a class number), a
    `bytes_list` (a class name in UTF-8), or, with `multilabel`, either with any number of values, or a `float_list`
    with a number for each class. A record in which a feature is absent, of another kind or of another count is an
    error that lists the features there are, or, with `missing="skip"`, left out.

    Attributes:
        paths: files: a path, a pattern (`*`, `?`, `[…]`, `{a,b}`, `{00..12}`), or several; `s3://` with braces alone.
        image: name of the feature with the encoded image.
        label: name of the feature with the label; None for images alone (all targets are -1).
        label_offset: added to `int64` labels: -1 where the files count classes from 1.
        checksums: "all" checks every byte while indexing; "lengths" leaves the images and labels unread as far as
            possible, so that a first start over a network is quicker.
    """

    # Of the records; a default only because it takes the place of a property. Nothing at all is refused.
    paths: Sequence[str] | str | os.PathLike[str] = ()  # type: ignore[assignment]
    image: str = "image/encoded"
    label: str | None = "image/class/label"
    label_offset: int = 0
    checksums: Checksums = "all"

    _patterns_field: ClassVar[str] = "paths"
    _usual_names: ClassVar[str] = "*.tfrecord"

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        super().__post_init__()
        for name in ("image", "label"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and not (name == "label" and value is None):
                raise TypeError(f"TFRecord.{name} must be the name of a feature, got {value!r}")
        if self.label == self.image:
            raise ValueError(f"TFRecord.label must be another feature than the image's, got {self.label!r}")
        if not isinstance(self.label_offset, int):
            raise TypeError(f"TFRecord.label_offset must be a whole number, got {self.label_offset!r}")
        if self.label_offset and self.labels == "name":
            raise ValueError(f'TFRecord.label_offset must be 0 with labels="name", got {self.label_offset}')
        if self.checksums not in ("all", "lengths"):
            raise ValueError(f'TFRecord.checksums must be "all" or "lengths", got {self.checksums!r}')

    @property
    def _offset(self) -> int:
        return self.label_offset

    @property
    def _labelled(self) -> bool:
        return self.label is not None

    def _indexer(self) -> Indexer:
        return partial(
            index_tfrecord,
            image=self.image,
            label=self.label,
            multilabel=self.multilabel,
            missing=self.missing,
            checksums=self.checksums,
        )

    def _index_options(self) -> tuple[str, ...]:
        return self.image, repr(self.label), repr(self.multilabel), self.checksums


def index_tfrecord(
    file: DataFile,
    data: mmap.mmap,
    image: str,
    label: str | None,
    multilabel: bool,
    missing: str,
    checksums: Checksums,
) -> ShardIndex:
    """Find the records of a file.

    Raises:
        ValueError: the file is damaged; or a record breaks a rule and `missing` is "raise".
    """
    path = file.name
    begins, lengths = _frames(path, data)
    skips = Skips(missing)
    damaged = _damaged(file, begins, lengths) if checksums == "all" else np.zeros(len(begins), dtype=np.bool_)
    wanted = {image.encode(): 0} if label is None else {image.encode(): 0, label.encode(): 1}
    rows: list[tuple[int, int, int]] = []
    labels: list[Label | None] = []
    for number, (begin, length) in enumerate(zip(begins.tolist(), lengths.tolist(), strict=True)):
        try:
            if damaged[number]:
                raise WireError("its data does not have the checksum that is stored with it")
            found = _features(data, begin, begin + length, wanted)
            where = _image_of(data, found[0], image)
            values = None if label is None else _label_of(data, found[1], label)
            if values is not None and len(values) != 1 and not multilabel:
                rule = "must hold one value (multilabel=True for several)"
                raise _FeatureError(f"feature {label!r} {rule}, holds {len(values)}")
            labels.append(values)
            rows.append((number, *where))
        except _FeatureError as error:
            has = ", ".join(_names(data, begin, begin + length))
            skips.note(f"{path}: record {number}: {error}; it has {has or 'no features'}")
        except WireError as error:
            skips.note(f"{path}: record {number}: is damaged or no tf.train.Example: {error}")
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    column = LabelColumn.of(labels, lambda i: f"{path}: record {rows[i][0]}")
    return ShardIndex(table[:, 1].copy(), table[:, 2].copy(), column, table[:, 0].copy(), skipped=tuple(skips.first),
                      skipped_count=skips.count)  # fmt: skip


def _frames(path: str, data: mmap.mmap) -> tuple[Indices, Indices]:
    """First byte and length of each record's data."""
    begins, lengths, heads = list[int](), list[int](), list[bytes]()
    at, size = 0, len(data)
    while at < size:
        heads.append(data[at : at + _FRAME])
        number = len(begins)
        if at + _FRAME > size:
            raise ValueError(f"{path}: is cut off in record {number}, {size - at} bytes after its start at byte {at}")
        (length,) = struct.unpack_from("<Q", heads[-1])
        if length > size - at - _FRAME - _CHECKSUM:
            _check_lengths(path, heads)  # either the file was cut or this is no length
            raise ValueError(
                f"{path}: is cut off in record {number}, which needs {length + _FRAME + _CHECKSUM} bytes from byte "
                f"{at}; {size - at} are there"
            )
        begins.append(at + _FRAME)
        lengths.append(length)
        at += _FRAME + length + _CHECKSUM
    _check_lengths(path, heads)
    return np.array(begins, dtype=np.int64), np.array(lengths, dtype=np.int64)


def _check_lengths(path: str, heads: list[bytes]) -> None:
    table = np.frombuffer(bytearray(b"".join(heads)), dtype=np.uint8)
    at = np.arange(len(heads), dtype=np.int64) * _FRAME
    wrong = _wrong_checksums(table, at, np.full(len(at), _FRAME - _CHECKSUM, dtype=np.int64))
    if wrong.any():
        number = int(np.argmax(wrong))
        what = "no TFRecord file" if number == 0 else "damaged"
        raise ValueError(f"{path}: is {what}: the length of record {number} has a wrong checksum")


def _damaged(data_file: DataFile, begins: Indices, lengths: Indices) -> npt.NDArray[np.bool_]:
    """Which records' data do not have the checksum that follows them. Reads the whole file."""
    ends = begins + lengths + _CHECKSUM
    wrong = np.zeros(len(begins), dtype=np.bool_)
    with open(data_file.path, "rb", buffering=0) as file:
        first = 0
        while first < len(begins):
            last = max(first + 1, int(np.searchsorted(ends, begins[first] + _BLOCK, side="right")))
            block = np.empty(ends[last - 1] - begins[first], dtype=np.uint8)
            file.seek(int(begins[first]))
            got = 0
            while got < len(block):
                count = file.readinto(block.data[got:])
                if not count:
                    raise ValueError(f"{data_file.name}: became shorter while it was being indexed")
                got += count
            wrong[first:last] = _wrong_checksums(block, begins[first:last] - begins[first], lengths[first:last])
            first = last
    return wrong


def _wrong_checksums(data: npt.NDArray[np.uint8], start: Indices, length: Indices) -> npt.NDArray[np.bool_]:
    """Which ranges are not followed by their masked CRC-32C."""
    import torch

    from lightning_gpuaug import ops

    crc = ops.crc32c(torch.from_numpy(data), torch.from_numpy(start), torch.from_numpy(length)).numpy()
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    stored = data[(start + length)[:, None] + np.arange(_CHECKSUM)].astype(np.int64) @ (1 << 8 * np.arange(_CHECKSUM))
    return np.asarray(masked != stored)


class _FeatureError(ValueError):
    """A feature is not what was asked for."""


def _features(data: mmap.mmap, begin: int, end: int, wanted: dict[bytes, int]) -> list[tuple[int, int] | None]:
    """Where the values of the wanted features (`Feature` messages) are; None for those that are not there."""
    found: list[tuple[int, int] | None] = [None] * 2
    for number, kind, a, b in fields(data, begin, end):
        if number != 1 or kind != BYTES:
            continue
        for entry_number, entry_kind, c, d in fields(data, a, b):
            if entry_number != 1 or entry_kind != BYTES:
                continue
            key, value = b"", (d, d)
            for part, part_kind, e, f in fields(data, c, d):
                if part_kind == BYTES and part == 1:
                    key = data[e:f]
                elif part_kind == BYTES and part == 2:
                    value = (e, f)
            place = wanted.get(key)
            if place is not None:
                found[place] = value
    return found


def _names(data: mmap.mmap, begin: int, end: int) -> list[str]:
    """Names and kinds of a record's features."""
    names = []
    try:
        for number, kind, a, b in fields(data, begin, end):
            if number == 1 and kind == BYTES:
                for _, _, c, d in fields(data, a, b):
                    parts = {part: (e, f) for part, _, e, f in fields(data, c, d)}
                    key = data[slice(*parts.get(1, (c, c)))].decode("utf-8", "replace")
                    kinds = [_KINDS.get(field, "?") for field, *_ in fields(data, *parts.get(2, (c, c)))]
                    names.append(f"{key} ({kinds[0] if kinds else 'empty'})")
    except WireError:
        names.append("…")
    return sorted(names)


def _list_of(data: mmap.mmap, where: tuple[int, int] | None, name: str) -> tuple[int, int, int]:
    """Which kind of list a feature holds (number in `Feature`), and where it is."""
    if where is None:
        raise _FeatureError(f"feature {name!r} is missing")
    found = [(number, a, b) for number, kind, a, b in fields(data, *where) if kind == BYTES and number in _KINDS]
    if not found:
        raise _FeatureError(f"feature {name!r} is empty")
    return found[-1]


def _image_of(data: mmap.mmap, where: tuple[int, int] | None, name: str) -> tuple[int, int]:
    """First byte and length of the encoded image."""
    kind, a, b = _list_of(data, where, name)
    if kind != 1:
        raise _FeatureError(f"feature {name!r} must be a bytes list (an encoded image), is {_KINDS[kind]}")
    values = [(c, d) for number, wire, c, d in fields(data, a, b) if number == 1 and wire == BYTES]
    if len(values) != 1:
        raise _FeatureError(f"feature {name!r} must hold one image, holds {len(values)}")
    ((first, last),) = values
    return first, last - first


def _label_of(data: mmap.mmap, where: tuple[int, int] | None, name: str) -> list[int] | list[str] | list[float]:
    kind, a, b = _list_of(data, where, name)
    if kind == 1:
        names = []
        for number, wire, c, d in fields(data, a, b):
            if number == 1 and wire == BYTES:
                try:
                    names.append(data[c:d].decode("utf-8"))
                except UnicodeDecodeError:
                    raise _FeatureError(
                        f"feature {name!r} must be a number or a UTF-8 name, is {data[c:d][:20]!r}"
                    ) from None
        return names
    if kind == 2:
        numbers: list[float] = []
        for number, wire, c, d in fields(data, a, b):
            if number == 1 and wire in (BYTES, FIXED32):
                numbers += floats(data, c, d)
        return numbers
    values: list[int] = []
    for number, wire, c, d in fields(data, a, b):
        if number == 1 and wire == BYTES:
            values += varints(data, c, d)
        elif number == 1 and wire == VARINT:
            values.append(signed(c))
    return values
