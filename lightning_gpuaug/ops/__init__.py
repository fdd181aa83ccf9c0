"""Native augmentation and detection ops for PyTorch tensors; plain torch serves where the native libraries are missing.

Everything here works without the rest of the package. The ops are also `torch.ops.lightning_gpuaug.*`.
"""

from lightning_gpuaug.ops import _register, _register_detection, matrices  # noqa: F401  (load and complete the ops)
from lightning_gpuaug.ops._applied import augment_matrix
from lightning_gpuaug.ops._augment import augment, check_records
from lightning_gpuaug.ops._augment_ragged import augment_list, augment_packed, resized_crop
from lightning_gpuaug.ops._geometry import transform_boxes, transform_masks, transform_points
from lightning_gpuaug.ops._image_sizes import image_sizes
from lightning_gpuaug.ops._info import backend, build_info
from lightning_gpuaug.ops._nms import batched_nms, nms, nms_padded, soft_nms
from lightning_gpuaug.ops._normalize import normalize
from lightning_gpuaug.ops._random_crops import random_crops
from lightning_gpuaug.ops._records import crc32c, file_states, image_sizes_packed, read_ranges
from lightning_gpuaug.ops._resize_packed import resize_packed
from lightning_gpuaug.ops._roi_align import roi_align
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
from lightning_gpuaug.ops._uniforms import uniforms
from lightning_gpuaug.ops._warp import warp
from lightning_gpuaug.ops.matrices import affine_from_points

__all__ = [
    "affine_from_points",
    "augment",
    "augment_list",
    "augment_matrix",
    "augment_packed",
    "autocontrast",
    "backend",
    "batched_nms",
    "brightness",
    "build_info",
    "check_records",
    "color_matrix",
    "contrast",
    "crc32c",
    "equalize",
    "erase",
    "file_states",
    "gamma",
    "gaussian_blur",
    "grayscale",
    "hue",
    "image_sizes",
    "image_sizes_packed",
    "image_stats",
    "invert",
    "lut",
    "matrices",
    "mix",
    "nms",
    "nms_padded",
    "normalize",
    "posterize",
    "random_crops",
    "read_ranges",
    "resize_packed",
    "resized_crop",
    "roi_align",
    "saturation",
    "sharpness",
    "soft_nms",
    "solarize",
    "solarize_add",
    "transform_boxes",
    "transform_masks",
    "transform_points",
    "uniforms",
    "warp",
]
