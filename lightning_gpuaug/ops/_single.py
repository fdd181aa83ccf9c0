"""Single colour ops and filters on a uint8 batch: `augment` with a program of one op.

Every function takes images (N, H, W, 3) uint8 on any device and returns new ones of the same shape. A parameter is a
number for all samples, or a tensor of shape (N,) on the device of x with a value a sample; nothing synchronises.
Definitions are torchvision's unless a docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_gpuaug.ops._checks import check_nhwc_rgb
from lightning_gpuaug.ops.record import MAX_BLUR_KERNEL, PIL_GRAY, VERSION, WORDS, Flag, Opcode, Word, head_word

Value = float | torch.Tensor


def new_records(x: torch.Tensor) -> torch.Tensor:
    """Records for the batch x that do nothing, on its device."""
    params = torch.zeros(x.shape[0], WORDS, dtype=torch.int32, device=x.device)
    params[:, Word.VERSION] = VERSION
    return params


def _float_bits(op: str, name: str, value: Value, x: torch.Tensor) -> torch.Tensor:
    """A parameter as (N,) words."""
    if not isinstance(value, torch.Tensor):
        return torch.full((x.shape[0],), float(value), dtype=torch.float32, device=x.device).view(torch.int32)
    if tuple(value.shape) != (x.shape[0],) or value.device != x.device:
        rule = f"{name} must be a number or have shape ({x.shape[0]},) on {x.device}"
        raise ValueError(f"{op}: {rule}, got shape {tuple(value.shape)} on {value.device}")
    return value.to(torch.float32).contiguous().view(torch.int32)


def _run(
    op: str, x: torch.Tensor, opcode: Opcode, values: Sequence[tuple[str, Value]] = (), *, int_value: int | None = None,
    flags: int = 0,
) -> torch.Tensor:  # fmt: skip
    check_nhwc_rgb(op, x)
    params = new_records(x)
    params[:, Word.PROGRAM] = head_word(opcode, flags=flags)
    for i, (name, value) in enumerate(values):
        params[:, Word.PROGRAM + 1 + i] = _float_bits(op, name, value, x)
    if int_value is not None:
        params[:, Word.PROGRAM + 1 + len(values)] = int_value
    return _pixels(x, params)


def _pixels(x: torch.Tensor, params: torch.Tensor, chains: int = 1) -> torch.Tensor:
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(
        x, params, [0.0] * 3, [1.0] * 3, torch.uint8, True, chains
    )
    return result.permute(0, 2, 3, 1)


def brightness(x: torch.Tensor, factor: Value) -> torch.Tensor:
    """Each value times `factor` (0 is black, 1 the image), truncated."""
    return _run("brightness", x, Opcode.BRIGHTNESS, [("factor", factor)])


def contrast(x: torch.Tensor, factor: Value, *, pil: bool = False) -> torch.Tensor:
    """A blend with the image's mean grey: 0 is that grey, 1 the image.

    Args:
        x: images.
        factor: weight of the image.
        pil: Pillow's grey, and its mean rounded, instead of torchvision's.
    """
    values = [("factor", factor), ("factor", 1.0 - factor)]
    return _run("contrast", x, Opcode.CONTRAST, values, flags=PIL_GRAY * pil)


def saturation(x: torch.Tensor, factor: Value, *, pil: bool = False) -> torch.Tensor:
    """A blend with the grey image: 0 is grey, 1 the image.

    Args:
        x: images.
        factor: weight of the image.
        pil: Pillow's grey instead of torchvision's.
    """
    values = [("factor", factor), ("factor", 1.0 - factor)]
    return _run("saturation", x, Opcode.SATURATION, values, flags=PIL_GRAY * pil)


def hue(x: torch.Tensor, turn: Value) -> torch.Tensor:
    """Hue turned by a share of the colour circle, -0.5..0.5."""
    return _run("hue", x, Opcode.HUE, [("turn", turn)])


def posterize(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Only the upper `bits` (0..8) of each value are kept."""
    if not 0 <= bits <= 8:
        raise ValueError(f"posterize: bits must be 0..8, got {bits}")
    return _run("posterize", x, Opcode.POSTERIZE, int_value=bits)


def solarize(x: torch.Tensor, threshold: Value) -> torch.Tensor:
    """Values at or above `threshold` are inverted."""
    return _run("solarize", x, Opcode.SOLARIZE, [("threshold", threshold)])


def solarize_add(x: torch.Tensor, added: Value, threshold: Value = 128.0) -> torch.Tensor:
    """`added` on values below `threshold` (timm's SolarizeAdd)."""
    return _run("solarize_add", x, Opcode.SOLARIZE_ADD, [("added", added), ("threshold", threshold)])


def invert(x: torch.Tensor) -> torch.Tensor:
    """255 minus each value."""
    return _run("invert", x, Opcode.INVERT)


def gamma(x: torch.Tensor, exponent: Value, gain: Value = 1.0) -> torch.Tensor:
    """`gain * (value / 255) ** exponent` on the 0..1 scale."""
    return _run("gamma", x, Opcode.GAMMA, [("exponent", exponent), ("gain", gain)])


def equalize(x: torch.Tensor) -> torch.Tensor:
    """Each channel's histogram flattened, by Pillow's formula."""
    return _run("equalize", x, Opcode.EQUALIZE)


def autocontrast(x: torch.Tensor) -> torch.Tensor:
    """Each channel stretched to 0..255."""
    return _run("autocontrast", x, Opcode.AUTOCONTRAST)


def sharpness(x: torch.Tensor, factor: Value) -> torch.Tensor:
    """A blend with the 3 x 3 smoothed image: 0 is smooth, 1 the image, 2 sharp. The outermost pixels stay."""
    return _run("sharpness", x, Opcode.SHARPNESS, [("factor", 1.0 - factor)])


def grayscale(x: torch.Tensor, *, pil: bool = False) -> torch.Tensor:
    """Grey in all three channels; Pillow's (rounded) instead of torchvision's (truncated) with `pil`."""
    return _run("grayscale", x, Opcode.GRAYSCALE, flags=PIL_GRAY * pil)


def gaussian_blur(x: torch.Tensor, sigma: Value, kernel_size: int) -> torch.Tensor:
    """Gaussian blur with border reflect101, within one level of torchvision's.

    Args:
        x: images.
        sigma: in pixels, above 0.
        kernel_size: odd, 1..63.
    """
    if kernel_size % 2 == 0 or not 1 <= kernel_size <= MAX_BLUR_KERNEL:
        raise ValueError(f"gaussian_blur: kernel_size must be odd and in 1..{MAX_BLUR_KERNEL}, got {kernel_size}")
    return _run("gaussian_blur", x, Opcode.BLUR, [("sigma", sigma)], int_value=kernel_size)


def color_matrix(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """`matrix @ (r, g, b, 1)` on the 0..255 scale, rounded; matrix is (3, 4) or (N, 3, 4) on the device of x."""
    check_nhwc_rgb("color_matrix", x)
    if tuple(matrix.shape) not in ((3, 4), (x.shape[0], 3, 4)) or matrix.device != x.device:
        rule = f"matrix must have shape (3, 4) or ({x.shape[0]}, 3, 4) on {x.device}"
        raise ValueError(f"color_matrix: {rule}, got {tuple(matrix.shape)} on {matrix.device}")
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
    n = x.shape[0]
    shapes = ((256,), (3, 256), (n, 3, 256))
    if table.dtype != torch.uint8 or tuple(table.shape) not in shapes or table.device != x.device:
        rule = f"table must be uint8 of shape (256,), (3, 256) or ({n}, 3, 256) on {x.device}"
        raise ValueError(f"lut: {rule}, got {table.dtype} {tuple(table.shape)} on {table.device}")
    tables = table.expand(n, 3, 256)
    values = x.permute(0, 3, 1, 2).reshape(n, 3, -1).long()
    return tables.gather(2, values).view(n, 3, *x.shape[1:3]).permute(0, 2, 3, 1).contiguous()


def erase(x: torch.Tensor, boxes: torch.Tensor, value: Sequence[float] = (0.0, 0.0, 0.0)) -> torch.Tensor:
    """A rectangle of each image overwritten.

    Args:
        x: images.
        boxes: int32, shape (N, 4), on the device of x: top, left, height, width, clipped to the image.
        value: of the three channels, 0..255.
    """
    check_nhwc_rgb("erase", x)
    _check_boxes("erase", boxes, x)
    params = new_records(x)
    params[:, Word.FLAGS] = int(Flag.ERASE_CONSTANT)
    params[:, Word.ERASE : Word.ERASE + 4] = boxes
    for c in range(3):
        params[:, Word.ERASE_VALUE + c] = _float_bits("erase", "value", value[c] / 255.0, x)
    return _pixels(x, params, 0)


def mix(
    x: torch.Tensor,
    partner: torch.Tensor,
    share: Value,
    boxes: torch.Tensor | None = None,
    *,
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
) -> torch.Tensor:
    """MixUp or CutMix of normalised images.

    Args:
        x: images.
        partner: (N,) integers on the device of x: the row that each sample is mixed with. A row outside of the batch
            leaves the sample unmixed.
        share: of the sample itself, 0..1 (MixUp; not used by CutMix).
        boxes: int32, shape (N, 4), on the device of x: what CutMix takes from the partner; None mixes up.
        mean: as for `normalize`.
        std: as for `normalize`.
        dtype: as for `normalize`.
        channels_last: as for `normalize`.

    Returns:
        (N, 3, H, W) of type `dtype`.
    """
    check_nhwc_rgb("mix", x)
    params = new_records(x)
    params[:, Word.FLAGS] = int(Flag.MIXUP if boxes is None else Flag.CUTMIX)
    if tuple(partner.shape) != (x.shape[0],) or partner.device != x.device or partner.is_floating_point():
        rule = f"partner must have integers of shape ({x.shape[0]},) on {x.device}"
        raise ValueError(f"mix: {rule}, got {partner.dtype} {tuple(partner.shape)} on {partner.device}")
    params[:, Word.PARTNER] = partner.to(torch.int32)
    params[:, Word.LAMBDA] = _float_bits("mix", "share", share, x)
    if boxes is not None:
        _check_boxes("mix", boxes, x)
        params[:, Word.CUT : Word.CUT + 4] = boxes
    result: torch.Tensor = torch.ops.lightning_gpuaug.augment(x, params, list(mean), list(std), dtype, channels_last, 0)
    return result


def image_stats(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each image's histograms, int64 (N, 3, 256), and its mean grey, float32 (N,) (torchvision's grey, truncated)."""
    check_nhwc_rgb("image_stats", x)
    n = x.shape[0]
    values = x.permute(0, 3, 1, 2).reshape(n, 3, -1).long()
    histogram = torch.zeros(n, 3, 256, dtype=torch.int64, device=x.device)
    histogram.scatter_add_(2, values, torch.ones_like(values))
    weights = torch.tensor([2989, 5870, 1140], device=x.device)
    gray = (values * weights[:, None]).sum(1) // 10000
    return histogram, gray.double().mean(1).float()


def _check_boxes(op: str, boxes: torch.Tensor, x: torch.Tensor) -> None:
    if boxes.dtype != torch.int32 or tuple(boxes.shape) != (x.shape[0], 4) or boxes.device != x.device:
        rule = f"boxes must be int32 of shape ({x.shape[0]}, 4) on {x.device}"
        raise ValueError(f"{op}: {rule}, got {boxes.dtype} {tuple(boxes.shape)} on {boxes.device}")
