"""Augmentation: draw the random numbers on the host, apply them in a native op."""

from lightning_gpuaug.augment.draw import Draws, draw
from lightning_gpuaug.augment.params import Params, sample_params

__all__ = ["Draws", "Params", "draw", "sample_params"]
