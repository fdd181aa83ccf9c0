"""What happens to the pixels: frozen, validated descriptions that know nothing of how they are executed.

A recipe is plain data (standard library only), so that it can be written in YAML, compared, hashed into a
checkpoint and read by a person. Errors name the field, the rule and the value received.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal

Interpolation = Literal["nearest", "bilinear", "bicubic"]
INTERPOLATIONS: tuple[str, ...] = ("nearest", "bilinear", "bicubic")

AUTOAUGMENT_POLICIES = ("imagenet", "cifar10", "svhn")
ERASE_MODES = ("constant", "color", "noise")
MIX_MODES = ("batch", "sample")
TIMM_POLICY = re.compile(r"(rand|augmix|v0r?|originalr?|3a)(-[a-z]+[0-9a-z.]*)*")

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


def _check_probability(name: str, value: float) -> None:
    _require(_is_number(value) and 0.0 <= value <= 1.0, name, "must be a probability in 0..1", value)


def _pixel(name: str, value: Sequence[int]) -> tuple[int, ...]:
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    _require(listed and len(value) == 3 and all(isinstance(v, int) and 0 <= v <= 255 for v in value), name,
             "must be three integers in 0..255", value)  # fmt: skip
    return tuple(value)


def _check_warp_interpolation(name: str, value: str) -> None:
    _require(value in INTERPOLATIONS, name, f"must be one of {INTERPOLATIONS}", value)


@dataclass(frozen=True)
class RandAugment:
    """A fixed number of ops drawn with replacement, all at one magnitude (torchvision's `RandAugment`).

    timm's own version is the string `auto="rand-m9-mstd0.5-inc1"` on `TrainRecipe`.

    Attributes:
        num_ops: ops a sample, 1..10.
        magnitude: 0..num_magnitude_bins - 1.
        num_magnitude_bins: steps of the magnitude scale, at least 2.
        interpolation: of the warps.
        fill: of uncovered pixels, three integers in 0..255.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(1 <= self.num_ops <= 10, "RandAugment.num_ops", "must be in 1..10", self.num_ops)
        _require(self.num_magnitude_bins >= 2, "RandAugment.num_magnitude_bins", "must be at least 2",
                 self.num_magnitude_bins)  # fmt: skip
        _require(0 <= self.magnitude < self.num_magnitude_bins, "RandAugment.magnitude",
                 f"must be in 0..{self.num_magnitude_bins - 1}", self.magnitude)  # fmt: skip
        _check_warp_interpolation("RandAugment.interpolation", self.interpolation)
        object.__setattr__(self, "fill", _pixel("RandAugment.fill", self.fill))


@dataclass(frozen=True)
class AutoAugment:
    """A pair of ops drawn from a learned policy (torchvision's `AutoAugment`).

    Attributes:
        policy: "imagenet", "cifar10" or "svhn".
        interpolation: of the warps.
        fill: of uncovered pixels, three integers in 0..255.
    """

    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"
    interpolation: Interpolation = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(self.policy in AUTOAUGMENT_POLICIES, "AutoAugment.policy", f"must be one of {AUTOAUGMENT_POLICIES}",
                 self.policy)  # fmt: skip
        _check_warp_interpolation("AutoAugment.interpolation", self.interpolation)
        object.__setattr__(self, "fill", _pixel("AutoAugment.fill", self.fill))


@dataclass(frozen=True)
class TrivialAugmentWide:
    """One op at a random magnitude from a wide range (torchvision's `TrivialAugmentWide`).

    Attributes:
        bins: steps of the magnitude scale, at least 2.
        interpolation: of the warps.
        fill: of uncovered pixels, three integers in 0..255.
    """

    bins: int = 31
    interpolation: Interpolation = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(self.bins >= 2, "TrivialAugmentWide.bins", "must be at least 2",
                 self.bins)  # fmt: skip
        _check_warp_interpolation("TrivialAugmentWide.interpolation", self.interpolation)
        object.__setattr__(self, "fill", _pixel("TrivialAugmentWide.fill", self.fill))


@dataclass(frozen=True)
class AugMix:
    """A random mixture of the image and of several chains of ops (torchvision's `AugMix`).

    Attributes:
        severity: largest magnitude, 1..10.
        mixture_width: chains, 1..3.
        chain_depth: ops a chain, 1..3; -1 draws 1, 2 or 3 for each chain.
        alpha: of the Dirichlet distributions of the weights, above 0.
        all_ops: brightness, colour, contrast and sharpness as well.
        interpolation: of the warps.
        fill: of uncovered pixels, three integers in 0..255.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Interpolation = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Validate every field."""
        _require(1 <= self.severity <= 10, "AugMix.severity", "must be in 1..10", self.severity)
        _require(1 <= self.mixture_width <= 3, "AugMix.mixture_width", "must be in 1..3", self.mixture_width)
        _require(self.chain_depth in (-1, 1, 2, 3), "AugMix.chain_depth", "must be -1, 1, 2 or 3", self.chain_depth)
        _require(0 < self.alpha < float("inf"), "AugMix.alpha", "must be above 0 and finite", self.alpha)
        _check_warp_interpolation("AugMix.interpolation", self.interpolation)
        object.__setattr__(self, "fill", _pixel("AugMix.fill", self.fill))


def _jitter_range(
    name: str, value: float | tuple[float, float], centre: float, low: float, high: float
) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        _require(0 <= value <= high, name, f"must be in 0..{high:g} or a pair", value)
        return (max(centre - value, low), centre + value)
    _require(len(value) == 2 and low <= value[0] <= value[1] <= high, name,
             f"must be a number or two numbers a ≤ b in {low:g}..{high:g}", value)  # fmt: skip
    return (float(value[0]), float(value[1]))


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
        self.ranges()
        _check_probability("ColorJitter.probability", self.probability)

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
        _require(self.kernel_size % 2 == 1 and 1 <= self.kernel_size <= 63, "GaussianBlur.kernel_size",
                 "must be odd and in 1..63", self.kernel_size)  # fmt: skip
        object.__setattr__(self, "sigma", _range("GaussianBlur.sigma", self.sigma, 1000))
        _check_probability("GaussianBlur.probability", self.probability)


@dataclass(frozen=True)
class RandomErasing:
    """A random rectangle of the normalised image is overwritten (torchvision's and timm's `RandomErasing`).

    Attributes:
        probability: of the step.
        scale: share of the image's area.
        ratio: height / width of the rectangle.
        mode: "constant" writes `value`, "color" one random normal colour, "noise" a random normal value a pixel.
        value: three numbers in units of the normalised image; 0 is the mean colour.
    """

    probability: float = 0.25
    scale: tuple[float, float] = (0.02, 0.33)
    ratio: tuple[float, float] = (0.3, 3.3)
    mode: Literal["constant", "color", "noise"] = "constant"
    value: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        """Validate every field."""
        _check_probability("RandomErasing.probability", self.probability)
        object.__setattr__(self, "scale", _range("RandomErasing.scale", self.scale, 1))
        object.__setattr__(self, "ratio", _range("RandomErasing.ratio", self.ratio))
        _require(self.mode in ERASE_MODES, "RandomErasing.mode", f"must be one of {ERASE_MODES}", self.mode)
        value = _numbers("RandomErasing.value", self.value, 3, "must be three finite numbers")
        object.__setattr__(self, "value", value)


@dataclass(frozen=True)
class Mix:
    """MixUp and CutMix between sample i and sample N - 1 - i of the batch (timm's `Mixup`).

    The labels have to be mixed with the same shares: `sample_params` hands them over.

    Attributes:
        mixup_alpha: of the Beta distribution of MixUp's share; 0 switches MixUp off.
        cutmix_alpha: of the Beta distribution of CutMix's share; 0 switches CutMix off.
        probability: of mixing at all.
        switch_probability: of CutMix where both are on.
        mode: "batch" draws once for the batch, "sample" for each sample.
    """

    mixup_alpha: float = 0.2
    cutmix_alpha: float = 1.0
    probability: float = 1.0
    switch_probability: float = 0.5
    mode: Literal["batch", "sample"] = "batch"

    def __post_init__(self) -> None:
        """Validate every field."""
        for name in ("mixup_alpha", "cutmix_alpha"):
            _require(0 <= getattr(self, name) < float("inf"), f"Mix.{name}", "must be at least 0 and finite",
                     getattr(self, name))  # fmt: skip
        _require(self.mixup_alpha > 0 or self.cutmix_alpha > 0, "Mix", "must have an alpha above 0", self.mixup_alpha)
        for name in ("probability", "switch_probability"):
            _check_probability(f"Mix.{name}", getattr(self, name))
        _require(self.mode in MIX_MODES, "Mix.mode", f"must be one of {MIX_MODES}", self.mode)


AutoPolicy = RandAugment | AutoAugment | TrivialAugmentWide | AugMix
NAMED_POLICIES: dict[str, AutoPolicy] = {
    policy.__class__.__name__: policy for policy in (RandAugment(), AutoAugment(), TrivialAugmentWide(), AugMix())
}


@dataclass(frozen=True)
class TrainRecipe:
    """Training, in this order: crop, flip, auto, color_jitter, grayscale, blur, normalise, erase, mix.

    Attributes:
        crop: the random resized crop, or None to resize the whole image (aspect ratio not kept).
        hflip: probability of a horizontal flip, 0..1.
        vflip: probability of a vertical flip, 0..1.
        auto: a policy of random ops: `RandAugment`, `AutoAugment`, `TrivialAugmentWide` or `AugMix` in torchvision's
            definitions, or the name of one for its defaults; or a string in timm's definitions: "rand-m9-mstd0.5-inc1",
            "v0", "original-mstd0.5", "3a", "augmix-m5-w3".
        color_jitter: random brightness, contrast, saturation and hue; not together with AugMix.
        grayscale: probability of turning the image grey, 0..1.
        blur: Gaussian blur.
        erasing: random erasing.
        mix: MixUp and CutMix.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        exif_orientation: rotate as the EXIF tag says. Off by default, as PIL and torchvision's ImageFolder behave.
    """

    crop: RandomResizedCrop | None = field(default_factory=RandomResizedCrop)
    hflip: float = 0.5
    normalize: Normalize | None = field(default_factory=Normalize)
    exif_orientation: bool = False
    vflip: float = 0.0
    auto: AutoPolicy | str | None = None
    color_jitter: ColorJitter | None = None
    grayscale: float = 0.0
    blur: GaussianBlur | None = None
    erasing: RandomErasing | None = None
    mix: Mix | None = None

    @property
    def resample(self) -> RandomResizedCrop:
        """Interpolation and antialias of the resize, with or without a random crop."""
        return self.crop or RandomResizedCrop()

    @property
    def needs_program(self) -> bool:
        """Whether more happens to the pixels than crop, horizontal flip and normalise."""
        steps = (self.auto, self.color_jitter, self.blur, self.erasing, self.mix)
        return any(step is not None for step in steps) or self.vflip > 0 or self.grayscale > 0

    def __post_init__(self) -> None:
        """Validate every field."""
        _check_step("TrainRecipe.crop", self.crop, RandomResizedCrop)
        for name in ("hflip", "vflip", "grayscale"):
            _check_probability(f"TrainRecipe.{name}", getattr(self, name))
        _check_step("TrainRecipe.normalize", self.normalize, Normalize)
        _check_switch("TrainRecipe.exif_orientation", self.exif_orientation)
        _check_step("TrainRecipe.color_jitter", self.color_jitter, ColorJitter)
        _check_step("TrainRecipe.blur", self.blur, GaussianBlur)
        _check_step("TrainRecipe.erasing", self.erasing, RandomErasing)
        _check_step("TrainRecipe.mix", self.mix, Mix)
        _require(self.auto is None or isinstance(self.auto, AutoPolicy | str), "TrainRecipe.auto",
                 "must be a policy, a timm string or None", self.auto)  # fmt: skip
        if isinstance(self.auto, str):
            known = self.auto in NAMED_POLICIES or TIMM_POLICY.fullmatch(self.auto) is not None
            _require(known, "TrainRecipe.auto",
                     f"must be one of {tuple(NAMED_POLICIES)} or a timm policy such as 'rand-m9-mstd0.5-inc1'",
                     self.auto)  # fmt: skip
        if isinstance(self.auto, AugMix) or (isinstance(self.auto, str) and self.auto.lower().startswith("augmix")):
            _require(self.color_jitter is None and self.grayscale == 0 and self.blur is None, "TrainRecipe.auto",
                     "must not be AugMix together with color_jitter, grayscale or blur", self.auto)  # fmt: skip


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
