"""What happens to the pixels: frozen, validated descriptions that know nothing of how they are executed.

A recipe is plain data (standard library only), so that it can be written in YAML, compared, hashed into a
checkpoint and read by a person. Errors name the field, the rule and the value received.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Interpolation = Literal["nearest", "bilinear", "bicubic"]
INTERPOLATIONS: tuple[str, ...] = ("nearest", "bilinear", "bicubic")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def _require(condition: bool, name: str, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{name} {rule}, got {value!r}")


def _check_range(name: str, value: tuple[float, float], low: float, high: float) -> None:
    rule = f"must be two numbers a ≤ b with {low:g} < a and b ≤ {high:g}"
    _require(len(value) == 2 and low < value[0] <= value[1] <= high, name, rule, value)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random window of the image, resized to the training size.

    The window's area is a uniform share of the image's, its width/height ratio log-uniform; after ten draws that do
    not fit, the largest centred window within `ratio` is taken (the definition of torchvision's
    `RandomResizedCrop`).

    Attributes:
        scale: share of the image's area, two numbers in (0, 1].
        ratio: width / height of the window, two positive numbers.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking, as Pillow does. Off is faster and costs accuracy.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        """Validate every field."""
        _check_range("RandomResizedCrop.scale", self.scale, 0.0, 1.0)
        _check_range("RandomResizedCrop.ratio", self.ratio, 0.0, float("inf"))
        _require(self.interpolation in INTERPOLATIONS, "RandomResizedCrop.interpolation",
                 f"must be one of {INTERPOLATIONS}", self.interpolation)  # fmt: skip


@dataclass(frozen=True)
class Normalize:
    """`(x / 255 - mean) / std` for each of the three channels, x being the uint8 pixel.

    Attributes:
        mean: three numbers on the 0..1 scale (ImageNet's by default).
        std: three positive numbers on the 0..1 scale.
    """

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(len(self.mean) == 3, "Normalize.mean", "must have three numbers", self.mean)
        _require(len(self.std) == 3 and all(s > 0 for s in self.std), "Normalize.std",
                 "must have three positive numbers", self.std)  # fmt: skip


@dataclass(frozen=True)
class TrainRecipe:
    """Training: crop, flip, normalise.

    Attributes:
        crop: the random resized crop, or None to resize the whole image (aspect ratio not kept).
        hflip: probability of a horizontal flip, 0..1.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        exif_orientation: rotate as the EXIF tag says. Off by default, as PIL and torchvision's ImageFolder behave.
    """

    crop: RandomResizedCrop | None = field(default_factory=RandomResizedCrop)
    hflip: float = 0.5
    normalize: Normalize | None = field(default_factory=Normalize)
    exif_orientation: bool = False

    @property
    def resample(self) -> RandomResizedCrop:
        """Interpolation and antialias of the resize, with or without a random crop."""
        return self.crop or RandomResizedCrop()

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(0.0 <= self.hflip <= 1.0, "TrainRecipe.hflip", "must be a probability in 0..1", self.hflip)


@dataclass(frozen=True)
class EvalRecipe:
    """Evaluation: resize the shorter side, take the centre, normalise.

    Attributes:
        crop_ratio: image_size / shorter side after the resize, in (0, 1]; 0.875 resizes to 256 for 224.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking, as Pillow does.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        exif_orientation: rotate as the EXIF tag says.
    """

    crop_ratio: float = 0.875
    interpolation: Interpolation = "bilinear"
    antialias: bool = True
    normalize: Normalize | None = field(default_factory=Normalize)
    exif_orientation: bool = False

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(0.0 < self.crop_ratio <= 1.0, "EvalRecipe.crop_ratio", "must be in (0, 1]", self.crop_ratio)
        _require(self.interpolation in INTERPOLATIONS, "EvalRecipe.interpolation",
                 f"must be one of {INTERPOLATIONS}", self.interpolation)  # fmt: skip
