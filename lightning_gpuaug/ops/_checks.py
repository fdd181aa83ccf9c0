"""Input checks of the public ops: one-line ValueErrors that name the argument, the rule and the value received."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops.record import LONGEST_SIDE, MAX_CHAINS, WORDS

OUTPUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
# The smallest float64 that rounds to infinity as a float32.
_FLOAT32_OVERFLOW = 2.0**128 - 2.0**103


def check_nhwc_rgb(op: str, x: torch.Tensor) -> None:
    """Require a dense uint8 batch of RGB images, shape (N, H, W, 3)."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(f"{op}: x must be a tensor, got {type(x).__name__}")
    if x.layout != torch.strided:
        raise ValueError(f"{op}: x must be a dense tensor, got layout {x.layout}")
    if x.dtype != torch.uint8:
        raise ValueError(f"{op}: x must be torch.uint8, got {x.dtype}")
    if x.ndim != 4 or x.shape[3] != 3:
        raise ValueError(f"{op}: x must have shape (N, H, W, 3), got {tuple(x.shape)}")


def check_per_sample(op: str, name: str, values: torch.Tensor, x: torch.Tensor, dtype: torch.dtype) -> None:
    """Require one value of `dtype` for each sample of x, on the device of x."""
    if not isinstance(values, torch.Tensor):
        raise ValueError(f"{op}: {name} must be a tensor, got {type(values).__name__}")
    if values.layout != torch.strided:
        raise ValueError(f"{op}: {name} must be a dense tensor, got layout {values.layout}")
    if values.dtype != dtype:
        raise ValueError(f"{op}: {name} must be {dtype}, got {values.dtype}")
    if values.ndim != 1 or values.shape[0] != x.shape[0]:
        raise ValueError(f"{op}: {name} must have shape ({x.shape[0]},), one value a sample, got {tuple(values.shape)}")
    if values.device != x.device:
        raise ValueError(f"{op}: {name} must be on the device of x ({x.device}), got {values.device}")


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
        if 1.0 / (255.0 * s) >= _FLOAT32_OVERFLOW or abs(m / s) >= _FLOAT32_OVERFLOW:
            raise ValueError(
                f"{op}: 1 / (255 * std) and mean / std must fit float32, got mean[{c}] = {m}, std[{c}] = {s}"
            )


def check_output_dtype(op: str, dtype: torch.dtype) -> None:
    """Require a dtype that the ops can write."""
    if dtype not in OUTPUT_DTYPES:
        raise ValueError(
            f"{op}: dtype must be torch.float32, torch.float16, torch.bfloat16 or torch.uint8, got {dtype}"
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


def check_augment_tensors(op: str, x: torch.Tensor, params: torch.Tensor, dtype: torch.dtype, chains: int) -> None:
    """Check what `augment` can know while it is traced."""
    check_nhwc_rgb(op, x)
    if max(x.shape[1:3]) > LONGEST_SIDE:
        raise ValueError(f"{op}: x must have H and W of at most {LONGEST_SIDE}, got {tuple(x.shape)}")
    if not isinstance(params, torch.Tensor):
        raise ValueError(f"{op}: params must be a tensor, got {type(params).__name__}")
    if params.dtype != torch.int32:
        raise ValueError(f"{op}: params must be torch.int32, got {params.dtype}")
    if tuple(params.shape) != (x.shape[0], WORDS):
        raise ValueError(
            f"{op}: params must have shape ({x.shape[0]}, {WORDS}), a record a sample, got {tuple(params.shape)}"
        )
    if params.device != x.device:
        raise ValueError(f"{op}: params must be on the device of x ({x.device}), got {params.device}")
    check_output_dtype(op, dtype)
    if not 0 <= chains <= MAX_CHAINS:
        raise ValueError(f"{op}: chains must be 0..{MAX_CHAINS}, got {chains}")


def check_augment(
    x: torch.Tensor, params: torch.Tensor, mean: Sequence[float], std: Sequence[float], dtype: torch.dtype, chains: int
) -> None:
    """Check the arguments of `augment`, but not what the records say."""
    check_augment_tensors("augment", x, params, dtype, chains)
    check_mean_std("augment", mean, std)


def _check_records_of(op: str, params: torch.Tensor, samples: int, device: torch.device) -> None:
    if params.dtype != torch.int32 or tuple(params.shape) != (samples, WORDS):
        rule = f"params must be int32 of shape ({samples}, {WORDS}), a record a sample"
        raise ValueError(f"{op}: {rule}, got {params.dtype} {tuple(params.shape)}")
    if params.device != device:
        raise ValueError(f"{op}: params must be on the device of the images ({device}), got {params.device}")


def _check_out_size(op: str, out_h: int, out_w: int) -> None:
    if not (1 <= out_h <= LONGEST_SIDE and 1 <= out_w <= LONGEST_SIDE):
        raise ValueError(f"{op}: size must be two numbers in 1..{LONGEST_SIDE}, got ({out_h}, {out_w})")


def check_packed(
    op: str,
    data: torch.Tensor,
    offsets: torch.Tensor,
    sizes: torch.Tensor,
    params: torch.Tensor,
    out_h: int,
    out_w: int,
) -> None:
    """Check a packed batch: images of different sizes end to end in one buffer."""
    if data.dtype != torch.uint8 or data.ndim != 1:
        raise ValueError(f"{op}: data must be uint8 with one dimension, got {data.dtype} {tuple(data.shape)}")
    if offsets.dtype != torch.int64 or offsets.ndim != 1:
        raise ValueError(f"{op}: offsets must be int64 of shape (N,), got {offsets.dtype} {tuple(offsets.shape)}")
    samples = offsets.shape[0]
    if sizes.dtype != torch.int32 or tuple(sizes.shape) != (samples, 2):
        rule = f"sizes must be int32 of shape ({samples}, 2), height and width a sample"
        raise ValueError(f"{op}: {rule}, got {sizes.dtype} {tuple(sizes.shape)}")
    for name, tensor in (("offsets", offsets), ("sizes", sizes)):
        if tensor.device != data.device:
            raise ValueError(f"{op}: {name} must be on the device of data ({data.device}), got {tensor.device}")
    _check_records_of(op, params, samples, data.device)
    _check_out_size(op, out_h, out_w)


def check_list(op: str, images: Sequence[torch.Tensor], params: torch.Tensor, out_h: int, out_w: int) -> None:
    """Check a list of images that differ in size."""
    for i, image in enumerate(images):
        if image.dtype != torch.uint8:
            raise ValueError(f"{op}: images must be torch.uint8, got {image.dtype} for sample {i}")
        sides = image.shape[:2]
        if image.ndim != 3 or image.shape[2] != 3 or min(sides) < 1 or max(sides) > LONGEST_SIDE:
            rule = f"images must have shape (H, W, 3) with sides of 1..{LONGEST_SIDE}"
            raise ValueError(f"{op}: {rule}, got {tuple(image.shape)} for sample {i}")
        if image.device != params.device:
            raise ValueError(
                f"{op}: images must be on the device of params ({params.device}), got {image.device} for sample {i}"
            )
    _check_records_of(op, params, len(images), params.device)
    _check_out_size(op, out_h, out_w)
