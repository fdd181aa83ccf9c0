"""Input checks of the public ops: one-line ValueErrors that name the argument, the rule and the value received."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import (
    FLOAT32_OVERFLOW,
    check_device,
    check_flag,
    check_tensor,
    check_whole,
    shown,
    three_numbers,
)
from lightning_gpuaug.ops.record import LONGEST_SIDE, MAX_CHAINS, WORDS

OUTPUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


def check_nhwc_rgb(op: str, x: torch.Tensor) -> None:
    """Require a dense uint8 batch of RGB images, shape (N, H, W, 3)."""
    check_tensor(op, "x", x)
    if x.dtype != torch.uint8:
        raise ValueError(f"{op}: x must be torch.uint8, got {x.dtype}")
    if x.ndim != 4 or x.shape[3] != 3:
        raise ValueError(f"{op}: x must have shape (N, H, W, 3), got {tuple(x.shape)}")


def check_per_sample(op: str, name: str, values: torch.Tensor, x: torch.Tensor, dtype: torch.dtype) -> None:
    """Require one value of `dtype` for each sample of x, on the device of x."""
    check_tensor(op, name, values)
    if values.dtype != dtype:
        raise ValueError(f"{op}: {name} must be {dtype}, got {values.dtype}")
    if values.ndim != 1 or values.shape[0] != x.shape[0]:
        raise ValueError(f"{op}: {name} must have shape ({x.shape[0]},), one value a sample, got {tuple(values.shape)}")
    check_device(op, name, values, "x", x)


def channel_constants(
    op: str, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation with their defaults; checked unless they are being traced."""
    mean = (0.0, 0.0, 0.0) if mean is None else mean
    std = (1.0, 1.0, 1.0) if std is None else std
    if torch.compiler.is_compiling():
        return tuple(mean), tuple(std)
    means, stds = three_numbers(op, "mean", mean), three_numbers(op, "std", std)
    check_mean_std(op, means, stds)
    return means, stds


def check_mean_std(op: str, mean: Sequence[float], std: Sequence[float]) -> None:
    """Require three finite means and three finite positive stds whose affine form fits float32."""
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != 3:
            raise ValueError(f"{op}: {name} must have 3 numbers, got {len(values)}")
        for c, value in enumerate(values):
            if not math.isfinite(value):
                raise ValueError(f"{op}: {name} must be finite, got {name}[{c}] = {value}")
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        if s <= 0:
            raise ValueError(f"{op}: std must be above 0, got std[{c}] = {s}")
        if 1.0 / (255.0 * s) >= FLOAT32_OVERFLOW or abs(m / s) >= FLOAT32_OVERFLOW:
            raise ValueError(
                f"{op}: 1 / (255 * std) and mean / std must fit float32, got mean[{c}] = {m}, std[{c}] = {s}"
            )


def check_output(op: str, dtype: torch.dtype, channels_last: bool) -> None:
    """Require a dtype that the ops can write, and True or False for the layout."""
    check_output_dtype(op, dtype)
    check_flag(op, "channels_last", channels_last)


def check_output_dtype(op: str, dtype: torch.dtype) -> None:
    """Require a dtype that the ops can write."""
    if not isinstance(dtype, torch.dtype) or dtype not in OUTPUT_DTYPES:
        raise ValueError(
            f"{op}: dtype must be torch.float32, torch.float16, torch.bfloat16 or torch.uint8, got {shown(dtype)}"
        )


def check_normalize_tensors(x: torch.Tensor, flip: torch.Tensor | None, dtype: torch.dtype) -> None:
    """Check what `normalize` can know while it is traced: everything but the values of mean and std."""
    check_nhwc_rgb("normalize", x)
    if flip is not None:
        check_per_sample("normalize", "flip", flip, x, torch.bool)
    check_output_dtype("normalize", dtype)


def check_normalize(
    x: torch.Tensor, mean: Sequence[float], std: Sequence[float], flip: torch.Tensor | None, dtype: torch.dtype
) -> None:
    """Check the arguments of `normalize`."""
    check_normalize_tensors(x, flip, dtype)
    check_mean_std("normalize", mean, std)


def check_params(op: str, params: torch.Tensor, samples: int) -> None:
    """Require records of a batch, but not what they say, nor where they lie."""
    check_tensor(op, "params", params)
    if params.dtype != torch.int32:
        raise ValueError(f"{op}: params must be torch.int32, got {params.dtype}")
    if tuple(params.shape) != (samples, WORDS):
        raise ValueError(
            f"{op}: params must have shape ({samples}, {WORDS}), a record a sample, got {tuple(params.shape)}"
        )


def check_augment_images(op: str, x: torch.Tensor) -> None:
    """Require images (N, H, W, 3) whose sides a record can tell."""
    check_nhwc_rgb(op, x)
    if max(x.shape[1:3]) > LONGEST_SIDE:
        raise ValueError(f"{op}: x must have H and W of at most {LONGEST_SIDE}, got {tuple(x.shape)}")


def check_augment_tensors(op: str, x: torch.Tensor, params: torch.Tensor, dtype: torch.dtype, chains: int) -> None:
    """Check what `augment` can know while it is traced."""
    check_augment_images(op, x)
    check_params(op, params, x.shape[0])
    check_device(op, "params", params, "x", x)
    check_output_dtype(op, dtype)
    check_chains(op, chains)


def check_chains(op: str, chains: int) -> None:
    """Require a number of images a sample that a record can ask for."""
    check_whole(op, "chains", chains, 0, MAX_CHAINS)


def check_augment(
    x: torch.Tensor, params: torch.Tensor, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype, chains: int
) -> None:
    """Check the arguments of `augment`, but not what the records say."""
    check_augment_tensors("augment", x, params, dtype, chains)
    check_mean_std("augment", mean, std)


def check_out_size(op: str, out_h: int, out_w: int) -> None:
    """Require sides of the result that a record can tell."""
    if not (1 <= out_h <= LONGEST_SIDE and 1 <= out_w <= LONGEST_SIDE):
        raise ValueError(f"{op}: size must be two numbers in 1..{LONGEST_SIDE}, got ({out_h}, {out_w})")


def check_layout(op: str, data: torch.Tensor, offsets: torch.Tensor, sizes: torch.Tensor) -> None:
    """Check a packed batch, images of different sizes end to end in one buffer, but not that they lie in it."""
    for name, tensor in (("data", data), ("offsets", offsets), ("sizes", sizes)):
        check_tensor(op, name, tensor)
    if data.dtype != torch.uint8 or data.ndim != 1:
        raise ValueError(f"{op}: data must be uint8 with one dimension, got {data.dtype} {tuple(data.shape)}")
    if offsets.dtype != torch.int64 or offsets.ndim != 1:
        raise ValueError(f"{op}: offsets must be int64 of shape (N,), got {offsets.dtype} {tuple(offsets.shape)}")
    samples = offsets.shape[0]
    if sizes.dtype != torch.int32 or tuple(sizes.shape) != (samples, 2):
        rule = f"sizes must be int32 of shape ({samples}, 2), height and width a sample"
        raise ValueError(f"{op}: {rule}, got {sizes.dtype} {tuple(sizes.shape)}")
    for name, tensor in (("offsets", offsets), ("sizes", sizes)):
        check_device(op, name, tensor, "data", data)


def check_inside(
    op: str, data: torch.Tensor, offsets: torch.Tensor, sizes: torch.Tensor, longest: int = 2**31 - 1
) -> None:
    """Require that a packed batch on the CPU lies in its data. A batch on a GPU is not looked at: that would wait."""
    if data.device.type != "cpu":
        return
    sides = sizes.long()
    bad = ((sides < 1) | (sides > longest)).any(1)
    if bool(bad.any()):
        i = int(bad.nonzero()[0, 0])
        raise ValueError(f"{op}: sizes must be 1..{longest}, got {tuple(sizes[i].tolist())} for sample {i}")
    bad = (offsets < 0) | (sides.prod(1) > (data.numel() - offsets).div(3, rounding_mode="floor"))
    if bool(bad.any()):
        i = int(bad.nonzero()[0, 0])
        height, width = sizes[i].tolist()
        raise ValueError(
            f"{op}: offsets and sizes must lie in data ({data.numel()} bytes), got {height} x {width} x 3 bytes from "
            f"{int(offsets[i])} on for sample {i}"
        )


def check_packed(
    op: str,
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    params: torch.Tensor,
    out_h: int,
    out_w: int,
) -> None:
    """Check a packed batch and its records, but not what they say."""
    check_layout(op, data, offsets, sizes)
    check_params(op, params, offsets.shape[0])
    check_device(op, "params", params, "data", data)
    check_out_size(op, out_h, out_w)


def check_images(op: str, images: Sequence[torch.Tensor]) -> None:
    """Check a list of images that differ in size."""
    if not isinstance(images, list | tuple):
        raise ValueError(f"{op}: images must be a list of tensors, got {shown(images)}")
    for i, image in enumerate(images):
        if not isinstance(image, torch.Tensor) or image.layout != torch.strided:
            raise ValueError(f"{op}: images must be dense tensors, got {shown(image)} for sample {i}")
        if image.dtype != torch.uint8:
            raise ValueError(f"{op}: images must be torch.uint8, got {image.dtype} for sample {i}")
        sides = image.shape[:2]
        if image.ndim != 3 or image.shape[2] != 3 or min(sides) < 1 or max(sides) > LONGEST_SIDE:
            rule = f"images must have shape (H, W, 3) with sides of 1..{LONGEST_SIDE}"
            raise ValueError(f"{op}: {rule}, got {tuple(image.shape)} for sample {i}")
        if image.device != images[0].device:
            raise ValueError(
                f"{op}: images must be on one device ({images[0].device}), got {image.device} for sample {i}"
            )


def check_list(op: str, images: Sequence[torch.Tensor], params: torch.Tensor, out_h: int, out_w: int) -> None:
    """Check a list of images and their records, but not what they say."""
    check_images(op, images)
    check_params(op, params, len(images))
    if images:
        check_device(op, "params", params, "the images", images[0])
    check_out_size(op, out_h, out_w)
