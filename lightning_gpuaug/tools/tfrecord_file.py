"""TFRecord files of `tf.train.Example`, written and read back without TensorFlow.

A file is records end to end: length (uint64), its masked CRC-32C, the bytes, their masked CRC-32C, all little-endian. A
record is a protobuf: Example{1: Features{1: map<string, Feature>}}, Feature{1: BytesList | 3: Int64List}, each list's
values in field 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import torch

from lightning_gpuaug import ops

Feature = bytes | int
_LENGTH_DELIMITED = 2
_MASK_DELTA = 0xA282EAD8


class TFRecordError(ValueError):
    """A file that is not as it was meant to be; the message says where."""


def record_of(features: dict[str, Feature]) -> bytes:
    """One framed record with the features, sorted by name: equal features give equal bytes."""
    entries = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, _feature(value))) for name, value in sorted(features.items())
    )
    payload = _field(1, entries)
    length = struct.pack("<Q", len(payload))
    of_length, of_payload = masked_crcs(length, payload)
    return b"".join((length, struct.pack("<I", of_length), payload, struct.pack("<I", of_payload)))


def read_records(file: BinaryIO, name: str) -> Iterator[dict[str, Feature]]:
    """Features of every record, checksums compared.

    Args:
        file: open at its beginning.
        name: of the file, for errors.

    Raises:
        TFRecordError: the file is cut, or not what `record_of` wrote; names the record.
    """
    number = 0
    while head := file.read(12):
        where = f"{name}: record {number}"
        if len(head) < 12:
            raise TFRecordError(f"{where} is cut")
        (size,) = struct.unpack_from("<Q", head)
        (of_length,) = struct.unpack_from("<I", head, 8)
        if masked_crcs(head[:8])[0] != of_length:
            raise TFRecordError(f"{where} has a wrong checksum of its length")
        payload, tail = file.read(size), file.read(4)
        if len(payload) < size or len(tail) < 4:
            raise TFRecordError(f"{where} is cut")
        if masked_crcs(payload)[0] != struct.unpack("<I", tail)[0]:
            raise TFRecordError(f"{where} has a wrong checksum")
        try:
            yield _features(payload)
        except (IndexError, ValueError, KeyError) as error:
            raise TFRecordError(f"{where} is no Example: {error}") from error
        number += 1


def _features(payload: bytes) -> dict[str, Feature]:
    ((_, features),) = _fields(payload)
    found: dict[str, Feature] = {}
    for _, entry in _fields(features):
        parts = dict(_fields(entry))
        ((kind, values),) = _fields(parts[2])
        ((_, value),) = _fields(values)
        found[parts[1].decode()] = value if kind == 1 else _signed(_varint(value, 0)[0])
    return found


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        if tag & 7 != _LENGTH_DELIMITED or at + size > len(data):
            raise ValueError("a field that was not written here")
        yield tag >> 3, data[at : at + size]
        at += size


def _feature(value: Feature) -> bytes:
    if isinstance(value, bytes):
        return _field(1, _field(1, value))
    return _field(3, _field(1, _varint_of(value & (2**64 - 1))))


def _field(number: int, payload: bytes) -> bytes:
    return b"".join((_varint_of(number << 3 | _LENGTH_DELIMITED), _varint_of(len(payload)), payload))


def _varint_of(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def masked_crcs(*parts: bytes) -> list[int]:
    """Checksum of each part, masked as the format asks (a checksum of bytes that hold checksums is a weak one)."""
    lengths = torch.tensor([len(part) for part in parts], dtype=torch.int64)
    data = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)
    crcs = ops.crc32c(data, lengths.cumsum(0) - lengths, lengths).tolist()
    return [((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF for crc in crcs]
