"""Single colour ops and filters on a uint8 batch: `augment` with a program of one op.

Every function takes images (N, H, W, 3) uint8 on any device and returns new ones of the same shape. A parameter is a
number for all samples, or a tensor of shape (N,) on the device of x with a value a sample; nothing synchronises.
Definitions are torchvision's unless a docstring says otherwise. A wrong type, shape or device, a number that is not
finite or not in the range that the docstring gives is a ValueError; the values of a tensor on a GPU are taken as they
are, since looking at them would wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._arguments import (
    check_flag,
    check_tensor,
    check_values,
    check_whole,
    finite_number,
    is_whole,
    shown,
    three_numbers,
)
from lightning_gpuaug.ops._checks import channel_constants, check_nhwc_rgb, check_output
from lightning_gpuaug.ops._rectangles import check_boxes, clipped
from lightning_gpuaug.ops.record import MAX_BLUR_KERNEL, PIL_GRAY, VERSION, WORDS, Flag, Opcode, Word, head_word

Value = float | torch.Tensor

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SIGMAS = (0.001, 1000.0)


def new_records(x: torch.Tensor) -> torch.Tensor:
    """Records for the batch x that do nothing, on its device."""
    params = torch.zeros(x.shape[0], WORDS, dtype=torch.int32, device=x.device)
    params[:, Word.VERSION] = VERSION
    return params


def _value(
    op: str, name: str, value: Value, x: torch.Tensor, least: float | None = None, most: float | None = None
) -> Value:
    """A parameter, checked."""
    if isinstance(value, torch.Tensor):
        check_tensor(op, name, value)
        if tuple(value.shape) != (x.shape[0],) or value.device != x.device:
            rule = f"{name} must be a number or have shape ({x.shape[0]},) on {x.device}"
            raise ValueError(f"{op}: {rule}, got shape {tuple(value.shape)} on {value.device}")
        if value.is_complex() or value.is_quantized or value.dtype == torch.bool:
            raise ValueError(f"{op}: {name} must have real numbers, got {value.dtype}")
        check_values(op, name, value, least, most)
        return value
    return value if torch.compiler.is_compiling() else finite_number(op, name, value, least, most)


def _float_bits(value: Value, x: torch.Tensor) -> torch.Tensor:
    """A parameter as (N,) words."""
    if not isinstance(value, torch.Tensor):
        return torch.full((x.shape[0],), float(value), dtype=torch.float32, device=x.device).view(torch.int32)
    return value.to(torch.float32).contiguous().view(torch.int32)


def _run(
    op: str, x: torch.Tensor, opcode: Opcode, values: Sequence[Value] = (), *, int_value: int | None = None,
    flags: int = 0,
) -> torch.Tensor:  # fmt: skip
    check_nhwc_rgb(op, x)
    params = new_records(x)
    params[:, Word.PROGRAM] = head_word(opcode, flags=flags)
    for i, value in enumerate(values):
        params[:, Word.PROGRAM + 1 + i] = _float_bits(value, x)
    if int_value is not None:
        params[:, Word.PROGRAM + 1 + len(values)] = int_value
    return _pixels(x, params)


def _pil_flag(op: str, pil: bool) -> int:
    check_flag(op, "pil", pil)
    return PIL_GRAY * pil


def _pixels(x: torch.Tensor, params: torch.Tensor, chains: int = 1) -> torch.Tensor:
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(
        x, params, [0.0] * 3, [1.0] * 3, torch.uint8, True, chains
    )
    return result.permute(0, 2, 3, 1)


def brightness(x: torch.Tensor, factor: Value) -> torch.Tensor:
    """Each value times `factor` (0 is black, 1 the image, at least 0), truncated."""
    check_nhwc_rgb("brightness", x)
    return _run("brightness", x, Opcode.BRIGHTNESS, [_value("brightness", "factor", factor, x, 0.0)])


def contrast(x: torch.Tensor, factor: Value, *, pil: bool = False) -> torch.Tensor:
    """A blend with the image's mean grey: 0 is that grey, 1 the image.

    Args:
        x: images.
        factor: weight of the image, at least 0.
        pil: Pillow's grey, and its mean rounded, instead of torchvision's.
    """
    check_nhwc_rgb("contrast", x)
    factor = _value("contrast", "factor", factor, x, 0.0)
    return _run("contrast", x, Opcode.CONTRAST, [factor, 1.0 - factor], flags=_pil_flag("contrast", pil))


def saturation(x: torch.Tensor, factor: Value, *, pil: bool = False) -> torch.Tensor:
    """A blend with the grey image: 0 is grey, 1 the image.

    Args:
        x: images.
        factor: weight of the image, at least 0.
        pil: Pillow's grey instead of torchvision's.
    """
    check_nhwc_rgb("saturation", x)
    factor = _value("saturation", "factor", factor, x, 0.0)
    return _run("saturation", x, Opcode.SATURATION, [factor, 1.0 - factor], flags=_pil_flag("saturation", pil))


def hue(x: torch.Tensor, turn: Value) -> torch.Tensor:
    """Hue turned by a share of the colour circle, -0.5..0.5."""
    check_nhwc_rgb("hue", x)
    return _run("hue", x, Opcode.HUE, [_value("hue", "turn", turn, x, -0.5, 0.5)])


def posterize(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Only the upper `bits` (0..8) of each value are kept."""
    check_whole("posterize", "bits", bits, 0, 8)
    return _run("posterize", x, Opcode.POSTERIZE, int_value=bits)


def solarize(x: torch.Tensor, threshold: Value) -> torch.Tensor:
    """Values at or above `threshold` are inverted."""
    check_nhwc_rgb("solarize", x)
    return _run("solarize", x, Opcode.SOLARIZE, [_value("solarize", "threshold", threshold, x)])


def solarize_add(x: torch.Tensor, added: Value, threshold: Value = 128.0) -> torch.Tensor:
    """`added` on values below `threshold` (timm's SolarizeAdd)."""
    op = "solarize_add"
    check_nhwc_rgb(op, x)
    return _run(op, x, Opcode.SOLARIZE_ADD, [_value(op, "added", added, x), _value(op, "threshold", threshold, x)])


def invert(x: torch.Tensor) -> torch.Tensor:
    """255 minus each value."""
    return _run("invert", x, Opcode.INVERT)


def gamma(x: torch.Tensor, exponent: Value, gain: Value = 1.0) -> torch.Tensor:
    """`gain * (value / 255) ** exponent` on the 0..1 scale; exponent and gain at least 0."""
    check_nhwc_rgb("gamma", x)
    values = [_value("gamma", "exponent", exponent, x, 0.0), _value("gamma", "gain", gain, x, 0.0)]
    return _run("gamma", x, Opcode.GAMMA, values)


def equalize(x: torch.Tensor) -> torch.Tensor:
    """Each channel's histogram flattened, by Pillow's formula."""
    return _run("equalize", x, Opcode.EQUALIZE)


def autocontrast(x: torch.Tensor) -> torch.Tensor:
    """Each channel stretched to 0..255."""
    return _run("autocontrast", x, Opcode.AUTOCONTRAST)


def sharpness(x: torch.Tensor, factor: Value) -> torch.Tensor:
    """A blend with the 3 x 3 smoothed image: 0 (the least) is smooth, 1 the image, 2 sharp. The border stays."""
    check_nhwc_rgb("sharpness", x)
    return _run("sharpness", x, Opcode.SHARPNESS, [1.0 - _value("sharpness", "factor", factor, x, 0.0)])


def grayscale(x: torch.Tensor, *, pil: bool = False) -> torch.Tensor:
    """Grey in all three channels; Pillow's (rounded) instead of torchvision's (truncated) with `pil`."""
    return _run("grayscale", x, Opcode.GRAYSCALE, flags=_pil_flag("grayscale", pil))


def gaussian_blur(x: torch.Tensor, sigma: Value, kernel_size: int) -> torch.Tensor:
    """Gaussian blur with border reflect101, within one level of torchvision's.

    Args:
        x: images.
        sigma: in pixels, 0.001..1000.
        kernel_size: odd, 1..63.
    """
    op = "gaussian_blur"
    check_nhwc_rgb(op, x)
    if not is_whole(kernel_size) or kernel_size % 2 == 0 or not 1 <= kernel_size <= MAX_BLUR_KERNEL:
        raise ValueError(f"{op}: kernel_size must be odd and in 1..{MAX_BLUR_KERNEL}, got {shown(kernel_size)}")
    return _run(op, x, Opcode.BLUR, [_value(op, "sigma", sigma, x, *SIGMAS)], int_value=kernel_size)


def color_matrix(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """`matrix @ (r, g, b, 1)` on the 0..255 scale, rounded; matrix is (3, 4) or (N, 3, 4) on the device of x."""
    check_nhwc_rgb("color_matrix", x)
    check_tensor("color_matrix", "matrix", matrix)
    if matrix.is_complex() or matrix.is_quantized or matrix.dtype == torch.bool:
        raise ValueError(f"color_matrix: matrix must have real numbers, got {matrix.dtype}")
    if tuple(matrix.shape) not in ((3, 4), (x.shape[0], 3, 4)) or matrix.device != x.device:
        rule = f"matrix must have shape (3, 4) or ({x.shape[0]}, 3, 4) on {x.device}"
        raise ValueError(f"color_matrix: {rule}, got {tuple(matrix.shape)} on {matrix.device}")
    check_values("color_matrix", "matrix", matrix)
    params = new_records(x)
    params[:, Word.PROGRAM] = head_word(Opcode.COLOR_MATRIX)
    rows = matrix.to(torch.float32).reshape(-1, 12).expand(x.shape[0], 12).contiguous()
    params[:, Word.PROGRAM + 1 : Word.PROGRAM + 13] = rows.view(torch.int32)
    return _pixels(x, params)


def lut(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Each value through a table.

    Args:
        x: images.
        table: uint8, on the device of x, shape (N, 3, 256), one a sample and channel; or (3, 256), one a channel; or
            (256,), one for all.
    """
    check_nhwc_rgb("lut", x)
    check_tensor("lut", "table", table)
    n = x.shape[0]
    shapes = ((256,), (3, 256), (n, 3, 256))
    if table.dtype != torch.uint8 or tuple(table.shape) not in shapes or table.device != x.device:
        rule = f"table must be uint8 of shape (256,), (3, 256) or ({n}, 3, 256) on {x.device}"
        raise ValueError(f"lut: {rule}, got {table.dtype} {tuple(table.shape)} on {table.device}")
    tables = table.expand(n, 3, 256)
    values = x.permute(0, 3, 1, 2).reshape(n, 3, x.shape[1] * x.shape[2]).long()
    return tables.gather(2, values).view(n, 3, *x.shape[1:3]).permute(0, 2, 3, 1).contiguous()


def erase(x: torch.Tensor, boxes: torch.Tensor, value: Sequence[float] = (0.0, 0.0, 0.0)) -> torch.Tensor:
    """A rectangle of each image overwritten.

    Args:
        x: images.
        boxes: int32, shape (N, 4), on the device of x: top, left, height, width (not negative), clipped to the image.
        value: of the three channels, 0..255.
    """
    op = "erase"
    check_nhwc_rgb(op, x)
    check_boxes(op, boxes, x)
    levels = three_numbers(op, "value", value)
    if len(levels) != 3:
        raise ValueError(f"{op}: value must have 3 numbers, got {len(levels)}")
    params = new_records(x)
    params[:, Word.FLAGS] = int(Flag.ERASE_CONSTANT)
    params[:, Word.ERASE : Word.ERASE + 4] = clipped(boxes, x.shape[1], x.shape[2])
    for c, level in enumerate(levels):
        level = finite_number(op, f"value[{c}]", level, 0.0, 255.0)
        params[:, Word.ERASE_VALUE + c] = _float_bits(level / 255.0, x)
    return _pixels(x, params, 0)


def mix(
    x: torch.Tensor,
    partner: torch.Tensor,
    share: Value,
    boxes: torch.Tensor | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    """MixUp or CutMix of normalised images.

    Args:
        x: images.
        partner: (N,) integers on the device of x: the row that each sample is mixed with. A row outside of the batch
            leaves the sample unmixed.
        share: of the sample itself, 0..1 (MixUp; not used by CutMix).
        boxes: int32, shape (N, 4), on the device of x: what CutMix takes from the partner, as for `erase`;
            None mixes up.
        mean: as for `normalize`.
        std: as for `normalize`.
        dtype: as for `normalize`.
        channels_last: as for `normalize`.

    Returns:
        (N, 3, H, W) of type `dtype`.
    """
    op = "mix"
    check_nhwc_rgb(op, x)
    n, height, width, _ = x.shape
    check_tensor(op, "partner", partner)
    if partner.dtype not in INTEGERS or tuple(partner.shape) != (n,) or partner.device != x.device:
        rule = f"partner must have integers of shape ({n},) on {x.device}"
        raise ValueError(f"{op}: {rule}, got {partner.dtype} {tuple(partner.shape)} on {partner.device}")
    share = _value(op, "share", share, x, 0.0, 1.0)
    mean, std = channel_constants(op, mean, std)
    if not torch.compiler.is_compiling():
        check_output(op, dtype, channels_last)
    params = new_records(x)
    params[:, Word.FLAGS] = int(Flag.MIXUP if boxes is None else Flag.CUTMIX)
    rows = partner.long()
    params[:, Word.PARTNER] = torch.where((rows >= 0) & (rows < n), rows, -1).to(torch.int32)
    params[:, Word.LAMBDA] = _float_bits(share, x)
    if boxes is not None:
        check_boxes(op, boxes, x)
        params[:, Word.CUT : Word.CUT + 4] = clipped(boxes, height, width)
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(x, params, mean, std, dtype, channels_last, 0)
    return result


def image_stats(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each image's histograms, int64 (N, 3, 256), and its mean grey, float32 (N,) (torchvision's grey, truncated)."""
    check_nhwc_rgb("image_stats", x)
    n = x.shape[0]
    values = x.permute(0, 3, 1, 2).reshape(n, 3, x.shape[1] * x.shape[2]).long()
    histogram = torch.zeros(n, 3, 256, dtype=torch.int64, device=x.device)
    histogram.scatter_add_(2, values, torch.ones_like(values))
    red, green, blue = values.unbind(1)
    gray = (2989 * red + 5870 * green + 1140 * blue) // 10000
    return histogram, gray.double().mean(1).float()
