"""The public `warp`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from lightning_gpuaug.ops._arguments import (
    as_float,
    check_choice,
    check_device,
    check_output_size,
    check_tensor,
    is_number,
    listed,
    shown,
)

Interpolation = Literal["nearest", "bilinear", "bicubic"]
Border = Literal["constant", "replicate", "reflect", "reflect101", "pil"]
Centre = Literal["half", "integer"]

# The position is the number that the op takes.
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
BORDERS = ("constant", "replicate", "reflect", "reflect101", "pil")
CENTRES = ("half", "integer")
IMAGE_DTYPES = (torch.uint8, torch.float32, torch.float16, torch.bfloat16)


def warp(
    x: torch.Tensor,
    matrix: torch.Tensor,
    output_size: tuple[int, int] | None = None,
    *,
    interpolation: Interpolation = "bilinear",
    border: Border = "constant",
    fill: float | Sequence[float] = 0.0,
    centre: Centre = "half",
) -> torch.Tensor:
    """Resample images through an affine or perspective matrix, one for each sample.

    The matrix maps where a result pixel is to where it comes from (dst to src), as `grid_sample` and Pillow do and the
    inverse of what `cv2.warpAffine` takes by default. `lightning_gpuaug.ops.matrices` builds such matrices, and
    `transform_points`, `transform_boxes` and `transform_masks` take the same one. Coordinates are float32; CPU and CUDA
    give the same uint8 pixels bit for bit. Differentiable in x, twice; not in matrix. There is no antialiasing.

    Args:
        x: images, (N, C, H, W), uint8, float32, float16 or bfloat16 (float64 on the CPU), in any memory layout.
        matrix: (N, 2, 3), (N, 3, 3), or one (2, 3) or (3, 3) for all; a floating type, computed in float32; in pixels,
            x to the right, y down.
        output_size: (height, width) of the result; None: that of x.
        interpolation: `"nearest"`, `"bilinear"`, or `"bicubic"` (Keys, -0.75, as torch; -1 with the border `"pil"`).
        border: what lies outside: `"constant"` (blends with the fill colour), `"replicate"` (aaa|abcd|ddd), `"reflect"`
            (cba|abcd|dcb), `"reflect101"` (dcb|abcd|cba), or `"pil"`, Pillow's rule: points outside are the fill
            colour, points inside do not blend with it, uint8 results are truncated.
        fill: the fill colour: one number, or one a channel for up to 32 channels. A point that the matrix sends to
            nowhere (infinite, NaN) has it with every border.
        centre: `"half"`: the centre of pixel i is i + 0.5, so that resizing and flipping need no correction;
            `"integer"`: it is i, as in OpenCV.

    Returns:
        (N, C, output_size), of the type and device of x; channels_last if x is, else contiguous. uint8 results are
        rounded to nearest even.

    Raises:
        ValueError: an argument has a wrong type, shape, dtype, device or value.

    Example:
        >>> x = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
        >>> warp(x, torch.tensor([[-1.0, 0, 2], [0, 1, 0]])).flatten().tolist()
        [1, 0, 3, 2]
    """
    numbers = check_warp_choices(interpolation, border, centre)
    matrix = checked_matrix("warp", matrix, x)
    out_h, out_w = check_output_size("warp", tuple(x.shape[2:]) if output_size is None else output_size)
    fills = _fill_colour(fill)
    if len(fills) != 1 and (len(fills) != x.shape[1] or len(fills) > 32):
        raise ValueError(
            f"warp: fill must be one number or one a channel ({x.shape[1]}, at most 32), got {len(fills)} numbers"
        )
    result: torch.Tensor = torch.ops.lightning_gpuaug.warp(
        x, matrix, out_h, out_w, numbers[0], numbers[1], fills, centre == "half"
    )
    return result


def _fill_colour(fill: float | Sequence[float]) -> list[float]:
    """One number, or one a channel."""
    values = [fill] if isinstance(fill, int | float) or is_number(fill) else fill
    if not torch.compiler.is_compiling():
        numbers = listed(values)
        if numbers is None or not all(map(is_number, numbers)):
            raise ValueError(f"warp: fill must be one number or one a channel, got {shown(fill)}")
        return [as_float(v) for v in numbers]
    return [float(v) for v in values]  # type: ignore[arg-type]


def check_warp_choices(interpolation: str, border: str, centre: str) -> tuple[int, int]:
    """Require known names; gives the numbers of interpolation and border."""
    for name, value, allowed in (
        ("interpolation", interpolation, INTERPOLATIONS),
        ("border", border, BORDERS),
        ("centre", centre, CENTRES),
    ):
        check_choice("warp", name, value, allowed)
    return INTERPOLATIONS.index(interpolation), BORDERS.index(border)


def checked_matrix(op: str, matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Check images and their matrices; gives float32 matrices (N, 2 or 3, 3)."""
    check_tensor(op, "x", x)
    check_tensor(op, "matrix", matrix)
    check_images(op, "x", x)
    if not matrix.is_floating_point():
        raise ValueError(f"{op}: matrix must be a floating tensor, got {matrix.dtype}")
    if matrix.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{op}: matrix must not require a gradient: {op} is differentiable in x alone")
    if matrix.ndim == 2:
        matrix = matrix.expand(x.shape[0], *matrix.shape)
    if matrix.ndim != 3 or matrix.shape[0] != x.shape[0] or tuple(matrix.shape[1:]) not in ((2, 3), (3, 3)):
        raise ValueError(
            f"{op}: matrix must have shape (2, 3), (3, 3), ({x.shape[0]}, 2, 3) or ({x.shape[0]}, 3, 3), "
            f"got {tuple(matrix.shape)}"
        )
    check_device(op, "matrix", matrix, "x", x)
    return matrix.to(torch.float32)


def check_images(op: str, name: str, x: torch.Tensor) -> None:
    """Require images (N, C, H, W) of a type that the device can warp."""
    if x.dtype not in IMAGE_DTYPES and not (x.dtype == torch.float64 and x.device.type != "cuda"):
        raise ValueError(
            f"{op}: {name} must be torch.uint8, torch.float32, torch.float16 or torch.bfloat16, got {x.dtype}"
        )
    if x.ndim != 4:
        raise ValueError(f"{op}: {name} must have shape (N, C, H, W), got {tuple(x.shape)}")
    if not torch.compiler.is_compiling() and min(x.shape[2:]) < 1:
        raise ValueError(f"{op}: {name} must have a height and a width, got {tuple(x.shape)}")
