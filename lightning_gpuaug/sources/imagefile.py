"""One image file: what it is, how large, and what is wrong with it."""

from __future__ import annotations

import io
import os
import re
import struct
import warnings
import zlib
from typing import Literal, NamedTuple

from PIL import Image

from lightning_gpuaug.sources.imageheader import HEADER_BYTES, jpeg_scan_start, size_of, sniff, tiff_tags

__all__ = [
    "MAX_PIXELS",
    "Problem",
    "ProblemKind",
    "diagnose",
    "diagnose_encoded",
    "encoded_size",
    "header_size",
    "problem_in",
    "sniff",
    "unreadable",
]

ProblemKind = Literal["unreadable", "empty", "not an image", "undecodable type", "oversized", "truncated", "damaged"]


class Problem(NamedTuple):
    """What keeps DALI from decoding an image.

    Attributes:
        kind: the sort of it, to count by.
        reason: what was found, in a few words.
    """

    kind: ProblemKind
    reason: str


#: Pixels that a header may claim: where Pillow refuses a decompression bomb (half a GiB of RGB).
MAX_PIXELS = 178_956_970

# A marker inside a scan: 0xFF followed by anything but 0 (a stuffed byte), a restart or more padding.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_UNDECODABLE = {"gif": "GIF", "avif": "AVIF", "heic": "HEIC"}
_NOT_IMAGES = {
    "empty": "empty file",
    "html": "is HTML, not an image",
    "text": "is text, not an image",
    "git-lfs": "git-lfs pointer, not the image",
}


def header_size(path: str | os.PathLike[str]) -> tuple[int, int] | None:
    """(width, height) in pixels by the file's header, before any EXIF rotation; None if it does not tell.

    Reads 4 KiB, and the whole file only if the size is not among them.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        data = file.read(HEADER_BYTES)
        return size_of(data) or (size_of(data + file.read()) if len(data) == HEADER_BYTES else None)


def encoded_size(data: bytes) -> tuple[int, int] | None:
    """`header_size` of an image in memory."""
    return size_of(data[:HEADER_BYTES]) or size_of(data)


def diagnose(path: str | os.PathLike[str]) -> str | None:
    """What keeps DALI from decoding the image, in a few words; None if nothing was found.

    The whole file is read; see `problem_in`.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        moved = isinstance(error, FileNotFoundError) and not os.path.isabs(path)
        return unreadable(error).reason + (f" (seen from {os.getcwd()})" if moved else "")
    return diagnose_encoded(data)


def diagnose_encoded(data: bytes) -> str | None:
    """What keeps DALI from decoding the image `data`, in a few words; None if nothing was found. See `problem_in`."""
    problem = problem_in(data)
    return None if problem is None else problem.reason


def unreadable(error: OSError) -> Problem:
    """The problem of a file that cannot be read."""
    return Problem("unreadable", f"unreadable: {(error.strerror or str(error)).lower()}")


def problem_in(data: bytes) -> Problem | None:
    """What keeps DALI from decoding the image in `data`; None if nothing was found.

    JPEG and PNG are checked by their structure (JPEG: segments and end marker; PNG: every chunk's checksum), which is
    much faster than decoding and misses damage inside a JPEG's compressed data; the rarer formats are decoded with
    Pillow. What counts as right is what DALI 2.4 was seen to decode: trailing bytes after the image, the first frame
    of an animated or extended WebP, the first page of a TIFF. A header that claims more than `MAX_PIXELS` is refused
    before anything is allocated.
    """
    kind = sniff(data)
    if kind is None:
        return Problem("not an image", f"unknown bytes {data[:8].hex(' ')}")
    if kind in _NOT_IMAGES:
        return Problem("empty" if kind == "empty" else "not an image", _NOT_IMAGES[kind])
    if kind in _UNDECODABLE:
        return Problem("undecodable type", f"{_UNDECODABLE[kind]} (not decodable by DALI)")
    size = size_of(data)
    if size is None:
        return Problem("truncated", f"truncated {kind.upper()} (no image size in the header)")
    width, height = size
    if width <= 0 or height <= 0:
        return Problem("damaged", f"header claims {width}×{height}")
    if width * height > MAX_PIXELS:
        megapixels, limit = width * height / 1e6, MAX_PIXELS / 1e6
        return Problem("oversized", f"header claims {width}×{height} ({megapixels:.0f} Mpx, limit {limit:.0f} Mpx)")
    if kind == "jpeg":
        return _jpeg_problem(data)
    if kind == "png":
        return _png_problem(data)
    if kind == "tiff" and 258 not in tiff_tags(data):
        return Problem("undecodable type", "TIFF without a BitsPerSample field (not decodable by DALI)")
    return _decoding_problem(data, kind)


def _jpeg_problem(data: bytes) -> Problem | None:
    position = jpeg_scan_start(data)
    if position is None:
        return Problem("truncated", "truncated JPEG (no image data)")
    # Scan after scan: a segment's bytes are skipped, so that an end marker among them does not count.
    while position + 2 <= len(data):
        position += int.from_bytes(data[position : position + 2], "big")
        found = _MARKER.search(data, position)
        if found is None:
            break
        if found[0] == b"\xff\xd9":
            return None
        position = found.end()
    return Problem("truncated", "truncated JPEG (no end-of-image marker)")


def _png_problem(data: bytes) -> Problem | None:
    position, pixels = 8, False
    while position + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        name = data[position + 4 : position + 8]
        (checksum,) = struct.unpack_from(">I", data, end - 4)
        if zlib.crc32(memoryview(data)[position + 4 : end - 4]) != checksum:
            return Problem("damaged", f"damaged PNG (checksum of {name.decode('latin-1')!r})")
        pixels = pixels or name == b"IDAT"
        if name == b"IEND":
            return None if pixels else Problem("damaged", "damaged PNG (no image data)")
        position = end
    return Problem("truncated", "truncated PNG")


def _decoding_problem(data: bytes, kind: str) -> Problem | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of oddities that do not keep it from decoding
            with Image.open(io.BytesIO(data)) as image:
                image.load()
    except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Problem("damaged", f"damaged {kind.upper()} ({reason})")
    return None
