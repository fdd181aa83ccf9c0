"""Data files of every record format, built from bytes: no writer of anybody else's is used."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tests.images import pixels


def jpeg(index: int, size: tuple[int, int] = (12, 10)) -> bytes:
    """Sample `index`, encoded."""
    file = io.BytesIO()
    Image.fromarray(pixels(index, size)).save(file, "JPEG", quality=90)
    return file.getvalue()


# ---- TFRecord ----------------------------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data: bytes) -> bytes:
    """A TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


Value = bytes | int | str | float | Sequence[int] | Sequence[str] | Sequence[float]


def feature(value: Value, packed: bool = True) -> bytes:
    items: list = list(value) if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(item, (bytes, str)) for item in items):
        return field(1, b"".join(field(1, i.encode() if isinstance(i, str) else i) for i in items))
    if any(isinstance(item, float) for item in items):
        if packed:
            return field(2, field(1, struct.pack(f"<{len(items)}f", *items)))
        return field(2, b"".join(b"\x0d" + struct.pack("<f", item) for item in items))
    if packed:
        return field(3, field(1, b"".join(map(varint, items))))
    return field(3, b"".join(b"\x08" + varint(item) for item in items))


def example(features: dict[str, Value], packed: bool = True, value_first: bool = False) -> bytes:
    """A `tf.train.Example`."""
    entries = []
    for name, value in features.items():
        parts = [field(1, name.encode()), field(2, feature(value, packed))]
        entries.append(field(1, b"".join(reversed(parts) if value_first else parts)))
    return field(1, b"".join(entries))


def write_tfrecord(path: Path, examples: Sequence[bytes]) -> Path:
    path.write_bytes(b"".join(map(frame, examples)))
    return path


# ---- tar ---------------------------------------------------------------------------------------------------------


def tar_member(name: bytes, content: bytes, kind: bytes = b"0", ustar: bool = True, size: int | None = None) -> bytes:
    head = bytearray(512)
    if len(name) > 100 and ustar and kind in b"0":
        cut = name.rindex(b"/", 0, 155)
        head[345 : 345 + cut], name = name[:cut], name[cut + 1 :]
    head[: len(name)] = name
    head[100:108], head[108:116], head[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    head[124:136] = f"{len(content) if size is None else size:011o}\0".encode()
    head[136:148], head[148:156], head[156:157] = b"00000000000\0", b" " * 8, kind
    if ustar:
        head[257:265] = b"ustar\x0000"
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    return bytes(head) + content + bytes(-len(content) % 512)


def gnu_long(name: bytes, content: bytes) -> bytes:
    return tar_member(b"././@LongLink", name + b"\0", b"L", ustar=False) + tar_member(name[:100], content, ustar=False)


def pax_record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body)
    while len(str(length)) + len(body) != length:
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def pax(name: str, content: bytes) -> bytes:
    return tar_member(b"PaxHeaders/x", pax_record("path", name), b"x") + tar_member(b"short", content)


TAR_END = bytes(1024)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.write_bytes(b"".join(tar_member(k.encode(), v) for k, v in members.items()) + TAR_END)
    return path


# ---- RecordIO ----------------------------------------------------------------------------------------------------

MAGIC = struct.pack("<I", 0xCED7230A)


def _part(kind: int, data: bytes) -> bytes:
    return MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + bytes(-len(data) % 4)


def recordio_record(image: bytes, label: float | Sequence[float]) -> bytes:
    """A packed image, cut where it holds the magic number at a multiple of four bytes, as dmlc's writer does."""
    if isinstance(label, (int, float)):
        data = struct.pack("<IfQQ", 0, label, 7, 0) + image
    else:
        data = struct.pack(f"<IfQQ{len(label)}f", len(label), 0.0, 7, 0, *label) + image
    cuts = [found.start() for found in re.finditer(re.escape(MAGIC), data) if found.start() % 4 == 0]
    if not cuts:
        return _part(0, data)
    parts, begin = [], 0
    for at in cuts:
        parts.append(_part(1 if not parts else 2, data[begin:at]))
        begin = at + 4
    return b"".join([*parts, _part(3, data[begin:])])


def write_recordio(rec: Path, records: Sequence[bytes], idx: Path | None = None) -> Path:
    rec.write_bytes(b"".join(records))
    if idx is not None:
        offsets = np.cumsum([0, *map(len, records)])[:-1]
        idx.write_text("".join(f"{i}\t{offset}\n" for i, offset in enumerate(offsets)))
    return rec


# ---- LMDB --------------------------------------------------------------------------------------------------------

PAGE = 4096


def datum(image: bytes, label: int | None, encoded: bool = True, shape: tuple[int, int, int] = (3, 1, 1)) -> bytes:
    """Caffe's message; without its label if that is None."""
    head = b"".join(varint(i + 1 << 3) + varint(value) for i, value in enumerate(shape))
    numbers = (b"" if label is None else b"\x28" + varint(label)) + (b"\x38\x01" if encoded else b"")
    return head + field(4, image) + numbers


def write_lmdb(path: Path, entries: dict[bytes, bytes], per_leaf: int = 3) -> Path:
    """An LMDB of a single transaction: meta pages, overflow pages, leaves, and branches as far as are needed."""
    pages: dict[int, bytes] = {}
    next_page = 2
    counts = {"branch": 0, "leaf": 0, "overflow": 0}

    def page(number: int, flags: int, nodes: Sequence[bytes]) -> bytes:
        data, pointers, upper = bytearray(PAGE), [], PAGE
        for node in nodes:
            upper -= len(node) + len(node) % 2
            data[upper : upper + len(node)] = node
            pointers.append(upper)
        lower = 16 + 2 * len(nodes)
        assert lower <= upper
        data[:16] = struct.pack("<QHHHH", number, 0, flags, lower, upper)
        data[16:lower] = struct.pack(f"<{len(pointers)}H", *pointers)
        return bytes(data)

    def leaf_node(key: bytes, value: bytes) -> bytes:
        nonlocal next_page
        sizes = struct.pack("<HH", len(value) & 0xFFFF, len(value) >> 16)
        if len(value) + len(key) + 8 <= 1000:
            return sizes + struct.pack("<HH", 0, len(key)) + key + value
        count = (16 + len(value) + PAGE - 1) // PAGE
        head = struct.pack("<QHHI", next_page, 0, 4, count)
        block = (head + value).ljust(count * PAGE, b"\0")
        for i in range(count):
            pages[next_page + i] = block[i * PAGE : (i + 1) * PAGE]
        node = sizes + struct.pack("<HH", 1, len(key)) + key + struct.pack("<Q", next_page)
        next_page += count
        counts["overflow"] += count
        return node

    level: list[tuple[bytes, int]] = []
    items, depth = sorted(entries.items()), 0
    for begin in range(0, len(items), per_leaf):
        nodes = [leaf_node(k, v) for k, v in items[begin : begin + per_leaf]]
        pages[next_page] = page(next_page, 2, nodes)
        level.append((items[begin][0], next_page))
        next_page, depth = next_page + 1, 1
        counts["leaf"] += 1
    while len(level) > 1:
        above = []
        # Evenly, and more than two each: a branch of a single page is what LMDB's library stops the process for.
        branches = -(-len(level) // max(3, per_leaf))
        for k in range(branches):
            group = level[len(level) * k // branches : len(level) * (k + 1) // branches]
            nodes = []
            for i, (key, child) in enumerate(group):
                key = b"" if i == 0 else key  # a branch's first key is left out
                head = struct.pack("<HHHH", child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32, len(key))
                nodes.append(head + key)
            pages[next_page] = page(next_page, 1, nodes)
            above.append((group[0][0], next_page))
            next_page += 1
            counts["branch"] += 1
        level, depth = above, depth + 1
    root = level[0][1] if level else 2**64 - 1

    def meta(number: int, transaction: int, live: bool) -> bytes:
        free = struct.pack("<IHH5Q", PAGE, 8, 0, 0, 0, 0, 0, 2**64 - 1)
        numbers = (counts["branch"], counts["leaf"], counts["overflow"], len(entries), root)
        main = (
            struct.pack("<IHH5Q", 0, 0, depth, *numbers)
            if live
            else struct.pack("<IHH5Q", 0, 0, 0, 0, 0, 0, 0, 2**64 - 1)
        )
        body = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 30) + free + main
        body += struct.pack("<QQ", next_page - 1 if live else 1, transaction)
        return (struct.pack("<QHHI", number, 0, 8, 0) + body).ljust(PAGE, b"\0")

    path.mkdir(exist_ok=True)
    content = meta(0, 0, False) + meta(1, 1, True) + b"".join(pages[i] for i in range(2, next_page))
    (path / "data.mdb").write_bytes(content)
    return path
