"""Input checks of the detection ops: one-line ValueErrors that name the argument, the rule and the value received."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import torch

from lightning_gpuaug.ops._nms_reference import SOFT_METHODS

NARROW_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def is_number(value: object) -> bool:
    """Whether it is a number, NumPy's and one in a tensor too."""
    return isinstance(value, Real) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def is_whole(value: object) -> bool:
    """Whether it is an integer, NumPy's and a symbolic one too."""
    return isinstance(value, Integral | torch.SymInt) and not isinstance(value, bool)


def check_output_size(op: str, output_size: Sequence[int]) -> tuple[int, int]:
    """Require (height, width), at least 1 each. Gives them as they are; nothing is looked at while compiling."""
    if not torch.compiler.is_compiling():
        pair = isinstance(output_size, Sequence) and len(output_size) == 2 and all(map(is_whole, output_size))
        if not pair:
            raise ValueError(f"{op}: output_size must be two whole numbers (height, width), got {output_size!r}")
        if min(output_size) < 1:
            raise ValueError(f"{op}: output_size must be 1 or more, got {output_size!r}")
    height, width = output_size
    return height, width


def check_tensor(op: str, name: str, value: object) -> None:
    """Require a dense tensor."""
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{op}: {name} must be a tensor, got {type(value).__name__}")
    if value.layout != torch.strided:
        raise ValueError(f"{op}: {name} must be a dense tensor, got layout {value.layout}")


def check_device(op: str, name: str, value: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Require two tensors on one device."""
    if value.device != other.device:
        raise ValueError(f"{op}: {name} must be on the device of {other_name} ({other.device}), got {value.device}")


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
