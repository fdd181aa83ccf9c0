"""`augment` in plain torch: a sample at a time, an op at a time, with the rounding of the native kernels.

Slow, and simple enough to be read beside the formulas. A fused multiply-add is emulated where the kernels have one, so
that the results are the same bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops._checks import check_augment
from lightning_gpuaug.ops.record import Flag, Opcode, Word
from lightning_gpuaug.ops.reference import new_images
from lightning_gpuaug.ops.reference_geometry import blurred, sharpened, warped
from lightning_gpuaug.ops.reference_math import fma, normal_from_words, philox

_GRAY, _PIL_GRAY = (2989, 5870, 1140), (19595, 38470, 7471)
WARPS = range(Opcode.TRANSLATE, Opcode.PERSPECTIVE + 1)


class _Op:
    """An op as it lies in a record."""

    def __init__(self, head: int, words: list[int], numbers: list[float]) -> None:
        self.opcode = Opcode(head & 0xFF)
        self.interpolation = rec.INTERPOLATIONS[min(head >> 8 & 0xF, 2)]
        self.border = rec.BORDERS[min(head >> 12 & 0xF, 4)]
        self.flags = head >> 16
        self.words = words
        self.numbers = numbers


def read_ops(words: list[int], numbers: list[float]) -> list[_Op]:
    """The ops of a record, given as integers and as floats."""
    ops, at = [], Word.PROGRAM + 0
    while at < rec.WORDS:
        head = words[at]
        at += 1
        opcode = head & 0xFF
        if head == 0:
            continue
        if opcode >= len(rec.PARAMETERS) or at + rec.PARAMETERS[opcode] > rec.WORDS:
            break
        end = at + rec.PARAMETERS[opcode]
        ops.append(_Op(head, words[at:end], numbers[at:end]))
        at = end
    return ops


def _float(value: float) -> float:
    """Rounded to float32."""
    return float(torch.tensor(value, dtype=torch.float64).to(torch.float32))


def _truncate(value: torch.Tensor) -> torch.Tensor:
    return value.clamp(0, 255).to(torch.int32)


def _gray(image: torch.Tensor, pil: bool) -> torch.Tensor:
    r, g, b = (image[..., c] * w for c, w in enumerate(_PIL_GRAY if pil else _GRAY))
    return (r + g + b + 0x8000) >> 16 if pil else (r + g + b) // 10000


def _blend(image: torch.Tensor, other: torch.Tensor, op: _Op, pil: bool) -> torch.Tensor:
    ratio, rest = op.numbers
    value, other = image.float(), other.float()
    if pil:
        return _truncate(other + ratio * (value - other))
    return _truncate(fma(torch.full_like(value, rest), other.expand_as(value), value * ratio))


def _equalize(image: torch.Tensor) -> torch.Tensor:
    channels = []
    for c in range(3):
        channel = image[..., c]
        histogram = torch.bincount(channel.flatten(), minlength=256)
        last = int(histogram.nonzero()[-1])
        step = (channel.numel() - int(histogram[last])) // 255
        if step:
            below = histogram.cumsum(0) - histogram
            table = ((below + step // 2) // step).clamp(max=255)
            table[0] = 0
            channel = table.to(torch.int32)[channel]
        channels.append(channel)
    return torch.stack(channels, -1)


def _autocontrast(image: torch.Tensor) -> torch.Tensor:
    low, high = image.amin((0, 1)), image.amax((0, 1))
    scale = (high - low).float() * (1.0 / 255.0)
    stretched = _truncate((image - low).float() / scale)
    return torch.where(high > low, stretched, image)


def _gamma(image: torch.Tensor, gamma: float, gain: float) -> torch.Tensor:
    unit = (torch.arange(256).float() / 255.0).double()
    table = (torch.pow(unit, gamma) * gain).clamp(0, 1) * 255.999
    return table.to(torch.int32).to(image.device)[image]


def _hue(image: torch.Tensor, turn: float) -> torch.Tensor:
    r, g, b = (image.float() / 255.0).unbind(-1)
    high, low = torch.maximum(r, torch.maximum(g, b)), torch.minimum(r, torch.minimum(g, b))
    gray = high == low
    one = torch.ones_like(high)
    span = torch.where(gray, one, high - low)
    saturation = torch.where(gray, torch.zeros_like(high), (high - low) / torch.where(gray, one, high))
    inverse = 1.0 / span
    rc, gc, bc = ((high - v) * inverse for v in (r, g, b))
    hue = torch.where(high == r, bc - gc, torch.where(high == g, rc + 2.0 - bc, gc + 4.0 - rc))
    hue = hue * (1.0 / 6.0) + 1.0
    hue = hue - hue.floor() + turn
    hue = (hue - hue.floor()) * 6.0
    sector = hue.floor()
    part, rest = saturation * (hue - sector), 1.0 - saturation
    sector = sector.to(torch.int64).clamp(0, 6) % 6
    q, t, p = (((1.0 - part) * high).clamp(0, 1), ((part + rest) * high).clamp(0, 1), (rest * high).clamp(0, 1))
    choices = torch.stack([high, q, t, p])
    order = torch.tensor([[0, 1, 3, 3, 2, 0], [2, 0, 0, 1, 3, 3], [3, 3, 2, 0, 0, 1]], device=image.device)
    return torch.stack([(choices.gather(0, order[c][sector][None])[0] * 255.999).to(torch.int32) for c in range(3)], -1)


def _color_matrix(image: torch.Tensor, m: list[float]) -> torch.Tensor:
    r, g, b = image.float().unbind(-1)
    rows = []
    for i in (0, 4, 8):
        total = torch.full_like(r, m[i + 3])
        for weight, channel in ((m[i + 2], b), (m[i + 1], g), (m[i], r)):
            total = fma(torch.full_like(channel, weight), channel, total)
        rows.append(total.clamp(0, 255).round().to(torch.int32))
    return torch.stack(rows, -1)


def _apply(op: _Op, image: torch.Tensor, fill: tuple[int, int, int]) -> torch.Tensor:
    """One op on an (H, W, 3) int32 image."""
    pil = bool(op.flags & rec.PIL_GRAY)
    match op.opcode:
        case Opcode.NONE:
            return image
        case opcode if opcode in WARPS:
            return warped(image, opcode, op.numbers, op.interpolation, op.border, fill)
        case Opcode.BRIGHTNESS:
            return _truncate(image.float() * op.numbers[0])
        case Opcode.CONTRAST:
            mean = int(_gray(image, pil).sum()) / (image.shape[0] * image.shape[1])
            mean = math.floor(mean + 0.5) if pil else mean
            return _blend(image, torch.full((1,), _float(mean), device=image.device), op, pil)
        case Opcode.SATURATION:
            return _blend(image, _gray(image, pil)[..., None], op, pil)
        case Opcode.HUE:
            return _hue(image, op.numbers[0])
        case Opcode.POSTERIZE:
            return image & ~((1 << (8 - min(max(op.words[0], 0), 8))) - 1)
        case Opcode.SOLARIZE:
            return torch.where(image >= op.numbers[0], 255 - image, image)
        case Opcode.SOLARIZE_ADD:
            return torch.where(image < op.numbers[1], _truncate(image.float() + op.numbers[0]), image)
        case Opcode.INVERT:
            return 255 - image
        case Opcode.GAMMA:
            return _gamma(image, *op.numbers)
        case Opcode.EQUALIZE:
            return _equalize(image)
        case Opcode.AUTOCONTRAST:
            return _autocontrast(image)
        case Opcode.SHARPNESS:
            return sharpened(image, op.numbers[0])
        case Opcode.GRAYSCALE:
            return _gray(image, pil)[..., None].expand_as(image)
        case Opcode.BLUR:
            return blurred(image, op.numbers[0], op.words[1])
        case Opcode.COLOR_MATRIX:
            return _color_matrix(image, op.numbers)
    raise AssertionError(op.opcode)


def _pixels(image: torch.Tensor, words: list[int], numbers: list[float], chains_allowed: int) -> torch.Tensor:
    """Flip and program of one sample: (H, W, 3) uint8 to int32."""
    valid = words[Word.VERSION] == rec.VERSION
    flags = words[Word.FLAGS] if valid else 0
    image = image.to(torch.int32)
    if flags & Flag.FLIP_HORIZONTAL:
        image = image.flip(1)
    if flags & Flag.FLIP_VERTICAL:
        image = image.flip(0)
    if chains_allowed == 0:
        return image
    fill = (words[Word.FILL] & 255, words[Word.FILL] >> 8 & 255, words[Word.FILL] >> 16 & 255)
    ops = read_ops(words, numbers) if valid else []
    count = min(max(words[Word.CHAINS], 0), chains_allowed)
    if count == 0:
        for op in ops:
            image = _apply(op, image, fill)
        return image
    if not any(words[Word.PROGRAM :]):
        return image
    results = [image] * rec.MAX_CHAINS
    chain = 0
    for op in ops:
        if chain < rec.MAX_CHAINS:
            results[chain] = _apply(op, results[chain], fill)
        chain += op.flags & rec.CHAIN_END
    total = image.float() * numbers[Word.ORIGINAL_WEIGHT]
    for i in range(count):
        weight = torch.full_like(total, numbers[Word.CHAIN_WEIGHT + i])
        total = fma(weight, results[i].float(), total)
    return _truncate(total)


def _rectangle(words: list[int], at: int, height: int, width: int) -> tuple[slice, slice]:
    top, left = min(max(words[at], 0), height), min(max(words[at + 1], 0), width)
    bottom, right = top + min(max(words[at + 2], 0), height - top), left + min(max(words[at + 3], 0), width - left)
    return slice(top, bottom), slice(left, right)


def _erase(values: torch.Tensor, words: list[int], numbers: list[float], unit: torch.Tensor) -> torch.Tensor:
    """Erase in an (H, W, 3) float32 image; `unit` holds scale and bias of erased values."""
    height, width, _ = values.shape
    flags = words[Word.FLAGS] if words[Word.VERSION] == rec.VERSION else 0
    if not flags & (Flag.ERASE_CONSTANT | Flag.ERASE_NOISE):
        return values
    rows, columns = _rectangle(words, Word.ERASE, height, width)
    if flags & Flag.ERASE_NOISE:
        pixel = (torch.arange(height)[rows, None] * width + torch.arange(width)[columns]).to(values.device)
        key = (words[Word.SEED] & 0xFFFFFFFF, words[Word.EPOCH] & 0xFFFFFFFF)
        index = [words[Word.INDEX] & 0xFFFFFFFF, words[Word.INDEX + 1] & 0xFFFFFFFF, rec.NOISE_SLOT]
        counter = [torch.full_like(pixel, word) for word in index]
        erased = normal_from_words(torch.stack(philox(key, [*counter, pixel])[:3], -1))
    else:
        erased = torch.tensor(numbers[Word.ERASE_VALUE : Word.ERASE_VALUE + 3], device=values.device)
    values = values.clone()
    values[rows, columns] = fma(erased, unit[0].expand_as(erased), unit[1].expand_as(erased))
    return values


def augment(
    x: torch.Tensor,
    params: torch.Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
    channels_last: bool = True,
    chains: int = 1,
) -> torch.Tensor:
    """Run the programs of a batch; see `lightning_gpuaug.ops.augment`."""
    check_augment(x, params, mean, std, dtype, chains)
    out = new_images(x, dtype, channels_last)
    if out.numel() == 0:
        return out
    n, height, width, _ = x.shape
    if dtype == torch.uint8:
        affine = torch.tensor([[1.0] * 3, [0.0] * 3])
        unit = torch.tensor([[255.0 * s for s in std], [255.0 * m for m in mean]], dtype=torch.float64).float()
    else:
        affine = torch.tensor([[1 / (255 * s) for s in std], [-m / s for m, s in zip(mean, std, strict=True)]],
                              dtype=torch.float64).float()  # fmt: skip
        unit = torch.tensor([[1.0] * 3, [0.0] * 3])
    affine, unit = affine.to(x.device), unit.to(x.device)
    words = params.tolist()
    numbers = params.contiguous().view(torch.float32).tolist()
    values = []
    for i in range(n):
        pixels = _pixels(x[i], words[i], numbers[i], chains).float()
        normal = fma(pixels, affine[0].expand_as(pixels), affine[1].expand_as(pixels))
        values.append(_erase(normal, words[i], numbers[i], unit))
    for i in range(n):
        mixed = values[i]
        flags = words[i][Word.FLAGS] if words[i][Word.VERSION] == rec.VERSION else 0
        partner = words[i][Word.PARTNER]
        if 0 <= partner < n and flags & Flag.MIXUP:
            own = torch.full_like(mixed, numbers[i][Word.LAMBDA])
            mixed = fma(own, mixed, (1.0 - own) * values[partner])
        elif 0 <= partner < n and flags & Flag.CUTMIX:
            rows, columns = _rectangle(words[i], Word.CUT, height, width)
            mixed = mixed.clone()
            mixed[rows, columns] = values[partner][rows, columns]
        if dtype == torch.uint8:
            mixed = mixed.clamp(0, 255).round()
        out[i] = mixed.permute(2, 0, 1).to(dtype)
    return out
