"""Images by their bytes: what they are, how large, and what is wrong with them."""

from __future__ import annotations

import io
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lightning_gpuaug.sources.imagefile import MAX_PIXELS, diagnose, header_size, sniff
from lightning_gpuaug.sources.imageheader import size_of


def picture(width: int = 60, height: int = 40, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def exif_with_thumbnail() -> bytes:
    """A JPEG with a whole small JPEG in its first segment, end marker and all."""
    thumbnail = b"Exif\0\0" + encoded(picture(8, 8), "JPEG")
    data = encoded(picture(), "JPEG")
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(thumbnail) + 2) + thumbnail + data[2:]


RGB = picture()
JPEG, PNG = encoded(RGB, "JPEG"), encoded(RGB, "PNG")
MANY = {"save_all": True, "append_images": [picture(seed=1)]}
GOOD = {
    "jpeg": [JPEG, encoded(RGB, "JPEG", progressive=True), encoded(RGB.convert("CMYK"), "JPEG"),
             encoded(RGB.convert("L"), "JPEG"), exif_with_thumbnail(), JPEG[:2] + b"\xff\xff" + JPEG[2:]],
    "png": [PNG, encoded(RGB.convert("P"), "PNG"), encoded(RGB.convert("LA"), "PNG")],
    "webp": [encoded(RGB, "WEBP"), encoded(RGB, "WEBP", lossless=True), encoded(RGB.convert("RGBA"), "WEBP"),
             encoded(RGB, "WEBP", icc_profile=b"x" * 100), encoded(RGB, "WEBP", **MANY)],
    "tiff": [encoded(RGB, "TIFF"), encoded(RGB, "TIFF", **MANY), encoded(RGB, "TIFF", compression="tiff_lzw")],
    "bmp": [encoded(RGB, "BMP"), encoded(RGB.convert("1"), "BMP")],
    "pnm": [encoded(RGB, "PPM"), encoded(RGB.convert("L"), "PPM"), encoded(RGB.convert("1"), "PPM"),
            encoded(RGB, "PPM").replace(b"P6\n", b"P6\n# made by hand\n", 1)],
    "jp2": [encoded(RGB, "JPEG2000"), encoded(RGB, "JPEG2000", no_jp2=True)],
}  # fmt: skip
CASES = [(kind, data) for kind, files in GOOD.items() for data in files]


@pytest.mark.parametrize(("kind", "data"), CASES)
def test_good_images_whatever_their_name(tmp_path: Path, kind: str, data: bytes) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(data)
    assert sniff(data) == sniff(data[:64]) == kind
    assert header_size(path) == (60, 40)
    assert diagnose(path) is None


@pytest.mark.parametrize("kind", GOOD)
def test_trailing_bytes_pass(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(GOOD[kind][0] + b"\0junk\xff" * 20)
    assert diagnose(path) is None


GIF = encoded(RGB.convert("P"), "GIF")
damaged_png = bytearray(PNG)
damaged_png[len(PNG) // 2] ^= 0xFF
BAD = [
    (JPEG[: len(JPEG) // 2], r"truncated JPEG \(no end-of-image marker\)"),
    (JPEG[:-2], r"truncated JPEG \(no end-of-image marker\)"),
    (JPEG[:-2] + b"\0" * 4096, r"truncated JPEG \(no end-of-image marker\)"),
    (exif_with_thumbnail()[:-300], r"truncated JPEG \(no end-of-image marker\)"),
    (JPEG[:200], r"truncated JPEG"),
    (JPEG[:8], r"truncated JPEG \(no image size in the header\)"),
    (b"", "empty file"),
    (b"\n <!DOCTYPE html><html>404</html>", "is HTML, not an image"),
    (b"not found", "is text, not an image"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs pointer, not the image"),
    (PNG[: len(PNG) // 2], "truncated PNG"),
    (PNG[:-12], "truncated PNG"),
    (bytes(damaged_png), r"damaged PNG \(checksum of 'IDAT'\)"),
    (PNG[:33] + PNG[-12:], r"damaged PNG \(no image data\)"),
    (GIF, r"GIF \(not decodable by DALI\)"),
    (encoded(RGB.convert("P"), "GIF", **MANY), r"GIF \(not decodable by DALI\)"),
    (b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miafMA1B", r"AVIF \(not decodable by DALI\)"),
    (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", r"HEIC \(not decodable by DALI\)"),
    (encoded(RGB.convert("1"), "TIFF"), r"TIFF without a BitsPerSample field"),
    (GOOD["webp"][0][:500], r"damaged WEBP"),
    (GOOD["tiff"][0][:3000], r"damaged TIFF|truncated TIFF"),
    (GOOD["bmp"][0][:3000], r"damaged BMP"),
    (GOOD["pnm"][0][:3000], r"damaged PNM"),
    (GOOD["jp2"][0][:800], r"damaged JP2"),
    (b"\x47\x41\x00\x01\x02", "unknown bytes 47 41 00 01 02"),
    (b"\n" + JPEG, "unknown bytes 0a ff d8"),
]


@pytest.mark.parametrize(("data", "reason"), BAD)
def test_bad_images_are_told_apart(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(data)
    found = diagnose(path)
    assert found is not None
    assert re.match(reason, found), found
    assert "\n" not in found


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def test_a_huge_image_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"0")) + chunk(b"IEND", b""))
    assert header_size(path) == (60000, 60000)
    assert diagnose(path) == "header claims 60000×60000 (3600 Mpx, limit 179 Mpx)"
    assert MAX_PIXELS == 2 * Image.MAX_IMAGE_PIXELS  # beyond which Pillow refuses to open it


@pytest.mark.parametrize("size", [(1, 1), (1, 2000), (2000, 1)])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "BMP", "PPM"])
def test_tiny_and_thin_images_pass(tmp_path: Path, size: tuple[int, int], form: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(encoded(picture(*size), form))
    assert header_size(path) == size
    assert diagnose(path) is None


def test_a_zero_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P6 0 5 255\n")
    assert diagnose(path) == "header claims 0×5"


def test_size_after_long_metadata_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(JPEG[:2] + (b"\xff\xe2" + struct.pack(">H", 60002) + b"m" * 60000) * 2 + JPEG[2:])
    assert header_size(path) == (60, 40)


def test_unreadable_files(tmp_path: Path) -> None:
    assert diagnose(tmp_path / "none.jpg") == "unreadable: no such file or directory"
    assert diagnose(tmp_path) == "unreadable: is a directory"
    with pytest.raises(FileNotFoundError):
        header_size(tmp_path / "none.jpg")


def test_rows_from_the_top_in_a_bmp() -> None:
    data = bytearray(GOOD["bmp"][0])
    data[22:26] = struct.pack("<i", -40)
    assert size_of(bytes(data)) == (60, 40)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_no_bytes_make_it_fall_over(case: tuple[str, bytes], data: st.DataObject) -> None:
    content = bytearray(case[1][: data.draw(st.integers(0, 400))])
    for position in data.draw(st.lists(st.integers(0, max(len(content) - 1, 0)), max_size=8)):
        if content:
            content[position] = data.draw(st.integers(0, 255))
    sniff(bytes(content))
    size = size_of(bytes(content))
    assert size is None or all(isinstance(side, int) for side in size)
