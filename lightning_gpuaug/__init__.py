"""GPU input pipelines for PyTorch Lightning: DALI decoding, native augmentation, callbacks that tell what waits."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from lightning_gpuaug import cuda_queues

cuda_queues.request()  # before anything starts CUDA

if TYPE_CHECKING:
    from lightning_gpuaug import ops
    from lightning_gpuaug.callbacks import BatchPreview, Throughput
    from lightning_gpuaug.classifier import Classifier
    from lightning_gpuaug.data import ImageDataModule
    from lightning_gpuaug.recipe import (
        AugMix,
        AutoAugment,
        ColorJitter,
        EvalRecipe,
        GaussianBlur,
        Mix,
        Normalize,
        RandAugment,
        RandomErasing,
        RandomResizedCrop,
        TrainRecipe,
        TrivialAugmentWide,
    )
    from lightning_gpuaug.sources import FileList, ImageFolder, Synthetic

# Loaded when first used: someone who wants one op should not wait for timm and Lightning.
_HOME = {
    "ImageDataModule": "data",
    "Classifier": "classifier",
    "ImageFolder": "sources",
    "FileList": "sources",
    "Synthetic": "sources",
    "TrainRecipe": "recipe",
    "EvalRecipe": "recipe",
    "RandomResizedCrop": "recipe",
    "Normalize": "recipe",
    "AugMix": "recipe",
    "AutoAugment": "recipe",
    "ColorJitter": "recipe",
    "GaussianBlur": "recipe",
    "Mix": "recipe",
    "RandAugment": "recipe",
    "RandomErasing": "recipe",
    "TrivialAugmentWide": "recipe",
    "BatchPreview": "callbacks",
    "Throughput": "callbacks",
    "ops": "ops",
}

__all__ = [
    "AugMix",
    "AutoAugment",
    "BatchPreview",
    "Classifier",
    "ColorJitter",
    "EvalRecipe",
    "FileList",
    "GaussianBlur",
    "ImageDataModule",
    "ImageFolder",
    "Mix",
    "Normalize",
    "RandAugment",
    "RandomErasing",
    "RandomResizedCrop",
    "Synthetic",
    "Throughput",
    "TrainRecipe",
    "TrivialAugmentWide",
    "ops",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    except AttributeError as error:
        # Python would take it for "there is no such name" and hide what is wrong.
        raise ImportError(f"{__name__}.{name} cannot be imported: {error}") from error
    value = module if name == "ops" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
