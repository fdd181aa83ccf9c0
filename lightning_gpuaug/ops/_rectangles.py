"""Rectangles of single ops: top, left, height and width of a sample, as words of its record."""

from __future__ import annotations

import torch

from lightning_gpuaug.ops._arguments import check_device, check_tensor


def check_boxes(op: str, boxes: torch.Tensor, x: torch.Tensor) -> None:
    """Require a rectangle a sample on the device of x; on the CPU, with sides that are not negative."""
    check_tensor(op, "boxes", boxes)
    if boxes.dtype != torch.int32 or tuple(boxes.shape) != (x.shape[0], 4):
        rule = f"boxes must be int32 of shape ({x.shape[0]}, 4)"
        raise ValueError(f"{op}: {rule}, got {boxes.dtype} {tuple(boxes.shape)}")
    check_device(op, "boxes", boxes, "x", x)
    if boxes.device.type == "cpu" and not torch.compiler.is_compiling():
        bad = (boxes[:, 2:] < 0).any(1)
        if bool(bad.any()):
            i = int(bad.nonzero()[0, 0])
            raise ValueError(f"{op}: boxes must have heights and widths of at least 0, got {boxes[i].tolist()} for {i}")


def clipped(boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The parts of rectangles that lie in an image. A record would move a rectangle whose corner lies outside."""
    starts, sizes = [], []
    for k, limit in ((0, height), (1, width)):
        start = boxes[:, k].long()
        end = (start + boxes[:, k + 2]).clamp(0, limit)
        start = start.clamp(0, limit)
        starts.append(start)
        sizes.append((end - start).clamp(min=0))
    return torch.stack(starts + sizes, 1).to(torch.int32)


def window_of(boxes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The crop windows of boxes: clipped, but of at least one pixel; a height of 0 is the whole image."""
    starts, sizes = [], []
    for k, limit in ((0, height), (1, width)):
        start = boxes[:, k].long()
        end = (start + boxes[:, k + 2]).clamp(max=limit)
        start = start.clamp(0, max(limit - 1, 0))
        starts.append(start)
        sizes.append(end.maximum(start + 1) - start)
    return torch.stack(starts + sizes, 1).to(torch.int32) * (boxes[:, 2:3] != 0)
