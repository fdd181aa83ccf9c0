"""What an image's first bytes say: its type and its size, without decoding."""

from __future__ import annotations

import re
import struct

#: Bytes that `sniff` and, but for JPEG and TIFF, `size_of` look at.
HEADER_BYTES = 4096

# JPEG markers: start of frame (all but DHT C4, JPG C8, DAC CC), those without a length, two that end the search.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset(range(0xD0, 0xD9)) | {0x01}
_JPEG_END, _JPEG_SCAN = 0xD9, 0xDA
_AVIF_BRANDS = (b"avif", b"avis")
_HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")
_PNM_HEADER = re.compile(rb"P[1-6](?:\s|#[^\n]*\n)+(\d+)(?:\s|#[^\n]*\n)+(\d+)")


def sniff(data: bytes) -> str | None:
    """Type of the file that begins with `data` (some tens of bytes do), by its magic bytes and not by its name.

    Returns:
        "jpeg", "png", "webp", "tiff", "bmp", "pnm", "jp2", "gif", "avif", "heic", "html", "git-lfs", "text",
        "empty", or None for bytes that are none of these.
    """
    if not data:
        return "empty"
    for magic, kind in (
        (b"\xff\xd8\xff", "jpeg"),
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"GIF87a", "gif"),
        (b"GIF89a", "gif"),
        (b"II*\0", "tiff"),
        (b"MM\0*", "tiff"),
        (b"II+\0", "tiff"),
        (b"MM\0+", "tiff"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "jp2"),
        (b"\xff\x4f\xff\x51", "jp2"),
        (b"version https://git-lfs", "git-lfs"),
    ):
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        if data[8:12] in _AVIF_BRANDS or any(brand in data[16:64] for brand in _AVIF_BRANDS):
            return "avif"
        return "heic" if data[8:12] in _HEIC_BRANDS else None
    if data[:2] == b"BM" and len(data) >= 18 and data[6:10] == b"\0\0\0\0":
        return "bmp"
    if re.match(rb"P[1-6][\s#]", data):
        return "pnm"
    return _text_kind(data[:512])


def size_of(data: bytes) -> tuple[int, int] | None:
    """(width, height) in pixels that the file beginning with `data` claims; None if it does not say so in `data`."""
    try:
        match sniff(data):
            case "jpeg":
                return _jpeg_size(data)
            case "png":
                return _two(">II", data, 16) if data[12:16] == b"IHDR" else None
            case "gif":
                return _two("<HH", data, 6)
            case "webp":
                return _webp_size(data)
            case "tiff":
                tags = tiff_tags(data)
                return (tags[256], tags[257]) if 256 in tags and 257 in tags else None
            case "bmp":
                old = data[14:18] == b"\x0c\0\0\0"
                width, height = _two("<HH", data, 18) if old else _two("<ii", data, 18)
                return width, abs(height)  # a negative height means rows from the top
            case "pnm":
                found = _PNM_HEADER.match(data)
                return (int(found[1]), int(found[2])) if found else None
            case "jp2":
                return _jp2_size(data)
            case _:
                return None
    except (struct.error, IndexError):
        return None


def tiff_tags(data: bytes) -> dict[int, int]:
    """First value of the whole-number fields of a TIFF's first image (256: width, 257: height, 258: bits)."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    count_code, offset_code, entry_size, value_at = ("Q", "Q", 20, 12) if big else ("H", "I", 12, 8)
    (start,) = struct.unpack_from(order + offset_code, data, 8 if big else 4)
    (count,) = struct.unpack_from(order + count_code, data, start)
    start += struct.calcsize(order + count_code)
    codes = {1: "B", 3: "H", 4: "I", 16: "Q"}
    tags: dict[int, int] = {}
    for i in range(min(count, 4096)):
        entry = start + i * entry_size
        tag, kind = struct.unpack_from(order + "HH", data, entry)
        (values,) = struct.unpack_from(order + offset_code, data, entry + 4)
        if kind in codes:
            # Several values that do not fit in the entry stand elsewhere; that they exist is all we need.
            fits = struct.calcsize(order + codes[kind]) * values <= entry_size - value_at
            tags[tag] = struct.unpack_from(order + codes[kind], data, entry + value_at)[0] if fits else 0
    return tags


def jpeg_scan_start(data: bytes) -> int | None:
    """Where the header of a JPEG's first scan begins, thumbnails inside other segments skipped; None if cut before."""
    for marker, position in _jpeg_segments(data):
        if marker == _JPEG_SCAN:
            return position
    return None


def _jpeg_segments(data: bytes) -> list[tuple[int, int]]:
    """(marker, position of its length field) up to the first scan or the end of `data`."""
    segments: list[tuple[int, int]] = []
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
        elif marker in _JPEG_BARE:
            position += 2
        elif marker == _JPEG_END:
            break
        else:
            segments.append((marker, position + 2))
            if marker == _JPEG_SCAN:
                break
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return segments


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    for marker, position in _jpeg_segments(data):
        if marker in _JPEG_FRAMES:
            height, width = _two(">HH", data, position + 3)
            return width, height
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = _two("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


def _jp2_size(data: bytes) -> tuple[int, int] | None:
    if data[:2] == b"\xff\x4f":
        right, bottom, left, top = struct.unpack_from(">IIII", data, 8)
        return right - left, bottom - top
    at = data.find(b"ihdr", 0, HEADER_BYTES)
    if at < 0:
        return None
    height, width = _two(">II", data, at + 4)
    return width, height


def _text_kind(data: bytes) -> str | None:
    start = data.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<!--", b"<script")):
        return "html"
    control = bytes(range(9)) + bytes(range(14, 32)) + b"\x7f"
    if data.translate(None, control) != data:
        return None
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return "text" if error.start >= len(data) - 3 and error.reason == "unexpected end of data" else None
    return "text"


def _two(code: str, data: bytes, offset: int) -> tuple[int, int]:
    first, second = struct.unpack_from(code, data, offset)
    return int(first), int(second)
