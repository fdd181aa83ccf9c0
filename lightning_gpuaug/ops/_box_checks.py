"""Input checks of the detection ops: one-line ValueErrors that name the argument, the rule and the value received."""

from __future__ import annotations

import math

import torch

from lightning_gpuaug.ops._arguments import check_device, check_tensor, is_number, is_whole
from lightning_gpuaug.ops._nms_reference import SOFT_METHODS

NARROW_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_boxes_and_scores(op: str, boxes: torch.Tensor, scores: torch.Tensor) -> None:
    """Require boxes (N, 4) and scores (N,) in float32, float16 or bfloat16 on one device."""
    for name, value in (("boxes", boxes), ("scores", scores)):
        check_tensor(op, name, value)
        if value.dtype not in NARROW_FLOATS:
            raise ValueError(f"{op}: {name} must be torch.float32, torch.float16 or torch.bfloat16, got {value.dtype}")
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"{op}: boxes must have shape (N, 4), got {tuple(boxes.shape)}")
    if scores.ndim != 1 or scores.shape[0] != boxes.shape[0]:
        raise ValueError(
            f"{op}: scores must have shape ({boxes.shape[0]},), one value a box, got {tuple(scores.shape)}"
        )
    check_device(op, "scores", scores, "boxes", boxes)


def check_classes(op: str, classes: torch.Tensor, boxes: torch.Tensor) -> None:
    """Require one int64 for each box."""
    check_tensor(op, "classes", classes)
    if classes.dtype != torch.int64:
        raise ValueError(f"{op}: classes must be torch.int64, got {classes.dtype}")
    if classes.ndim != 1 or classes.shape[0] != boxes.shape[0]:
        raise ValueError(
            f"{op}: classes must have shape ({boxes.shape[0]},), one value a box, got {tuple(classes.shape)}"
        )
    check_device(op, "classes", classes, "boxes", boxes)


def check_nms_numbers(op: str, iou_threshold: float, max_out: int) -> None:
    """Require an IoU threshold in 0..1 and a length that is not negative."""
    if not (is_number(iou_threshold) and 0 <= iou_threshold <= 1):
        raise ValueError(f"{op}: iou_threshold must be in 0..1, got {iou_threshold!r}")
    if not (is_whole(max_out) and max_out >= 0):
        raise ValueError(f"{op}: max_out must be 0 or more, got {max_out!r}")


def check_soft_nms(method: str, sigma: float, min_score: float) -> None:
    """Require a known method, a positive sigma and a minimum score that is a number."""
    if method not in SOFT_METHODS:
        raise ValueError(f"soft_nms: method must be one of {', '.join(SOFT_METHODS)}, got {method!r}")
    if not (is_number(sigma) and math.isfinite(sigma) and sigma > 0):
        raise ValueError(f"soft_nms: sigma must be finite and above 0, got {sigma!r}")
    if not is_number(min_score) or math.isnan(min_score):
        raise ValueError(f"soft_nms: min_score must be a number and not NaN, got {min_score!r}")
