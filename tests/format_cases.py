"""Image files of every kind, and what each should look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

ORIENTATION = 0x0112


def photo(width: int = 80, height: int = 60) -> Image.Image:
    """Smooth, coloured, not symmetric under any flip or rotation."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 200 / width + 20, y * 200 / height + 20, 120 + 60 * np.sin(x / 9) * np.cos(y / 7)], axis=-1)
    return Image.fromarray(rgb.clip(0, 255).astype(np.uint8))


def write_formats(folder: Path) -> dict[str, Image.Image]:
    """Write one file of each kind; name to what it shows, in RGB."""
    folder.mkdir(parents=True, exist_ok=True)
    rgb, grey = photo(), photo().convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    saved: dict[str, tuple[Image.Image, dict[str, object]]] = {
        "cmyk.jpg": (rgb.convert("CMYK"), {"quality": 95}),
        "grey.jpg": (grey, {"quality": 95}),
        "progressive.jpg": (rgb, {"quality": 95, "progressive": True}),
        "plain.JPEG": (rgb, {"quality": 95}),
        "grey.png": (grey, {}),
        "palette.png": (rgb.quantize(64), {}),
        "rgba.png": (rgb.convert("RGBA"), {}),
        "grey_alpha.png": (grey.convert("LA"), {}),
        "deep.png": (deep, {}),
        "picture.webp": (rgb, {"lossless": True}),
        "page.tiff": (rgb, {}),
        "bitmap.bmp": (rgb, {}),
        "portable.ppm": (rgb, {}),
    }
    shown = {}
    for name, (image, options) in saved.items():
        image.save(folder / name, **options)
        shown[name] = grey.convert("RGB") if name == "deep.png" else Image.open(folder / name).convert("RGB")
    rgb.save(folder / "x.png")
    (folder / "x.png").rename(folder / "png_named.jpg")
    shown["png_named.jpg"] = rgb
    pages = [rgb, photo().rotate(180)]
    pages[0].save(folder / "pages.tiff", save_all=True, append_images=pages[1:])
    pages[0].save(folder / "moving.webp", save_all=True, append_images=pages[1:], lossless=True, duration=100)
    shown["pages.tiff"] = shown["moving.webp"] = rgb
    return shown


def write_oriented(folder: Path) -> dict[str, Image.Image]:
    """JPEGs with every EXIF orientation; name to what a viewer that respects it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        name = f"orientation{orientation}.jpg"
        photo().save(folder / name, exif=exif, quality=95)
        from PIL import ImageOps

        shown[name] = ImageOps.exif_transpose(Image.open(folder / name)).convert("RGB")
    return shown


def evaluated(image: Image.Image, size: int) -> torch.Tensor:
    """(3, size, size) uint8: torchvision's evaluation transform with Pillow."""
    transform = T.Compose([T.Resize(round(size / 0.875)), T.CenterCrop(size), T.PILToTensor()])
    return transform(image)
