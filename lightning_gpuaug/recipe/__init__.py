"""What happens to the pixels: frozen, validated descriptions that know nothing of how they are executed.

A recipe is plain data (standard library only), so that it can be written in YAML, compared, hashed into a
checkpoint and read by a person. Errors name the field, the rule and the value received.
"""

from __future__ import annotations

from lightning_gpuaug.recipe.checks import INTERPOLATIONS, Interpolation
from lightning_gpuaug.recipe.evaluation import EvalRecipe
from lightning_gpuaug.recipe.policies import (
    AUTOAUGMENT_POLICIES,
    NAMED_POLICIES,
    AugMix,
    AutoAugment,
    AutoPolicy,
    RandAugment,
    TrivialAugmentWide,
)
from lightning_gpuaug.recipe.policy_strings import PolicyString, read_policy
from lightning_gpuaug.recipe.sizes import SizeRamp
from lightning_gpuaug.recipe.steps import (
    ERASE_MODES,
    IMAGENET_MEAN,
    IMAGENET_STD,
    MIX_MODES,
    ColorJitter,
    GaussianBlur,
    Mix,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Solarize,
)
from lightning_gpuaug.recipe.training import MOST_REPEATS, MOST_SPLITS, MOST_VIEWS, TrainRecipe, View

__all__ = [
    "AUTOAUGMENT_POLICIES",
    "ERASE_MODES",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "INTERPOLATIONS",
    "MIX_MODES",
    "MOST_REPEATS",
    "MOST_SPLITS",
    "MOST_VIEWS",
    "NAMED_POLICIES",
    "AugMix",
    "AutoAugment",
    "AutoPolicy",
    "ColorJitter",
    "EvalRecipe",
    "GaussianBlur",
    "Interpolation",
    "Mix",
    "Normalize",
    "PolicyString",
    "RandAugment",
    "RandomErasing",
    "RandomResizedCrop",
    "SizeRamp",
    "Solarize",
    "TrainRecipe",
    "TrivialAugmentWide",
    "View",
    "read_policy",
]
