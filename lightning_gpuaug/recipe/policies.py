"""Policies of random ops in torchvision's definitions, and their short names. timm's are strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning_gpuaug.recipe.checks import (
    Interpolation,
    check_interpolation,
    check_switch,
    check_whole,
    is_number,
    is_whole,
    pixel,
    require,
)

AUTOAUGMENT_POLICIES = ("imagenet", "cifar10", "svhn")

MOST_CHAINS = 4
MOST_OPS = 10
"""AugMix chains, and ops of all chains together, that a sample's program has room for."""


def _check_bins(name: str, value: int) -> None:
    require(is_whole(value) and value >= 2, name, "must be a whole number of at least 2", value)


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
        check_whole("RandAugment.num_ops", self.num_ops, 1, MOST_OPS)
        _check_bins("RandAugment.num_magnitude_bins", self.num_magnitude_bins)
        check_whole("RandAugment.magnitude", self.magnitude, 0, self.num_magnitude_bins - 1)
        check_interpolation("RandAugment.interpolation", self.interpolation)
        object.__setattr__(self, "fill", pixel("RandAugment.fill", self.fill))


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
        require(self.policy in AUTOAUGMENT_POLICIES, "AutoAugment.policy", f"must be one of {AUTOAUGMENT_POLICIES}",
                self.policy)  # fmt: skip
        check_interpolation("AutoAugment.interpolation", self.interpolation)
        object.__setattr__(self, "fill", pixel("AutoAugment.fill", self.fill))


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
        _check_bins("TrivialAugmentWide.bins", self.bins)
        check_interpolation("TrivialAugmentWide.interpolation", self.interpolation)
        object.__setattr__(self, "fill", pixel("TrivialAugmentWide.fill", self.fill))


@dataclass(frozen=True)
class AugMix:
    """A random mixture of the image and of several chains of ops (torchvision's `AugMix`).

    Attributes:
        severity: largest magnitude, 1..10.
        mixture_width: chains, 1..4; four need a `chain_depth` of 1 or 2.
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
        check_whole("AugMix.severity", self.severity, 1, 10)
        check_whole("AugMix.mixture_width", self.mixture_width, 1, MOST_CHAINS)
        require(is_whole(self.chain_depth) and self.chain_depth in (-1, 1, 2, 3), "AugMix.chain_depth",
                "must be -1, 1, 2 or 3", self.chain_depth)  # fmt: skip
        deepest = 3 if self.chain_depth == -1 else self.chain_depth
        require(self.mixture_width * deepest <= MOST_OPS, "AugMix.chain_depth",
                f"must be 1 or 2 with {self.mixture_width} chains", self.chain_depth)  # fmt: skip
        require(is_number(self.alpha) and self.alpha > 0, "AugMix.alpha", "must be above 0 and finite", self.alpha)
        check_switch("AugMix.all_ops", self.all_ops)
        check_interpolation("AugMix.interpolation", self.interpolation)
        object.__setattr__(self, "fill", pixel("AugMix.fill", self.fill))


AutoPolicy = RandAugment | AutoAugment | TrivialAugmentWide | AugMix
NAMED_POLICIES: dict[str, AutoPolicy] = {
    **{policy.__class__.__name__: policy for policy in (RandAugment(), AutoAugment(), TrivialAugmentWide(), AugMix())},
    # As torchvision's training reference has them: its names, its interpolation.
    "ra": RandAugment(interpolation="bilinear"),
    "ta_wide": TrivialAugmentWide(interpolation="bilinear"),
    "imagenet": AutoAugment("imagenet", interpolation="bilinear"),
    "cifar10": AutoAugment("cifar10", interpolation="bilinear"),
    "svhn": AutoAugment("svhn", interpolation="bilinear"),
    "augmix": AugMix(interpolation="bilinear"),
}
