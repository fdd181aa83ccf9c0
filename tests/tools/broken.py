"""A small tree of images with one file of every kind that goes wrong."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from PIL import Image

from tests.images import pixels


def write_tree(root: Path, good: int = 3, classes: tuple[str, ...] = ("a", "b")) -> None:
    """`good` JPEGs in each class folder, every one different."""
    for c, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(good):
            Image.fromarray(pixels(100 * c + i, (40, 60))).save(root / name / f"{i}.jpg")


def huge_png() -> bytes:
    """A header that claims 60000×60000."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b"")


def jpeg(index: int = 7, size: tuple[int, int] = (120, 160)) -> bytes:
    """One JPEG of some kilobytes."""
    import io

    import numpy as np

    noise = np.random.default_rng(index).integers(0, 255, (*size, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).save(out, "JPEG")
    return out.getvalue()


def overwritten_jpeg() -> bytes:
    """A JPEG with zeros in the middle of its compressed data: every marker is there, it decodes, to wrong pixels."""
    data = jpeg()
    middle = len(data) // 2
    return data[:middle] + bytes(200) + data[middle + 200 :]


#: Name below the root to (kind, beginning of the reason) of what a scan finds.
EXPECTED = {
    "a/dangling.jpg": ("unreadable", "link leads nowhere"),
    "a/empty.jpg": ("empty", "empty file"),
    "a/gif.jpg": ("undecodable type", "GIF"),
    "a/half.jpg": ("truncated", "truncated JPEG"),
    "a/halfpng.jpg": ("truncated", "truncated PNG"),
    "b/html.jpg": ("not an image", "is HTML"),
    "b/huge.png": ("oversized", "header claims 60000×60000"),
}


def break_tree(root: Path) -> None:
    """Add one of every kind of bad file, and two that are odd and good."""
    data = jpeg()
    (root / "a/half.jpg").write_bytes(data[: len(data) // 2])
    (root / "a/empty.jpg").write_bytes(b"")
    (root / "b/html.jpg").write_text("<!DOCTYPE html><html>404</html>")
    (root / "b/huge.png").write_bytes(huge_png())
    os.symlink("nowhere", root / "a/dangling.jpg")
    picture = Image.fromarray(pixels(50))
    picture.save(root / "a/gif.jpg", "GIF")
    picture.save(root / "b/png_named.jpg", "PNG")
    png = (root / "b/png_named.jpg").read_bytes()
    (root / "a/halfpng.jpg").write_bytes(png[: len(png) // 2])
    (root / "b/junk_behind.jpg").write_bytes(data + b"\0junk")
