"""Tiny image data sets for tests: sample `i` carries label `i`, so a batch's targets say which samples it holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from lightning_gpuaug.sources import FileList


def pixels(index: int, size: tuple[int, int] = (12, 10)) -> np.ndarray:
    """(H, W, 3) uint8 that differ from one index to the next."""
    rng = np.random.default_rng(index)
    base = rng.integers(0, 256, (1, 1, 3))
    ramp = np.linspace(-40, 40, size[0] * size[1]).reshape(*size, 1)
    return np.clip(base + ramp, 0, 255).astype(np.uint8)


def write_images(folder: Path, count: int, size: tuple[int, int] = (12, 10)) -> list[Path]:
    """`count` JPEGs `000000.jpg`…"""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i:06d}.jpg" for i in range(count)]
    for i, path in enumerate(paths):
        Image.fromarray(pixels(i, size)).save(path, quality=90)
    return paths


def numbered(folder: Path, count: int) -> FileList:
    """A data set of `count` samples, sample i labelled i."""
    paths = write_images(folder / "images", max(count, 1))
    listing = folder / f"list{count}.txt"
    listing.write_text("".join(f"{path} {i}\n" for i, path in enumerate(paths[:count])))
    return FileList(listing)
