"""The augmentation ops for torch: their plain-torch kernels and fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from lightning_gpuaug.ops import reference_augment, reference_crop_resize
from lightning_gpuaug.ops._checks import check_augment_tensors, check_list, check_packed
from lightning_gpuaug.ops.reference import new_images

SCHEMAS = {
    "augment": "augment(Tensor x, Tensor params, float[] mean, float[] std, ScalarType dtype=float, "
    "bool channels_last=True, int chains=1) -> Tensor",
    "crop_resize_packed": "crop_resize_packed(Tensor data, Tensor offsets, Tensor sizes, Tensor params, int out_h, "
    "int out_w) -> Tensor",
    "crop_resize_list": "crop_resize_list(Tensor[] images, Tensor params, int out_h, int out_w) -> Tensor",
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
    ):
        library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"lightning_gpuaug::{name}", fake, lib=library)
