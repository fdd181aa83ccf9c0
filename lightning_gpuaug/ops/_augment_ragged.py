"""The public ops on images that differ in size: crop, resize and augment."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._augment import augment, channel_constants, check_records
from lightning_gpuaug.ops._checks import check_list, check_mean_std, check_output_dtype, check_packed
from lightning_gpuaug.ops.record import CROP_FILTER_SHIFT, INTERPOLATIONS, VERSION, WORDS, Flag, Word


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
        A new tensor of shape (N, 3, *size) and type `dtype` on the device of data. An image that does not lie inside of
        data is never read: its pixels are 0 before the program. (Sizes and offsets of a CUDA batch cannot be checked
        without waiting for the GPU.)

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    height, width = size
    if not torch.compiler.is_compiling():
        params = _on_device(params, data.device, height, width, chains, mix)
        check_packed("augment_packed", data, offsets, sizes, params, height, width)
    if chains == 0 and not mix:
        finish = torch.ops.lightning_gpuaug.crop_finish_packed
        mean, std = _checked_output("augment_packed", mean, std, dtype)
        result: torch.Tensor = finish(data, offsets, sizes, params, height, width, mean, std, dtype, channels_last)
        return result
    pixels = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, height, width)
    return augment(pixels, params, mean, std, dtype=dtype, channels_last=channels_last, chains=chains)


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
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    height, width = size
    if not torch.compiler.is_compiling():
        params = _on_device(params, images[0].device if images else params.device, height, width, chains, mix)
        check_list("augment_list", images, params, height, width)
    if chains == 0 and not mix:
        finish = torch.ops.lightning_gpuaug.crop_finish_list
        mean, std = _checked_output("augment_list", mean, std, dtype)
        result: torch.Tensor = finish(list(images), params, height, width, mean, std, dtype, channels_last)
        return result
    pixels = torch.ops.lightning_gpuaug.crop_resize_list(list(images), params, height, width)
    return augment(pixels, params, mean, std, dtype=dtype, channels_last=channels_last, chains=chains)


def resized_crop(
    x: torch.Tensor,
    boxes: torch.Tensor,
    size: tuple[int, int],
    *,
    interpolation: str = "bilinear",
    antialias: bool = True,
) -> torch.Tensor:
    """A window of each image, resized: crop, then resize, so that nothing outside the window shows.

    Args:
        x: images, uint8, shape (N, H, W, 3), sides of 1..32767.
        boxes: int32, shape (N, 4), on the device of x: top, left, height, width of each window. A window is clipped to
            its image; a height of 0 stands for the whole image.
        size: height and width of the result.
        interpolation: "nearest", "bilinear" or "bicubic".
        antialias: widen the filter when shrinking, as Pillow does.

    Returns:
        uint8, shape (N, *size, 3).

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.
    """
    if interpolation not in INTERPOLATIONS:
        raise ValueError(f"resized_crop: interpolation must be one of {INTERPOLATIONS}, got {interpolation!r}")
    if boxes.dtype != torch.int32 or tuple(boxes.shape) != (x.shape[0], 4):
        rule = f"boxes must be int32 of shape ({x.shape[0]}, 4)"
        raise ValueError(f"resized_crop: {rule}, got {boxes.dtype} {tuple(boxes.shape)}")
    n, h, w, _ = x.shape
    params = torch.zeros(n, WORDS, dtype=torch.int32, device=x.device)
    params[:, Word.VERSION] = VERSION
    flag = INTERPOLATIONS.index(interpolation) << CROP_FILTER_SHIFT | (Flag.ANTIALIAS if antialias else 0)
    params[:, Word.FLAGS] = int(flag)
    params[:, Word.CROP : Word.CROP + 4] = boxes
    offsets = torch.arange(n, device=x.device) * (3 * h * w)
    sizes = torch.tensor([h, w], dtype=torch.int32, device=x.device).expand(n, 2)
    data = x.contiguous().view(-1)
    check_packed("resized_crop", data, offsets, sizes, params, *size)
    result: torch.Tensor = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, *size)
    return result


def _on_device(
    params: torch.Tensor, device: torch.device, height: int, width: int, chains: int, mix: bool
) -> torch.Tensor:
    """Records on the CPU are checked, and copied to the images."""
    if params.device.type != "cpu" or params.ndim != 2 or params.shape[1] != WORDS:
        return params
    check_records(params, height, width, chains)
    mixed = (params[:, Word.FLAGS] & int(Flag.MIXUP | Flag.CUTMIX)).nonzero()
    if not mix and len(mixed):
        raise ValueError(f"augment: mix is False, but the record of sample {int(mixed[0, 0])} mixes")
    return params if device.type == "cpu" else params.to(device, non_blocking=True)


def _checked_output(
    op: str, mean: Sequence[float] | None, std: Sequence[float] | None, dtype: torch.dtype
) -> tuple[Sequence[float], Sequence[float]]:
    """Mean and standard deviation with their defaults."""
    constants = channel_constants(mean, std)
    if not torch.compiler.is_compiling():
        check_mean_std(op, *constants)
        check_output_dtype(op, dtype)
    return constants
