"""The NMS family in plain torch: what the native kernels are tested against, and what serves where there are none.

Indices equal those of the native kernels; the decayed scores of soft NMS agree to a few float32 ulps.
"""

from __future__ import annotations

import torch

SOFT_METHODS = ("linear", "gaussian")  # the position is the number that the op takes


def iou_with(box: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    """IoU of one box (4,) with each of boxes (N, 4), float32; NaN where neither has an area."""
    top_left = torch.maximum(box[:2], boxes[:, :2])
    bottom_right = torch.minimum(box[2:], boxes[:, 2:])
    size = (bottom_right - top_left).nan_to_num(nan=0.0, posinf=float("inf")).clamp(min=0)
    inter = size[:, 0] * size[:, 1]
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return inter / (area + areas - inter)


def nms_padded(
    boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor | None, iou_threshold: float, max_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `lightning_gpuaug.ops.nms_padded`."""
    boxes, scores = boxes.float(), scores.float()
    indices = torch.full((max_out,), -1, dtype=torch.int64, device=boxes.device)
    if boxes.isnan().any() or scores.isnan().any():
        return indices, torch.tensor(-1, device=boxes.device)
    threshold = torch.tensor(iou_threshold, dtype=torch.float32, device=boxes.device)
    left = torch.argsort(scores, descending=True, stable=True)
    count = 0
    while len(left) and count < max_out:
        best, left = left[0], left[1:]
        indices[count] = best
        count += 1
        falls = iou_with(boxes[best], boxes[left]) > threshold
        if classes is not None:
            falls &= classes[left] == classes[best]
        left = left[~falls]
    return indices, torch.tensor(count, device=boxes.device)


def soft_nms_padded(
    boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float, method: int, sigma: float, min_score: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """See `lightning_gpuaug.ops.soft_nms`."""
    boxes, scores = boxes.float(), scores.float()
    indices = torch.full(scores.shape, -1, dtype=torch.int64, device=boxes.device)
    selected = torch.zeros_like(scores)
    if boxes.isnan().any() or scores.isnan().any():
        return indices, selected, torch.tensor(-1, device=boxes.device)
    left = torch.nonzero(scores >= min_score).flatten()
    scores = scores[left]
    count = 0
    while len(left):
        position = torch.nonzero(scores == scores.max())[0, 0]  # argmax promises no order among equals
        best = left[position]
        indices[count], selected[count] = best, scores[position]
        count += 1
        others = left != best
        left, scores = left[others], scores[others]
        iou = iou_with(boxes[best], boxes[left]).nan_to_num(nan=0.0)
        if SOFT_METHODS[method] == "linear":
            scores = torch.where(iou > torch.tensor(iou_threshold, dtype=torch.float32), scores * (1 - iou), scores)
        else:
            scores = scores * torch.exp(-(iou * iou) / sigma)
        enough = scores >= min_score
        left, scores = left[enough], scores[enough]
    return indices, selected, torch.tensor(count, device=boxes.device)
