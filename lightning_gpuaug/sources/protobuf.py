"""Just enough of protobuf's wire format to find fields of a message without copying it."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator

#: Wire types.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

Buffer = bytes | mmap.mmap


class WireError(ValueError):
    """The bytes are not a protobuf message."""


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """The unsigned number at `at`, and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise WireError("a number is cut off")


def signed(value: int) -> int:
    """An int32 or int64 field's value."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, x, y) of each field: the value and 0 for a varint, else first byte and end of the content.

    Raises:
        WireError: the bytes are no message.
    """
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, at - 1, end)
        kind = tag & 7
        if kind == BYTES:
            length, at = varint(data, at, end)
            stop = at + length
        elif kind == VARINT:
            value, at = varint(data, at, end)
            yield tag >> 3, kind, value, 0
            continue
        elif kind in (FIXED32, FIXED64):
            stop = at + (4 if kind == FIXED32 else 8)
        else:
            raise WireError(f"wire type {kind} is not known")
        if stop > end:
            raise WireError(f"field {tag >> 3} goes on behind the message")
        yield tag >> 3, kind, at, stop
        at = stop


def varints(data: Buffer, at: int, end: int) -> list[int]:
    """Signed numbers that are packed into a field."""
    values = []
    while at < end:
        value, at = varint(data, at, end)
        values.append(signed(value))
    return values


def floats(data: Buffer, at: int, end: int) -> list[float]:
    """32-bit floats that are packed into a field."""
    if (end - at) % 4:
        raise WireError("packed floats are cut off")
    return list(struct.unpack_from(f"<{(end - at) // 4}f", data, at))
