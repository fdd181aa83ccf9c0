"""Images made smaller before they are packed."""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image

from lightning_gpuaug.sources.imageheader import size_of

DEFAULT_QUALITY = 90
MAX_JPEG_SIDE = 65500
"""Pixels: what libjpeg takes."""
_ORIENTATION = 0x0112


class NoJPEGError(ValueError):
    """A good image that cannot be encoded as a JPEG; the message says why."""


def fitted(data: bytes, shorter_side: int | None, quality: int | None) -> bytes:
    """The image in `data`, as a JPEG if anything has to change, else as it is.

    Args:
        data: an image file.
        shorter_side: pixels; a larger image is resized to it (Lanczos, antialiased), a smaller one never enlarged.
        quality: of the JPEG; given, every image is encoded anew, otherwise only resized ones are, with 90.

    Returns:
        RGB or grey; an alpha channel is dropped, 16 bits become 8. An Exif orientation is kept as a tag, nothing else.

    Raises:
        NoJPEGError: the result has more than 65,500 pixels a side.
        OSError, ValueError, …: Pillow cannot decode it.
    """
    width, height = size_of(data) or (0, 0)
    shrink = shorter_side is not None and min(width, height) > shorter_side
    if not shrink and quality is None:
        return data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of oddities that do not keep it from decoding
        with Image.open(io.BytesIO(data)) as image:
            orientation = image.getexif().get(_ORIENTATION, 1)
            if shrink and shorter_side is not None:
                scale = shorter_side / min(width, height)
                size = max(shorter_side, round(width * scale)), max(shorter_side, round(height * scale))
                # A JPEG decodes to a half, a quarter … at once; with twice the size left, Lanczos decides what is seen.
                image.draft(None, (2 * size[0], 2 * size[1]))
                plain = _plain(image).resize(size, Image.Resampling.LANCZOS)
            else:
                plain = _plain(image)
    if max(plain.size) > MAX_JPEG_SIDE:
        remedy = "" if shrink else "; without --quality it is copied as it is"
        raise NoJPEGError(f"{plain.width}×{plain.height} pixels, a JPEG has at most {MAX_JPEG_SIDE} a side{remedy}")
    exif = Image.Exif()
    if orientation != 1:
        exif[_ORIENTATION] = orientation
    out = io.BytesIO()
    plain.save(out, "JPEG", quality=quality or DEFAULT_QUALITY, exif=exif)
    return out.getvalue()


def _plain(image: Image.Image) -> Image.Image:
    """Grey or RGB, 8 bits."""
    if image.mode in ("L", "RGB"):
        image.load()
        return image
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
        return Image.fromarray((np.asarray(image).astype(np.float64) / 257 + 0.5).clip(0, 255).astype(np.uint8))
    return image.convert("L" if image.mode in ("1", "LA", "La") else "RGB")
