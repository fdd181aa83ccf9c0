"""Crop and resize of ragged images in plain torch: one level off the native kernels here and there.

A matrix product sums in another order than the kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops._checks import check_list, check_packed
from lightning_gpuaug.ops.record import Flag, Word
from lightning_gpuaug.ops.reference import resampling_matrix


def _crop_resize(image: torch.Tensor, words: list[int], out_h: int, out_w: int) -> torch.Tensor:
    height, width, _ = image.shape
    valid = words[Word.VERSION] == rec.VERSION
    top, left, h, w = words[Word.CROP : Word.CROP + 4]
    if valid and h > 0 and w > 0:
        top, left = min(max(top, 0), height - 1), min(max(left, 0), width - 1)
        image = image[top : min(top + h, height), left : min(left + w, width)]
    flags = words[Word.FLAGS] if valid else 0
    interpolation, antialias = min(flags >> rec.CROP_FILTER_SHIFT & 3, 2), bool(flags & Flag.ANTIALIAS)
    rows = resampling_matrix(image.shape[0], out_h, interpolation, antialias, image.device)
    columns = resampling_matrix(image.shape[1], out_w, interpolation, antialias, image.device)
    lines = torch.einsum("hwc,xw->hxc", image.to(torch.float32), columns).clamp(0, 255)
    levels = torch.einsum("yh,hxc->yxc", rows, lines)
    return levels.clamp(0, 255).round().to(torch.uint8)


def crop_resize_packed(
    data: torch.Tensor, offsets: torch.Tensor, sizes: torch.Tensor, params: torch.Tensor, out_h: int, out_w: int
) -> torch.Tensor:
    """(N, out_h, out_w, 3) uint8; see `lightning_gpuaug.ops.augment_packed`."""
    check_packed("crop_resize_packed", data, offsets, sizes, params, out_h, out_w)
    out = data.new_zeros((offsets.shape[0], out_h, out_w, 3))
    for i, (offset, (h, w), words) in enumerate(zip(offsets.tolist(), sizes.tolist(), params.tolist(), strict=True)):
        if h > 0 and w > 0 and offset >= 0 and offset + 3 * h * w <= data.numel():
            out[i] = _crop_resize(data[offset : offset + 3 * h * w].view(h, w, 3), words, out_h, out_w)
    return out


def crop_resize_list(images: Sequence[torch.Tensor], params: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
    """(N, out_h, out_w, 3) uint8; see `lightning_gpuaug.ops.augment_list`."""
    check_list("crop_resize_list", images, params, out_h, out_w)
    rows = [_crop_resize(image, words, out_h, out_w) for image, words in zip(images, params.tolist(), strict=True)]
    return torch.stack(rows) if rows else params.new_empty((0, out_h, out_w, 3), dtype=torch.uint8)
