"""Annotations under the matrix of a `warp`: points, boxes and masks."""

from __future__ import annotations

import torch

from lightning_gpuaug.ops._arguments import check_device, check_output_size, check_tensor, is_number
from lightning_gpuaug.ops._warp import Border, Centre, check_warp_choices, checked_matrix
from lightning_gpuaug.ops.matrices import invert, square


def transform_points(points: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Move points as `warp` with the same matrix moves the picture.

    Args:
        points: (P, 2) with one matrix, or (N, P, 2): `x, y` in pixels of the source, floating; the centre of pixel i is
            where the matrix has it (i + 0.5 with the builders of `ops.matrices`).
        matrix: (2, 3) or (3, 3), or (N, 2, 3) or (N, 3, 3): what `warp` was given (dst to src).

    Returns:
        The points in the result, of the shape and type of points; computed in float64. A point that goes to infinity,
        or a singular matrix, gives values that are not finite.

    Raises:
        ValueError: an argument has a wrong type, shape or device.
    """
    _check_annotations("transform_points", "points", points, matrix, 2)
    x, y, w = _homogeneous(points, matrix)
    return torch.stack([x / w, y / w], -1).to(points.dtype)


def transform_boxes(
    boxes: torch.Tensor,
    matrix: torch.Tensor,
    output_size: tuple[int, int] | None = None,
    *,
    min_visibility: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Move boxes as `warp` with the same matrix moves the picture, clip them, and tell which are still visible.

    A moved box is the upright hull of its four moved corners. Visibility is the share of the hull's area that is inside
    the result.

    Args:
        boxes: (K, 4) with one matrix, or (N, K, 4): `x1, y1, x2, y2` in pixels of the source, floating.
        matrix: as for `transform_points`.
        output_size: (height, width) of the result, to which boxes are clipped; None: not clipped.
        min_visibility: in 0..1: boxes less visible than this are not kept.

    Returns:
        boxes: of the shape and type of boxes, computed in float64.
        keep: bool, (K,) or (N, K): which have an area, are visible enough, and lie wholly before the camera of a
            perspective matrix. `boxes[keep]` filters them, and labels with them.

    Raises:
        ValueError: an argument has a wrong type, shape, device or value.
    """
    _check_annotations("transform_boxes", "boxes", boxes, matrix, 4)
    if not (is_number(min_visibility) and 0 <= min_visibility <= 1):
        raise ValueError(f"transform_boxes: min_visibility must be in 0..1, got {min_visibility!r}")
    corners = boxes[..., [0, 1, 2, 1, 2, 3, 0, 3]].reshape(*boxes.shape[:-2], -1, 2)
    x, y, w = (v.reshape(*boxes.shape[:-1], 4) for v in _homogeneous(corners, matrix))
    before_camera = (w > 0).all(-1) | (w < 0).all(-1)
    x, y = x / w, y / w
    hull = torch.stack([x.amin(-1), y.amin(-1), x.amax(-1), y.amax(-1)], -1)
    moved = hull
    if output_size is not None:
        height, width = check_output_size("transform_boxes", output_size)
        limits = hull.new_tensor([width, height, width, height])
        moved = hull.clamp(min=0).minimum(limits)
    area = _area(moved)
    keep = before_camera & moved.isfinite().all(-1) & (area > 0) & (area >= min_visibility * _area(hull))
    return moved.to(boxes.dtype), keep


def transform_masks(
    masks: torch.Tensor,
    matrix: torch.Tensor,
    output_size: tuple[int, int] | None = None,
    *,
    fill: float = 0,
    border: Border = "constant",
    centre: Centre = "half",
) -> torch.Tensor:
    """Warp label masks: nearest neighbours, so that no label appears that was not there (but `fill`).

    Args:
        masks: (N, H, W) or (N, C, H, W), of any type: bool, integers of any width, or floating.
        matrix: as for `warp`.
        output_size: (height, width) of the result; None: that of masks.
        fill: the label outside, e.g. 255 for "ignore"; must fit the type.
        border: as for `warp`.
        centre: as for `warp`.

    Returns:
        The masks, (N, output_size) or (N, C, output_size), of the type and device of masks.

    Raises:
        ValueError: an argument has a wrong type, shape, device or value.
    """
    check_tensor("transform_masks", "masks", masks)
    numbers = check_warp_choices("nearest", border, centre)
    if masks.ndim not in (3, 4) or masks.is_complex():
        raise ValueError(
            f"transform_masks: masks must be real and have shape (N, H, W) or (N, C, H, W), got {tuple(masks.shape)}"
        )
    n, c = masks.shape[0], masks.shape[1] if masks.ndim == 4 else 1
    height, width = masks.shape[-2:]
    if min(height, width) < 1:
        raise ValueError(f"transform_masks: masks must have a height and a width, got {tuple(masks.shape)}")
    out_h, out_w = check_output_size("transform_masks", (height, width) if output_size is None else output_size)
    # A label of any type is some bytes, and nearest neighbours keep bytes together.
    size = masks.element_size()
    planes = masks.reshape(n * c, height, width, 1).contiguous().view(torch.uint8)
    images = planes.permute(0, 3, 1, 2)
    fill_bytes = _as_label(fill, masks.dtype).view(torch.uint8).tolist()
    full = square("transform_masks", matrix)
    if full.ndim == 3 and c > 1:
        full = full.repeat_interleave(c, 0)
    full = checked_matrix("transform_masks", full, images)
    warped: torch.Tensor = torch.ops.lightning_gpuaug.warp(
        images, full, out_h, out_w, numbers[0], numbers[1], [float(b) for b in fill_bytes], centre == "half"
    )
    labels = warped.permute(0, 2, 3, 1).contiguous().view(n * c, out_h, out_w, size).view(masks.dtype)
    return labels.reshape(*masks.shape[:-2], out_h, out_w)


def _as_label(fill: float, dtype: torch.dtype) -> torch.Tensor:
    """`fill` in the masks' type, (1,); one that would become another label is refused."""
    if not is_number(fill):
        raise ValueError(f"transform_masks: fill must be a number, got {fill!r}")
    try:
        label = torch.tensor([fill], dtype=dtype)
    except (RuntimeError, ValueError):  # too large, or not finite
        label = torch.tensor([], dtype=dtype)
    if not dtype.is_floating_point and label.tolist() != [fill]:
        raise ValueError(f"transform_masks: fill must be a value of {dtype}, got {fill!r}")
    return label


def _check_annotations(op: str, name: str, values: torch.Tensor, matrix: torch.Tensor, last: int) -> None:
    check_tensor(op, name, values)
    square(op, matrix)
    if not values.is_floating_point():
        raise ValueError(f"{op}: {name} must be a floating tensor, got {values.dtype}")
    expected = matrix.ndim
    if values.ndim != expected or values.shape[-1] != last or (expected == 3 and values.shape[0] != matrix.shape[0]):
        shape = f"({matrix.shape[0]}, K, {last})" if expected == 3 else f"(K, {last})"
        raise ValueError(
            f"{op}: {name} must have shape {shape} with a matrix of shape {tuple(matrix.shape)}, "
            f"got {tuple(values.shape)}"
        )
    check_device(op, "matrix", matrix, name, values)


def _homogeneous(points: torch.Tensor, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The three coordinates of each moved point, float64."""
    forward = invert(square("transform_points", matrix).double())
    p = points.double()
    ones = torch.ones_like(p[..., :1])
    x, y, w = (torch.cat([p, ones], -1) @ forward.mT).unbind(-1)
    return x, y, w


def _area(boxes: torch.Tensor) -> torch.Tensor:
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return size[..., 0] * size[..., 1]
