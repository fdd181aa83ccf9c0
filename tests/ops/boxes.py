"""Boxes for the tests of the detection ops, and NMS written out in numpy."""

from __future__ import annotations

import numpy as np
import torch


def random_boxes(
    n: int, seed: int = 0, image: float = 300.0, largest: float = 80.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 4) boxes and n scores without ties."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * image
    size = torch.rand(n, 2, generator=g) * largest + 1
    scores = (torch.randperm(n, generator=g).float() + 0.5) / max(n, 1)
    return torch.cat([corner, corner + size], 1), scores


def coco_like(
    images: int = 100, proposals: int = 1000, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Proposals as a region proposal network gives them: jittered copies of a few objects an image, in no order."""
    g = torch.Generator().manual_seed(seed)
    objects = torch.rand(images, 12, 4, generator=g)
    centre = objects[..., :2] * torch.tensor([640.0, 480.0])
    size = 16 * (24.0 ** objects[..., 2:])
    pick = torch.randint(0, 12, (images, proposals), generator=g)
    rows = torch.arange(images)[:, None]
    noise = torch.randn(images, proposals, 4, generator=g)
    size = size[rows, pick] * torch.exp(0.2 * noise[..., 2:])
    centre = centre[rows, pick] + 0.15 * size * noise[..., :2]
    boxes = torch.cat([centre - size / 2, centre + size / 2], -1).reshape(-1, 4)
    scores = torch.sigmoid(torch.randn(images * proposals, generator=g) * 3)
    return boxes, scores, torch.arange(images).repeat_interleave(proposals)


def numpy_iou(a: np.ndarray, b: np.ndarray) -> np.float32:
    """IoU of two boxes in float32; NaN for two boxes without area."""
    width = max(np.float32(min(a[2], b[2]) - max(a[0], b[0])), np.float32(0))
    height = max(np.float32(min(a[3], b[3]) - max(a[1], b[1])), np.float32(0))
    inter = width * height
    area_a, area_b = (a[2] - a[0]) * (a[3] - a[1]), (b[2] - b[0]) * (b[3] - b[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.float32(inter / (area_a + area_b - inter))


def numpy_nms(
    boxes: torch.Tensor, scores: torch.Tensor, threshold: float, classes: torch.Tensor | None = None
) -> list[int]:
    """The definition: every pair, no cleverness."""
    b, s = boxes.float().numpy(), scores.float().numpy()
    kept: list[int] = []
    for i in sorted(range(len(s)), key=lambda i: (-s[i], i)):
        rivals = [k for k in kept if classes is None or classes[k] == classes[i]]
        if not any(numpy_iou(b[k], b[i]) > np.float32(threshold) for k in rivals):
            kept.append(i)
    return kept


def numpy_soft_nms(
    boxes: torch.Tensor, scores: torch.Tensor, threshold: float, method: str, sigma: float, min_score: float
) -> tuple[list[int], list[float]]:
    """The definition, scores in float64."""
    b = boxes.float().numpy()
    left = {i: float(v) for i, v in enumerate(scores.float()) if v >= min_score}
    chosen, values = [], []
    while left:
        best = min(left, key=lambda i: (-left[i], i))
        chosen.append(best)
        values.append(left.pop(best))
        for i in left:
            iou = float(np.nan_to_num(numpy_iou(b[best], b[i])))
            if method == "gaussian":
                left[i] *= np.exp(-iou * iou / sigma)
            elif iou > threshold:
                left[i] *= 1 - iou
        left = {i: v for i, v in left.items() if v >= min_score}
    return chosen, values
