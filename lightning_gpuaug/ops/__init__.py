"""Native augmentation ops for PyTorch tensors; plain torch serves where the native libraries are missing.

Everything here works without the rest of the package. The ops are also `torch.ops.lightning_gpuaug.*`.
"""

from lightning_gpuaug.ops import _register  # noqa: F401  (loads the libraries and completes the ops)
from lightning_gpuaug.ops._augment import augment, check_records
from lightning_gpuaug.ops._augment_ragged import augment_list, augment_packed, resized_crop
from lightning_gpuaug.ops._image_sizes import image_sizes
from lightning_gpuaug.ops._info import backend, build_info
from lightning_gpuaug.ops._normalize import normalize
from lightning_gpuaug.ops._resize_packed import resize_packed
from lightning_gpuaug.ops._single import (
    autocontrast,
    brightness,
    color_matrix,
    contrast,
    equalize,
    erase,
    gamma,
    gaussian_blur,
    grayscale,
    hue,
    image_stats,
    invert,
    lut,
    mix,
    posterize,
    saturation,
    sharpness,
    solarize,
    solarize_add,
)

__all__ = [
    "augment",
    "augment_list",
    "augment_packed",
    "autocontrast",
    "backend",
    "brightness",
    "build_info",
    "check_records",
    "color_matrix",
    "contrast",
    "equalize",
    "erase",
    "gamma",
    "gaussian_blur",
    "grayscale",
    "hue",
    "image_sizes",
    "image_stats",
    "invert",
    "lut",
    "mix",
    "normalize",
    "posterize",
    "resize_packed",
    "resized_crop",
    "saturation",
    "sharpness",
    "solarize",
    "solarize_add",
]
