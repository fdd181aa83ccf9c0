"""TFRecord bytes against the format's definition, written out by hand."""

from __future__ import annotations

import io
import struct

import pytest

from lightning_gpuaug.tools.tfrecord_file import TFRecordError, read_records, record_of


def crc32c(data: bytes) -> int:
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def test_the_bytes_of_a_record() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the definition
    record = record_of({"l": 300, "i": b"JPG"})
    # Example{1: Features{1: {1: "i", 2: Feature{1: BytesList{1: "JPG"}}}, 1: {1: "l", 2: Feature{3: Int64List{1: …}}}}}
    image = b"\x0a\x0c" + b"\x0a\x01i" + b"\x12\x07" + b"\x0a\x05" + b"\x0a\x03JPG"
    label = b"\x0a\x0b" + b"\x0a\x01l" + b"\x12\x06" + b"\x1a\x04" + b"\x0a\x02\xac\x02"
    payload = b"\x0a" + bytes([len(image) + len(label)]) + image + label
    length = struct.pack("<Q", len(payload))
    assert record == length + masked(length) + payload + masked(payload)


@pytest.mark.parametrize("label", [0, 1, 127, 128, 2**40, 2**63 - 1, -1, -(2**63)])
def test_numbers_come_back(label: int) -> None:
    features = {"image/class/label": label, "image/encoded": bytes(range(256)) * 3, "empty": b""}
    file = io.BytesIO(record_of(features) * 2)
    assert list(read_records(file, "x")) == [features, features]


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda r: r[:-1], "record 1 is cut"),
        (lambda r: r[:-30], "record 1 is cut"),
        (lambda r: r + b"\0\0", "record 2 is cut"),
        (lambda r: b"\1" + r[1:], "record 0 has a wrong checksum of its length"),
        (lambda r: r[:20] + bytes([r[20] ^ 1]) + r[21:], "record 0 has a wrong checksum"),
    ],
)
def test_damage_is_named(damage: object, complaint: str) -> None:
    whole = record_of({"image/encoded": b"x" * 50}) * 2
    with pytest.raises(TFRecordError, match=f"^x.tfrecord: {complaint}"):
        list(read_records(io.BytesIO(damage(whole)), "x.tfrecord"))  # type: ignore[operator]
