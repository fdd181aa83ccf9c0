"""The augmentation ops for torch: their plain-torch kernels and fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lightning_gpuaug.ops import reference_augment, reference_crop_resize
from lightning_gpuaug.ops._checks import check_augment_tensors, check_list, check_packed
from lightning_gpuaug.ops.record import Flag, Word
from lightning_gpuaug.ops.reference import new_images

SCHEMAS = {
    "augment": "augment(Tensor x, Tensor params, float[] mean, float[] std, ScalarType dtype=float, "
    "bool channels_last=True, int chains=1) -> Tensor",
    "crop_resize_packed": "crop_resize_packed(Tensor data, Tensor offsets, Tensor sizes, Tensor params, int out_h, "
    "int out_w) -> Tensor",
    "crop_resize_list": "crop_resize_list(Tensor[] images, Tensor params, int out_h, int out_w) -> Tensor",
    "crop_finish_packed": "crop_finish_packed(Tensor data, Tensor offsets, Tensor sizes, Tensor params, int out_h, "
    "int out_w, float[] mean, float[] std, ScalarType dtype=float, bool channels_last=True) -> Tensor",
    "crop_finish_list": "crop_finish_list(Tensor[] images, Tensor params, int out_h, int out_w, float[] mean, "
    "float[] std, ScalarType dtype=float, bool channels_last=True) -> Tensor",
}


def _augment_fake(
    x: torch.Tensor,
    params: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    chains: int = 1,
) -> torch.Tensor:
    check_augment_tensors("augment", x, params, dtype, chains)
    return new_images(x, dtype, channels_last)


def _packed_fake(
    data: torch.Tensor, offsets: torch.Tensor, sizes: torch.Tensor, params: torch.Tensor, out_h: int, out_w: int
) -> torch.Tensor:
    check_packed("crop_resize_packed", data, offsets, sizes, params, out_h, out_w)
    return data.new_empty((offsets.shape[0], out_h, out_w, 3))


def _list_fake(images: Sequence[torch.Tensor], params: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
    check_list("crop_resize_list", images, params, out_h, out_w)
    return params.new_empty((len(images), out_h, out_w, 3), dtype=torch.uint8)


def _finish_packed_fake(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    params: torch.Tensor,
    out_h: int,
    out_w: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    return new_images(_packed_fake(data, offsets, sizes, params, out_h, out_w), dtype, channels_last)


def _finish_list_fake(
    images: Sequence[torch.Tensor],
    params: torch.Tensor,
    out_h: int,
    out_w: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    return new_images(_list_fake(images, params, out_h, out_w), dtype, channels_last)


# Only CUDA has these two in one kernel; elsewhere they are what they stand for.


def _finish_packed(
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    params: torch.Tensor,
    out_h: int,
    out_w: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    pixels = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, out_h, out_w)
    return _finished(pixels, params, mean, std, dtype, channels_last)


def _finish_list(
    images: Sequence[torch.Tensor],
    params: torch.Tensor,
    out_h: int,
    out_w: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    pixels = torch.ops.lightning_gpuaug.crop_resize_list(images, params, out_h, out_w)
    return _finished(pixels, params, mean, std, dtype, channels_last)


def _finished(
    pixels: torch.Tensor,
    params: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype,
    channels_last: bool,
) -> torch.Tensor:
    unmixed = params.clone()
    unmixed[:, Word.FLAGS] &= ~int(Flag.MIXUP | Flag.CUTMIX)
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(pixels, unmixed, mean, std, dtype, channels_last, 0)
    return result


def register(library: torch.library.Library, note_fallback: Callable[[torch.device], None]) -> None:
    """Add the plain-torch kernels, for devices without native ones, and the fakes."""

    def augment(
        x: torch.Tensor,
        params: torch.Tensor,
        mean: Sequence[float],
        std: Sequence[float],
        dtype: torch.dtype = torch.float32,
        channels_last: bool = True,
        chains: int = 1,
    ) -> torch.Tensor:
        note_fallback(x.device)
        return reference_augment.augment(x, params, mean, std, dtype, channels_last, chains)

    def packed(
        data: torch.Tensor, offsets: torch.Tensor, sizes: torch.Tensor, params: torch.Tensor, out_h: int, out_w: int
    ) -> torch.Tensor:
        note_fallback(data.device)
        return reference_crop_resize.crop_resize_packed(data, offsets, sizes, params, out_h, out_w)

    def listed(images: Sequence[torch.Tensor], params: torch.Tensor, out_h: int, out_w: int) -> torch.Tensor:
        note_fallback(params.device)
        return reference_crop_resize.crop_resize_list(images, params, out_h, out_w)

    for name, kernel, fake in (
        ("augment", augment, _augment_fake),
        ("crop_resize_packed", packed, _packed_fake),
        ("crop_resize_list", listed, _list_fake),
        ("crop_finish_packed", _finish_packed, _finish_packed_fake),
        ("crop_finish_list", _finish_list, _finish_list_fake),
    ):
        library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"lightning_gpuaug::{name}", fake, lib=library)
