"""The public `nms`, `nms_padded`, `batched_nms` and `soft_nms`."""

from __future__ import annotations

from typing import Literal

import torch

from lightning_gpuaug.ops._box_checks import check_boxes_and_scores, check_classes, check_nms_numbers, check_soft_nms
from lightning_gpuaug.ops._nms_reference import SOFT_METHODS


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Non-maximum suppression: keep the best box, drop what overlaps it, repeat.

    A box is dropped when its IoU with a kept box of a higher score is above `iou_threshold` (strictly, in float32);
    equal scores go by the lower index. CPU, CUDA and the plain-torch fallback give the same indices in the same order.
    Boxes of no area overlap nothing. Memory grows with N, not with N².

    Args:
        boxes: (N, 4), `x1, y1, x2, y2`, float32, float16 or bfloat16 (computed in float32).
        scores: (N,), float32, float16 or bfloat16, on the device of boxes.
        iou_threshold: in 0..1.

    Returns:
        int64 (K,): indices of the kept boxes, best score first, on the device of boxes. On CUDA this waits once for
        the device, to learn K; `nms_padded` does not.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; a box or a score is NaN.

    Example:
        >>> boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
        >>> nms(boxes, torch.tensor([0.8, 0.9, 0.1]), 0.5).tolist()
        [1, 2]
    """
    return _nms(boxes, scores, None, iou_threshold)


def batched_nms(boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """`nms` within each class (or image, or level): boxes of different classes never suppress each other.

    Args:
        boxes: (N, 4), as for `nms`. No coordinates are shifted, so no precision is lost.
        scores: (N,), as for `nms`.
        classes: int64 (N,), any values, on the device of boxes.
        iou_threshold: in 0..1.

    Returns:
        int64 (K,): indices of the kept boxes of all classes, best score first.

    Raises:
        ValueError: as `nms`.
    """
    return _nms(boxes, scores, classes, iou_threshold)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor | None, iou_threshold: float) -> torch.Tensor:
    if torch.compiler.is_compiling():
        kept: torch.Tensor = torch.ops.lightning_gpuaug.nms(boxes, scores, classes, iou_threshold)
        return kept
    return nms_of_dynamic_size(boxes, scores, classes, iou_threshold)


def nms_of_dynamic_size(
    boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor | None, iou_threshold: float
) -> torch.Tensor:
    """`nms_padded`, then one wait for the number of kept boxes. The kernel of the op `nms`, on every device."""
    check_boxes_and_scores("nms", boxes, scores)
    if classes is not None:
        check_classes("nms", classes, boxes)
    check_nms_numbers("nms", iou_threshold, boxes.shape[0])
    indices, count = torch.ops.lightning_gpuaug.nms_padded(boxes, scores, classes, iou_threshold, boxes.shape[0])
    kept = int(count)
    if kept < 0:
        raise ValueError(_nan_message("nms", boxes, scores))
    result: torch.Tensor = indices[:kept]
    return result


def nms_padded(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    iou_threshold: float,
    max_out: int,
    *,
    classes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`nms` (or `batched_nms`) with static shapes and without waiting for the device.

    Works in a CUDA graph and under `torch.compile(fullgraph=True)`.

    Args:
        boxes: (N, 4), as for `nms`.
        scores: (N,), as for `nms`.
        iou_threshold: in 0..1.
        max_out: length of the result; the best `max_out` kept boxes are given.
        classes: int64 (N,), as for `batched_nms`, or None.

    Returns:
        indices: int64 (max_out,): the kept boxes, best score first, then -1.
        count: int64 (): how many are kept, at most `max_out`; -1 (and all indices -1) where a box or a score is NaN,
            since telling that by an exception would need a wait.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    if not torch.compiler.is_compiling():
        check_boxes_and_scores("nms_padded", boxes, scores)
        if classes is not None:
            check_classes("nms_padded", classes, boxes)
        check_nms_numbers("nms_padded", iou_threshold, max_out)
    indices, count = torch.ops.lightning_gpuaug.nms_padded(boxes, scores, classes, iou_threshold, max_out)
    return indices, count


def soft_nms(
    boxes: torch.Tensor,
    scores: torch.Tensor,
    iou_threshold: float = 0.3,
    *,
    method: Literal["linear", "gaussian"] = "linear",
    sigma: float = 0.5,
    min_score: float = 0.001,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Soft-NMS (Bodla et al., ICCV 2017): overlapping boxes lose score instead of being dropped.

    The best remaining box is selected (equal scores go by the lower index), then the scores of the others decay by
    their IoU with it: `linear` multiplies by `1 - IoU` where the IoU is above `iou_threshold`, `gaussian` multiplies by
    `exp(-IoU² / sigma)` everywhere. Boxes whose score falls below `min_score` are out. CPU and CUDA agree bit for bit.

    Args:
        boxes: (N, 4), as for `nms`.
        scores: (N,), as for `nms`.
        iou_threshold: in 0..1; `gaussian` does not use it.
        method: `"linear"` or `"gaussian"`.
        sigma: above 0; `linear` does not use it.
        min_score: a box is selected only while its score is at least this.

    Returns:
        indices: int64 (K,): selected boxes, in the order of selection.
        decayed: float32 (K,): their scores when selected, descending.

    Raises:
        ValueError: as `nms`.
    """
    check_boxes_and_scores("soft_nms", boxes, scores)
    check_nms_numbers("soft_nms", iou_threshold, 0)
    check_soft_nms(method, sigma, min_score)
    indices, decayed, count = torch.ops.lightning_gpuaug.soft_nms_padded(
        boxes, scores, iou_threshold, SOFT_METHODS.index(method), sigma, min_score
    )
    kept = int(count)
    if kept < 0:
        raise ValueError(_nan_message("soft_nms", boxes, scores))
    return indices[:kept], decayed[:kept]


def _nan_message(op: str, boxes: torch.Tensor, scores: torch.Tensor) -> str:
    for name, values in (("scores", scores), ("boxes", boxes)):
        where = torch.nonzero(values.isnan().reshape(values.shape[0], -1).any(1)).flatten()
        if len(where):
            return f"{op}: {name} must not be NaN, got NaN at index {int(where[0])} ({len(where)} in all)"
    raise AssertionError("no NaN found")
