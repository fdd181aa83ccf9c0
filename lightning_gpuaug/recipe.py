"""What happens to the pixels: frozen, validated descriptions that know nothing of how they are executed.

A recipe is plain data (standard library only), so that it can be written in YAML, compared, hashed into a
checkpoint and read by a person. Errors name the field, the rule and the value received.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

Interpolation = Literal["nearest", "bilinear", "bicubic"]
INTERPOLATIONS: tuple[str, ...] = ("nearest", "bilinear", "bicubic")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def _require(condition: bool, name: str, rule: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{name} {rule}, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(name: str, value: Sequence[float], count: int, rule: str) -> tuple[float, ...]:
    """`value` as a tuple of floats, so that recipes from Python and from YAML compare equal."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    _require(listed and len(value) == count and all(map(_is_number, value)), name, rule, value)
    return tuple(map(float, value))


def _range(name: str, value: Sequence[float], most: float | None = None) -> tuple[float, float]:
    rule = "must be two numbers 0 < a ≤ b" + (f" ≤ {most:g}" if most is not None else "")
    low, high = _numbers(name, value, 2, rule)
    _require(0 < low <= high and (most is None or high <= most), name, rule, value)
    return low, high


def _check_switch(name: str, value: bool) -> None:
    _require(isinstance(value, bool), name, "must be True or False", value)


def _check_step(name: str, value: object, kind: type) -> None:
    _require(value is None or isinstance(value, kind), name, f"must be a {kind.__name__} or None", value)


def _check_resampling(owner: str, interpolation: str, antialias: bool) -> None:
    _require(
        interpolation in INTERPOLATIONS, f"{owner}.interpolation", f"must be one of {INTERPOLATIONS}", interpolation
    )
    _check_switch(f"{owner}.antialias", antialias)


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
        object.__setattr__(self, "scale", _range("RandomResizedCrop.scale", self.scale, 1.0))
        object.__setattr__(self, "ratio", _range("RandomResizedCrop.ratio", self.ratio))
        _check_resampling("RandomResizedCrop", self.interpolation, self.antialias)


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
        mean = _numbers("Normalize.mean", self.mean, 3, "must be three numbers")
        std = _numbers("Normalize.std", self.std, 3, "must be three positive numbers")
        _require(min(std) > 0, "Normalize.std", "must be three positive numbers", self.std)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)


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
        _check_step("TrainRecipe.crop", self.crop, RandomResizedCrop)
        _require(_is_number(self.hflip) and 0.0 <= self.hflip <= 1.0, "TrainRecipe.hflip",
                 "must be a probability in 0..1", self.hflip)  # fmt: skip
        _check_step("TrainRecipe.normalize", self.normalize, Normalize)
        _check_switch("TrainRecipe.exif_orientation", self.exif_orientation)


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
        rule = "must be a number in (0, 1]"
        _require(_is_number(self.crop_ratio) and 0.0 < self.crop_ratio <= 1.0, "EvalRecipe.crop_ratio", rule,
                 self.crop_ratio)  # fmt: skip
        _check_resampling("EvalRecipe", self.interpolation, self.antialias)
        _check_step("EvalRecipe.normalize", self.normalize, Normalize)
        _check_switch("EvalRecipe.exif_orientation", self.exif_orientation)
