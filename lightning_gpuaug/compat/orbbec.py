"""The call shapes of the `orbbec` C++/CUDA extension, which this project grew out of: change the import and go on.

    from orbbec.warpaffine import affine_opencv, affine_torch        # before
    from lightning_gpuaug.compat.orbbec import affine_opencv, affine_torch

Where the original is right, results are the same. Deliberate differences, each where it was not:

- `affine_torch` uses each sample's own matrix (the original used the first for the whole batch), rounds coordinates
  down everywhere (the original rounded towards zero in the first row and column), takes any size (the original's CUDA
  grid stopped at 66.56 million values), and has a gradient.
- `affine_opencv` needs no OpenCV; it takes colour images too (the original read one channel) and the size of the result
  is an argument (the original always gave 600 x 800). OpenCV before 5 quantises coordinates to 1/32 pixel; this does
  not.
- `nms` suppresses above the threshold (`>`), in score order, ties by the lowest index, on every device. (The original's
  CPU code suppressed at `>=`, in index order; its CUDA code at `>`, in score order.) Indices come in score order. NaN
  is a ValueError.
- `soft_nms` runs where the boxes are, instead of on the CPU, and never returns a box below `min_score`.
- `batched_nms` compares classes instead of shifting coordinates, so far-away boxes lose no precision.
- `RoIAlign(aligned=False)`, the legacy rule, runs on the CPU too, is differentiable twice, and makes a region smaller
  than one feature pixel one pixel large (the original let it shrink to nothing).
- Nothing is evaluated from `nms_cfg["type"]` but `"nms"` and `"soft_nms"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops

__all__ = [
    "RoIAlign",
    "affine_opencv",
    "affine_torch",
    "batched_nms",
    "get_compiler_version",
    "get_compiling_cuda_version",
    "nms",
    "roi_align",
    "soft_nms",
]

Detections = torch.Tensor | NDArray[np.floating[Any]]
Indices = torch.Tensor | NDArray[np.int64]


def affine_torch(input: torch.Tensor, affine_matrix: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
    """Warp a batch, bilinear, 0 outside, with pixel centres at whole numbers (OpenCV's convention).

    Args:
        input: (B, C, H, W), floating or uint8.
        affine_matrix: (B, 2, 3), dst to src, floating.
        out_h: height of the result.
        out_w: width of the result.

    Returns:
        (B, C, out_h, out_w), of the type of input.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype or device.
    """
    return ops.warp(input, affine_matrix, (out_h, out_w), centre="integer")


def affine_opencv(
    input: NDArray[np.uint8],
    from_point: NDArray[np.floating[Any]],
    to_point: NDArray[np.floating[Any]],
    out_h: int = 800,
    out_w: int = 600,
) -> NDArray[np.uint8]:
    """Warp one picture so that three points move to three others, as `cv2.getAffineTransform` and `cv2.warpAffine` do.

    Args:
        input: (H, W) or (H, W, C), uint8.
        from_point: (3, 2), `x, y` in the picture; the centre of pixel i is i.
        to_point: (3, 2), where they shall be in the result.
        out_h: height of the result.
        out_w: width of the result.

    Returns:
        (out_h, out_w) or (out_h, out_w, C), uint8; bilinear, 0 outside.

    Raises:
        ValueError: an argument has a wrong type or shape, or the points of `to_point` lie on one line.
    """
    if not isinstance(input, np.ndarray) or input.dtype != np.uint8 or input.ndim not in (2, 3):
        kind = f"{input.dtype} {input.shape}" if isinstance(input, np.ndarray) else type(input).__name__
        raise ValueError(f"affine_opencv: input must be a uint8 array (H, W) or (H, W, C), got {kind}")
    src, dst = (torch.from_numpy(np.asarray(p, dtype=np.float64)) for p in (from_point, to_point))
    picture = torch.from_numpy(np.ascontiguousarray(input))
    planes = picture[None, None] if input.ndim == 2 else picture.permute(2, 0, 1)[None]
    warped = ops.warp(planes, ops.affine_from_points(src, dst), (out_h, out_w), centre="integer")[0]
    result: NDArray[np.uint8] = (warped[0] if input.ndim == 2 else warped.permute(1, 2, 0).contiguous()).numpy()
    return result


def nms(dets: Detections, iou_thr: float, device_id: int | None = None) -> tuple[Detections, Indices]:
    """Non-maximum suppression of detections (N, 5): `x1, y1, x2, y2, score`.

    Args:
        dets: tensor, or array (then the result is arrays too).
        iou_thr: in 0..1; IoUs above it suppress.
        device_id: the GPU to use for an array; None: the CPU.

    Returns:
        The kept rows of dets, best first, and their indices (int64).

    Raises:
        TypeError: dets is neither a tensor nor an array.
        ValueError: a wrong shape, or NaN.
    """
    boxes, scores = _split(dets, device_id)
    kept = ops.nms(boxes, scores, iou_thr)
    if isinstance(dets, np.ndarray):
        indices = kept.cpu().numpy()
        return dets[indices], indices
    return dets[kept], kept


def soft_nms(
    dets: Detections,
    iou_thr: float,
    method: Literal["linear", "gaussian"] = "linear",
    sigma: float = 0.5,
    min_score: float = 1e-3,
) -> tuple[Detections, Indices]:
    """Soft-NMS of detections (N, 5): `x1, y1, x2, y2, score`.

    Args:
        dets: tensor, or array (then the result is arrays too).
        iou_thr: in 0..1; `linear` decays scores of IoUs above it.
        method: `"linear"` or `"gaussian"`.
        sigma: of `gaussian`.
        min_score: boxes below it are dropped.

    Returns:
        The selected rows with their decayed scores, in the order of selection, and their indices (int64).

    Raises:
        TypeError: dets is neither a tensor nor an array.
        ValueError: a wrong shape or method, or NaN.
    """
    boxes, scores = _split(dets, None)
    kept, decayed = ops.soft_nms(boxes, scores, iou_thr, method=method, sigma=sigma, min_score=min_score)
    if isinstance(dets, np.ndarray):
        indices = kept.numpy()
        return np.concatenate([dets[indices, :4], decayed.numpy()[:, None].astype(dets.dtype)], 1), indices
    return torch.cat([dets[kept, :4], decayed[:, None].to(dets.dtype)], 1), kept


def batched_nms(
    bboxes: torch.Tensor,
    scores: torch.Tensor,
    inds: torch.Tensor,
    nms_cfg: Mapping[str, Any],
    class_agnostic: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """NMS within each class.

    Args:
        bboxes: (N, 4).
        scores: (N,).
        inds: (N,), the class of each box.
        nms_cfg: `type` (`"nms"` by default, or `"soft_nms"`), `iou_thr`, and the further arguments of that function;
            `class_agnostic` may be in it too.
        class_agnostic: ignore the classes.

    Returns:
        The kept boxes with their scores (K, 5), best first, and their indices (int64).

    Raises:
        ValueError: an unknown type, a wrong shape, or NaN.
    """
    config = dict(nms_cfg)
    kind = config.pop("type", "nms")
    class_agnostic = config.pop("class_agnostic", class_agnostic)
    if "iou_thr" not in config:
        raise ValueError(f"batched_nms: nms_cfg must hold iou_thr, got {', '.join(map(str, nms_cfg)) or 'nothing'}")
    threshold = config.pop("iou_thr")
    classes = torch.zeros_like(inds, dtype=torch.int64) if class_agnostic else inds.to(torch.int64)
    if kind == "nms":
        if config:
            raise ValueError(
                f"batched_nms: nms_cfg for nms must hold iou_thr alone, got also {', '.join(sorted(config))}"
            )
        keep = ops.batched_nms(*_narrow(bboxes, scores), classes, threshold)
        return torch.cat([bboxes[keep], scores[keep, None]], 1), keep
    if kind != "soft_nms":
        raise ValueError(f"batched_nms: nms_cfg type must be 'nms' or 'soft_nms', got {kind!r}")
    if unknown := sorted(config.keys() - {"method", "sigma", "min_score"}):
        raise ValueError(
            f"batched_nms: nms_cfg for soft_nms must hold iou_thr, method, sigma and min_score alone, got also "
            f"{', '.join(unknown)}"
        )
    boxes, values = _narrow(bboxes, scores)
    parts = []
    for value in torch.unique(classes):
        rows = torch.nonzero(classes == value).flatten()
        kept, decayed = ops.soft_nms(boxes[rows], values[rows], threshold, **config)
        parts.append((rows[kept], decayed))
    keep = torch.cat([rows for rows, _ in parts]) if parts else classes
    decayed = torch.cat([d for _, d in parts]) if parts else values
    order = decayed.argsort(descending=True, stable=True)
    return torch.cat([bboxes[keep[order]], decayed[order, None].to(bboxes.dtype)], 1), keep[order]


def roi_align(
    features: torch.Tensor,
    rois: torch.Tensor,
    out_size: int | tuple[int, int],
    spatial_scale: float,
    sample_num: int = 0,
    aligned: bool = True,
) -> torch.Tensor:
    """RoIAlign; `aligned=False` is the legacy rule, for which a box covers the pixels x1 to x2 inclusive.

    Args:
        features: (N, C, H, W), floating.
        rois: (K, 5): `image, x1, y1, x2, y2`.
        out_size: bins down and across.
        spatial_scale: feature pixels per image pixel.
        sample_num: samples along each side of a bin; 0: adaptive.
        aligned: shift by half a pixel; else legacy.

    Returns:
        (K, C, out_size), in the type and memory format of features.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype or device.
    """
    if not aligned:
        rois = rois + rois.new_tensor([0.0, 0.0, 0.0, 1.0, 1.0])
    return ops.roi_align(features, rois, out_size, spatial_scale, sample_num, aligned)


class RoIAlign(torch.nn.Module):
    """`roi_align` as a module.

    Args:
        out_size: bins down and across.
        spatial_scale: feature pixels per image pixel.
        sample_num: samples along each side of a bin; 0: adaptive.
        use_torchvision: accepted for the call shape: legacy regions as torchvision has them (x2 exclusive). Needs
            `aligned=False`; no torchvision is used.
        aligned: shift by half a pixel; else legacy.
    """

    def __init__(
        self,
        out_size: int | tuple[int, int],
        spatial_scale: float,
        sample_num: int = 0,
        use_torchvision: bool = False,
        aligned: bool = True,
    ) -> None:
        """Keep the arguments."""
        super().__init__()
        if use_torchvision and aligned:
            raise ValueError("RoIAlign: use_torchvision must go with aligned=False")
        self.out_size = (out_size, out_size) if isinstance(out_size, int) else out_size
        self.spatial_scale = float(spatial_scale)
        self.sample_num = int(sample_num)
        self.use_torchvision = use_torchvision
        self.aligned = aligned

    def forward(self, features: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        """Pool the regions (K, 5) of features (N, C, H, W)."""
        if self.use_torchvision:
            return ops.roi_align(features, rois, self.out_size, self.spatial_scale, self.sample_num, False)
        return roi_align(features, rois, self.out_size, self.spatial_scale, self.sample_num, self.aligned)

    def extra_repr(self) -> str:
        """The arguments."""
        return (
            f"out_size={self.out_size}, spatial_scale={self.spatial_scale}, sample_num={self.sample_num}, "
            f"use_torchvision={self.use_torchvision}, aligned={self.aligned}"
        )


def get_compiler_version() -> str:
    """The C++ compiler of the native ops, e.g. "GNU 12.2.0"; "not available" without them."""
    return ops.build_info()["compiler"] or "not available"


def get_compiling_cuda_version() -> str:
    """The CUDA toolkit of the native ops, e.g. "13.0.88"; "not available" without CUDA kernels."""
    return ops.build_info()["cuda"] or "not available"


def _split(dets: Detections, device_id: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(dets, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(dets))
        values = values if device_id is None else values.to(f"cuda:{device_id}")
    elif isinstance(dets, torch.Tensor):
        values = dets
    else:
        raise TypeError(f"dets must be either a Tensor or numpy array, but got {type(dets)}")
    if values.ndim != 2 or values.shape[1] != 5:
        raise ValueError(f"dets must have shape (N, 5), got {tuple(values.shape)}")
    return _narrow(values[:, :4], values[:, 4])


def _narrow(boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """float64, which numpy gives, as the float32 that the ops compute in."""
    return tuple(t.float() if t.dtype == torch.float64 else t for t in (boxes, scores))  # type: ignore[return-value]
