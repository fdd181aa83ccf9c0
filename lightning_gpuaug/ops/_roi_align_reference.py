"""RoIAlign in plain torch: what the native kernels are tested against, and what serves where there are none.

A bin's samples form a grid, so a region is `Y @ image @ X.T`, with one small interpolation matrix an axis.
"""

from __future__ import annotations

import math

import torch

from lightning_gpuaug.ops._roi_align import check_regions, is_channels_last, memory_format


def axis_matrix(
    low: float, high: float, bins: int, size: int, sampling_ratio: int, aligned: bool, like: torch.Tensor
) -> torch.Tensor:
    """The (bins, size) weights of one axis of a region from `low` to `high`, in feature pixels."""
    low, high = (low - 0.5, high - 0.5) if aligned else (low, high)
    length = high - low if aligned else max(high - low, 1.0)
    grid = sampling_ratio if sampling_ratio > 0 else max(math.ceil(length / bins), 0)
    weights = like.new_zeros((bins, size))
    if grid == 0:
        return weights
    steps = (torch.arange(bins * grid, dtype=like.dtype, device=like.device) + 0.5) / grid
    at = low + steps * (length / bins)
    inside = (at >= -1) & (at <= size)
    at = at.clamp(0, size - 1)
    left = at.floor().clamp(max=max(size - 2, 0)).long()
    right = (left + 1).clamp(max=size - 1)
    part = at - left
    rows = torch.arange(bins, device=like.device).repeat_interleave(grid)
    weights.index_put_((rows, left), torch.where(inside, 1 - part, 0) / grid, accumulate=True)
    weights.index_put_((rows, right), torch.where(inside, part, 0) / grid, accumulate=True)
    return weights


def region_matrices(
    roi: torch.Tensor, out: tuple[int, int], size: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> tuple[int, torch.Tensor, torch.Tensor]:
    """Of a region (5,): its image, and the weights of its rows and columns."""
    image, x1, y1, x2, y2 = roi.tolist()
    y = axis_matrix(y1 * scale, y2 * scale, out[0], size[0], ratio, aligned, roi)
    x = axis_matrix(x1 * scale, x2 * scale, out[1], size[1], ratio, aligned, roi)
    return int(image), y, x


def roi_align(
    x: torch.Tensor, rois: torch.Tensor, out_h: int, out_w: int, scale: float, sampling_ratio: int, aligned: bool
) -> torch.Tensor:
    """See `lightning_gpuaug.ops.roi_align`."""
    check_regions(rois, x.shape[0])
    kind = torch.float64 if x.dtype == torch.float64 else torch.float32
    result = new_regions(x, rois, out_h, out_w)
    for k, roi in enumerate(rois.to(kind)):
        image, rows, columns = region_matrices(
            roi, (out_h, out_w), (x.shape[2], x.shape[3]), scale, sampling_ratio, aligned
        )
        result[k] = rows @ x[image].to(kind) @ columns.t()
    return result


def roi_align_backward(
    grad: torch.Tensor,
    rois: torch.Tensor,
    images: int,
    height: int,
    width: int,
    scale: float,
    sampling_ratio: int,
    aligned: bool,
    channels_last: bool,
) -> torch.Tensor:
    """The gradient of `roi_align` with respect to x."""
    check_regions(rois, images)
    kind = torch.float64 if grad.dtype == torch.float64 else torch.float32
    summed = new_features(grad, images, height, width, channels_last, kind).zero_()
    for k, roi in enumerate(rois.to(kind)):
        image, rows, columns = region_matrices(
            roi, (grad.shape[2], grad.shape[3]), (height, width), scale, sampling_ratio, aligned
        )
        summed[image] += rows.t() @ grad[k].to(kind) @ columns
    return summed.to(grad.dtype)


def new_regions(x: torch.Tensor, rois: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
    """An uninitialised result of `roi_align`."""
    shape = (rois.shape[0], x.shape[1], out_h, out_w)
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=memory_format(is_channels_last(x)))


def new_features(
    grad: torch.Tensor, images: int, height: int, width: int, channels_last: bool, dtype: torch.dtype
) -> torch.Tensor:
    """An uninitialised gradient of x."""
    shape = (images, grad.shape[1], height, width)
    return torch.empty(shape, dtype=dtype, device=grad.device, memory_format=memory_format(channels_last))
