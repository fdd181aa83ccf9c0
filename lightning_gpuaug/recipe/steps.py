"""The steps of a recipe: what may happen to a sample, each a frozen, validated description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lightning_gpuaug.recipe.checks import (
    Interpolation,
    check_probability,
    check_resampling,
    is_number,
    is_whole,
    numbers,
    positive_range,
    require,
)

ERASE_MODES = ("const", "rand", "pixel")
MIX_MODES = ("batch", "pair", "elem")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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
        object.__setattr__(self, "scale", positive_range("RandomResizedCrop.scale", self.scale, 1.0))
        object.__setattr__(self, "ratio", positive_range("RandomResizedCrop.ratio", self.ratio))
        check_resampling("RandomResizedCrop", self.interpolation, self.antialias)


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
        mean = numbers("Normalize.mean", self.mean, 3, "must be three numbers")
        std = numbers("Normalize.std", self.std, 3, "must be three positive numbers")
        require(min(std) > 0, "Normalize.std", "must be three positive numbers", self.std)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)


def _jitter_range(
    name: str, value: float | tuple[float, float], centre: float, low: float, high: float
) -> tuple[float, float]:
    rule = f"must be a finite number in 0..{high:g} or a pair a ≤ b in {low:g}..{high:g}"
    if not isinstance(value, Sequence):
        require(is_number(value) and 0 <= value <= high, name, rule, value)
        return (max(centre - value, low), centre + value)
    first, second = numbers(name, value, 2, rule)
    require(low <= first <= second <= high, name, rule, value)
    return (first, second)


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast, saturation and hue changed by random amounts, in random order, as torchvision does it.

    A single number b stands for factors in [max(0, 1 - b), 1 + b], and for hue for turns in [-b, b]; a pair is the
    range itself. 0 switches a step off.

    Attributes:
        brightness: at least 0.
        contrast: at least 0.
        saturation: at least 0.
        hue: in shares of the colour circle, at most 0.5.
        probability: of the whole step.
    """

    brightness: float | tuple[float, float] = 0.4
    contrast: float | tuple[float, float] = 0.4
    saturation: float | tuple[float, float] = 0.4
    hue: float | tuple[float, float] = 0.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        """Validate every field."""
        for name, used in zip(("brightness", "contrast", "saturation", "hue"), self.ranges(), strict=True):
            if isinstance(getattr(self, name), Sequence):
                object.__setattr__(self, name, used)
        check_probability("ColorJitter.probability", self.probability)

    def ranges(self) -> tuple[tuple[float, float], ...]:
        """The ranges of the three factors and of the turn."""
        infinity = float("inf")
        return (
            _jitter_range("ColorJitter.brightness", self.brightness, 1.0, 0.0, infinity),
            _jitter_range("ColorJitter.contrast", self.contrast, 1.0, 0.0, infinity),
            _jitter_range("ColorJitter.saturation", self.saturation, 1.0, 0.0, infinity),
            _jitter_range("ColorJitter.hue", self.hue, 0.0, -0.5, 0.5),
        )


@dataclass(frozen=True)
class GaussianBlur:
    """Gaussian blur with a random sigma.

    Attributes:
        kernel_size: odd, at most 63 pixels.
        sigma: range in pixels, two numbers above 0.
        probability: of the step.
    """

    kernel_size: int = 23
    sigma: tuple[float, float] = (0.1, 2.0)
    probability: float = 0.5

    def __post_init__(self) -> None:
        """Validate every field."""
        odd = is_whole(self.kernel_size) and self.kernel_size % 2 == 1
        require(odd and 1 <= self.kernel_size <= 63, "GaussianBlur.kernel_size", "must be odd and in 1..63",
                self.kernel_size)  # fmt: skip
        object.__setattr__(self, "sigma", positive_range("GaussianBlur.sigma", self.sigma, 1000))
        check_probability("GaussianBlur.probability", self.probability)


@dataclass(frozen=True)
class Solarize:
    """Levels at or above a threshold are inverted (torchvision's `RandomSolarize`; BYOL and DINO use it).

    Attributes:
        threshold: 0..256; 256 inverts nothing.
        probability: of the step.
    """

    threshold: float = 128.0
    probability: float = 0.2

    def __post_init__(self) -> None:
        """Validate every field."""
        require(is_number(self.threshold) and 0 <= self.threshold <= 256, "Solarize.threshold",
                "must be a number in 0..256", self.threshold)  # fmt: skip
        object.__setattr__(self, "threshold", float(self.threshold))
        check_probability("Solarize.probability", self.probability)


@dataclass(frozen=True)
class RandomErasing:
    """A random rectangle of the normalised image is overwritten (torchvision's and timm's `RandomErasing`).

    Attributes:
        probability: of the step.
        scale: share of the image's area.
        ratio: height / width of the rectangle.
        mode: as timm names them: "const" writes `value`, "rand" one random normal colour, "pixel" a random normal value
            for every pixel and channel.
        value: three numbers in units of the normalised image; 0 is the mean colour.
    """

    probability: float = 0.25
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    mode: Literal["const", "rand", "pixel"] = "const"
    value: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        """Validate every field."""
        check_probability("RandomErasing.probability", self.probability)
        object.__setattr__(self, "scale", positive_range("RandomErasing.scale", self.scale, 1))
        object.__setattr__(self, "ratio", positive_range("RandomErasing.ratio", self.ratio))
        require(self.mode in ERASE_MODES, "RandomErasing.mode", f"must be one of {ERASE_MODES}", self.mode)
        value = numbers("RandomErasing.value", self.value, 3, "must be three finite numbers")
        object.__setattr__(self, "value", value)


@dataclass(frozen=True)
class Mix:
    """MixUp and CutMix between sample i and sample N - 1 - i of the batch (timm's `Mixup`).

    Targets become float32 (N, classes), mixed with the same shares as the pixels.

    Attributes:
        mixup_alpha: of the Beta distribution of MixUp's share; 0 switches MixUp off.
        cutmix_alpha: of the Beta distribution of CutMix's share; 0 switches CutMix off.
        probability: of mixing at all.
        switch_probability: of CutMix where both are on.
        mode: "batch" draws once for the batch, "pair" once for the two samples of a pair, "elem" for each sample.
        label_smoothing: share of each target that is spread evenly over the classes, in [0, 1); of a multi-label
            target, how far it moves towards 1/2. Where the model's loss smooths labels already (`Classifier` has
            `label_smoothing`), leave this at 0: the two add up.
    """

    mixup_alpha: float = 0.2
    cutmix_alpha: float = 1.0
    probability: float = 1.0
    switch_probability: float = 0.5
    mode: Literal["batch", "pair", "elem"] = "batch"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        """Validate every field."""
        for name in ("mixup_alpha", "cutmix_alpha"):
            alpha = getattr(self, name)
            require(is_number(alpha) and alpha >= 0, f"Mix.{name}", "must be at least 0 and finite", alpha)
        require(self.mixup_alpha > 0 or self.cutmix_alpha > 0, "Mix", "must have an alpha above 0", self.mixup_alpha)
        for name in ("probability", "switch_probability"):
            check_probability(f"Mix.{name}", getattr(self, name))
        require(self.mode in MIX_MODES, "Mix.mode", f"must be one of {MIX_MODES}", self.mode)
        require(is_number(self.label_smoothing) and 0 <= self.label_smoothing < 1, "Mix.label_smoothing",
                "must be in [0, 1)", self.label_smoothing)  # fmt: skip
