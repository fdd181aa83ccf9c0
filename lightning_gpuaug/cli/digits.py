"""scikit-learn's handwritten digits as a JPEG class-folder tree.

1,797 grey 8x8 images of the digits 0 to 9 (E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI
Machine Learning Repository, 1998), which scikit-learn ships, so that nothing is downloaded.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

IMAGE_SIZE = 32
NUM_CLASSES = 10
NUM_IMAGES = 1797
FEWEST_IMAGES = 30
"""Of the first images, as many as it takes for every class to be in both parts of `split`."""
VAL_SHARE = 0.2
_GREY_LEVELS = 16  # a pixel counts the set bits of a 4x4 block of the original scan: 0..16


@dataclass(frozen=True)
class DigitsTree:
    """Where the images lie: `train/<digit>/<index>.jpg` and `val/<digit>/<index>.jpg`.

    Attributes:
        train: folder of the training classes.
        val: folder of the validation classes.
        written: number of files written (0 when all were there already).
    """

    train: Path
    val: Path
    written: int


def split(labels: np.ndarray, seed: int) -> np.ndarray:
    """Choose the validation images: a fifth of each class, fixed by `seed`.

    Args:
        labels: class of each image, (N,) integers.
        seed: of the permutation within each class.

    Returns:
        (N,) bool, True for validation.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(len(members) * VAL_SHARE)]] = True
    return chosen


def count_training(limit: int | None = None) -> int:
    """Number of training images among the first `limit` (all by default); the same with every seed."""
    return int((~split(load_digits().target[:limit], seed=0)).sum())


def encode(image: np.ndarray, size: int = IMAGE_SIZE) -> bytes:
    """Encode one 8x8 image of grey levels 0..16 as an RGB JPEG of `size`x`size` pixels (bicubic)."""
    grey = np.clip(np.round(image * (255 / _GREY_LEVELS)), 0, 255).astype(np.uint8)
    upscaled = Image.fromarray(grey).resize((size, size), Image.Resampling.BICUBIC).convert("RGB")
    buffer = io.BytesIO()
    upscaled.save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def write_digits(root: Path, *, seed: int = 0, limit: int | None = None) -> DigitsTree:
    """Write the tree under `root`; files that are there already with the same bytes are left alone.

    Args:
        root: folder to write `train` and `val` into. Images of an earlier tree that do not belong are removed.
        seed: of the train/validation split.
        limit: use only the first `limit` images, for quick tests.
    """
    digits = load_digits()
    labels = digits.target[:limit]
    is_val = split(labels, seed)
    wanted: dict[Path, bytes] = {}
    for index, (image, label) in enumerate(zip(digits.images[:limit], labels, strict=True)):
        stage = "val" if is_val[index] else "train"
        wanted[root / stage / str(label) / f"{index:04d}.jpg"] = encode(image)
    present = {path for stage in ("train", "val") for path in (root / stage).glob("*/*.jpg")}
    for path in present - wanted.keys():
        path.unlink()
    missing = [path for path in wanted if path not in present or path.read_bytes() != wanted[path]]
    for path in missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    return DigitsTree(root / "train", root / "val", len(missing))
