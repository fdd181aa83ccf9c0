"""The public ops on images that differ in size: crop, resize and augment."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import check_choice, check_flag, check_size
from lightning_gpuaug.ops._augment import records_for, requirement
from lightning_gpuaug.ops._checks import (
    channel_constants,
    check_augment_images,
    check_chains,
    check_images,
    check_inside,
    check_layout,
    check_output,
    check_per_sample,
)
from lightning_gpuaug.ops._rectangles import check_boxes, window_of
from lightning_gpuaug.ops.record import CROP_FILTER_SHIFT, INTERPOLATIONS, LONGEST_SIDE, VERSION, WORDS, Flag, Word


def augment_packed(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    params: torch.Tensor,
    size: tuple[int, int],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    chains: int = 1,
    mix: bool = True,
) -> torch.Tensor:
    """`augment` of images that lie end to end in one buffer: each record's crop window, resized, then its program.

    The resize is that of `resize_packed`, bit for bit; the rest is that of `augment`.

    Args:
        data: uint8, one dimension: height x width x 3 bytes of every image (rows of RGB pixels).
        offsets: int64, shape (N,), on the device of data: where each image begins in it.
        sizes: int32, shape (N, 2), on the device of data: height and width of each image.
        params: the records, int32, shape (N, 64), as for `augment`.
        size: height and width of the result, 1..32767.
        mean: as for `augment`.
        std: as for `augment`.
        dtype: as for `augment`.
        channels_last: as for `augment`.
        chains: as for `augment`.
        mix: False promises that no record mixes (MixUp, CutMix). With `chains=0` the whole batch is then made in one
            pass on CUDA. A record that breaks the promise is not mixed.

    Returns:
        A new tensor of shape (N, 3, *size) and type `dtype` on the device of data. On a GPU, where offsets and sizes
        cannot be checked without waiting for it, an image that does not lie inside of data is never read: its pixels
        are 0 before the program.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; or, on the CPU, an image does not lie
            inside of data, or a record is wrong (see `check_records`) or its crop window leaves its image.
    """
    op = "augment_packed"
    height, width = check_size(op, size, LONGEST_SIDE)
    mean, std = channel_constants(op, mean, std)
    if not torch.compiler.is_compiling():
        check_layout(op, data, offsets, sizes)
        check_inside(op, data, offsets, sizes, LONGEST_SIDE)
        known = sizes if sizes.device.type == "cpu" else None
        params = _checked_records(op, params, len(offsets), data.device, (height, width), chains, mix, known)
        check_output(op, dtype, channels_last)
    if chains == 0 and not mix:
        finish = torch.ops.lightning_gpuaug.crop_finish_packed
        whole: torch.Tensor = finish(data, offsets, sizes, params, height, width, mean, std, dtype, channels_last)
        return whole
    pixels = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, height, width)
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(pixels, params, mean, std, dtype, channels_last, chains)
    return result


def augment_list(
    images: Sequence[torch.Tensor],
    params: torch.Tensor,
    size: tuple[int, int],
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    chains: int = 1,
    mix: bool = True,
) -> torch.Tensor:
    """`augment_packed` of images that are tensors of their own.

    Args:
        images: N tensors, uint8, shape (H, W, 3), each with sides of its own, all on one device.
        params: the records, int32, shape (N, 64), as for `augment`.
        size: height and width of the result, 1..32767.
        mean: as for `augment`.
        std: as for `augment`.
        dtype: as for `augment`.
        channels_last: as for `augment`.
        chains: as for `augment`.
        mix: False promises that no record mixes (MixUp, CutMix). With `chains=0` the whole batch is then made in one
            pass on CUDA. A record that breaks the promise is not mixed.

    Returns:
        A new tensor of shape (N, 3, *size) and type `dtype` on the device of the images.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value; or a record on the CPU is wrong (see
            `check_records`) or its crop window leaves its image.
    """
    op = "augment_list"
    height, width = check_size(op, size, LONGEST_SIDE)
    mean, std = channel_constants(op, mean, std)
    if not torch.compiler.is_compiling():
        check_images(op, images)
        known = torch.tensor([image.shape[:2] for image in images], dtype=torch.int32).view(-1, 2)
        device = images[0].device if images else getattr(params, "device", torch.device("cpu"))
        params = _checked_records(op, params, len(images), device, (height, width), chains, mix, known)
        check_output(op, dtype, channels_last)
    if chains == 0 and not mix:
        finish = torch.ops.lightning_gpuaug.crop_finish_list
        whole: torch.Tensor = finish(list(images), params, height, width, mean, std, dtype, channels_last)
        return whole
    pixels = torch.ops.lightning_gpuaug.crop_resize_list(list(images), params, height, width)
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(pixels, params, mean, std, dtype, channels_last, chains)
    return result


def resized_crop(
    x: torch.Tensor,
    boxes: torch.Tensor,
    size: tuple[int, int],
    *,
    flip: torch.Tensor | None = None,
    interpolation: str = "bilinear",
    antialias: bool = True,
) -> torch.Tensor:
    """A window of each image, resized: crop, then resize, so that nothing outside the window shows.

    Args:
        x: images, uint8, shape (N, H, W, 3), sides of 1..32767.
        boxes: int32, shape (N, 4), on the device of x: top, left, height, width of each window, height and width not
            negative. A window is clipped to its image (one that lies outside shows the nearest pixels); a height of 0
            stands for the whole image.
        size: height and width of the result.
        flip: bool, shape (N,), on the device of x: which results to mirror left to right; None means none.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking, as Pillow does.

    Returns:
        uint8, shape (N, *size, 3).

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    op = "resized_crop"
    check_augment_images(op, x)
    height, width = check_size(op, size, LONGEST_SIDE)
    if not torch.compiler.is_compiling():
        check_choice(op, "interpolation", interpolation, INTERPOLATIONS)
        check_flag(op, "antialias", antialias)
        if x.shape[0] and min(x.shape[1:3]) < 1:
            raise ValueError(f"{op}: x must have a height and a width, got {tuple(x.shape)}")
    check_boxes(op, boxes, x)
    if flip is not None:
        check_per_sample(op, "flip", flip, x, torch.bool)
    n, h, w, _ = x.shape
    params = torch.zeros(n, WORDS, dtype=torch.int32, device=x.device)
    params[:, Word.VERSION] = VERSION
    flag = INTERPOLATIONS.index(interpolation) << CROP_FILTER_SHIFT | (Flag.ANTIALIAS if antialias else 0)
    params[:, Word.FLAGS] = int(flag)
    params[:, Word.CROP : Word.CROP + 4] = window_of(boxes, h, w)
    offsets = torch.arange(n, device=x.device) * (3 * h * w)
    sizes = params.new_empty(n, 2)  # filled, not copied from the host: nothing waits for the GPU
    sizes[:, 0], sizes[:, 1] = h, w
    data = x.contiguous().view(-1)
    result: torch.Tensor = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, height, width)
    return result if flip is None else torch.where(flip[:, None, None, None], result.flip(2), result)


def _checked_records(
    op: str,
    params: torch.Tensor,
    samples: int,
    device: torch.device,
    size: tuple[int, int],
    chains: int,
    mix: bool,
    sizes: torch.Tensor | None,
) -> torch.Tensor:
    """Records on the device of the images; those on the CPU are checked, their windows where the sizes are known."""
    check_chains(op, chains)
    check_flag(op, "mix", mix)
    there = records_for(op, params, samples, device, *size, chains)
    if params.device.type != "cpu":
        return there
    if sizes is not None:
        check_windows(op, params, sizes)
    mixed = (params[:, Word.FLAGS] & int(Flag.MIXUP | Flag.CUTMIX)).nonzero()
    if not mix and len(mixed):
        raise ValueError(f"{op}: mix is False, but the record of sample {int(mixed[0, 0])} mixes")
    return there


def check_windows(op: str, params: torch.Tensor, sizes: torch.Tensor) -> None:
    """Require that the crop windows of records on the CPU lie in images of these sizes."""
    box, sides = params[:, Word.CROP : Word.CROP + 4].long(), sizes.long()
    corner, window = box[:, :2], box[:, 2:]
    inside = ((corner >= 0) & (window > 0) & (corner + window <= sides)).all(1)
    rule = "lie in its image (top, left, height, width; or height 0: the whole image)"
    requirement(op)(inside | (window[:, 0] == 0), "crop window", rule, box)
