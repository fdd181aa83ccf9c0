"""Native augmentation and detection ops for PyTorch tensors; plain torch serves where the native libraries are missing.

Everything here works without the rest of the package. The ops are also `torch.ops.lightning_gpuaug.*`.
"""

from lightning_gpuaug.ops import _register, _register_detection, matrices  # noqa: F401  (load and complete the ops)
from lightning_gpuaug.ops._geometry import transform_boxes, transform_masks, transform_points
from lightning_gpuaug.ops._image_sizes import image_sizes
from lightning_gpuaug.ops._info import backend, build_info
from lightning_gpuaug.ops._nms import batched_nms, nms, nms_padded, soft_nms
from lightning_gpuaug.ops._normalize import normalize
from lightning_gpuaug.ops._resize_packed import resize_packed
from lightning_gpuaug.ops._roi_align import roi_align
from lightning_gpuaug.ops._warp import warp
from lightning_gpuaug.ops.matrices import affine_from_points

__all__ = [
    "affine_from_points",
    "backend",
    "batched_nms",
    "build_info",
    "image_sizes",
    "matrices",
    "nms",
    "nms_padded",
    "normalize",
    "resize_packed",
    "roi_align",
    "soft_nms",
    "transform_boxes",
    "transform_masks",
    "transform_points",
    "warp",
]
