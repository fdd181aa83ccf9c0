"""The records of a batch: everything random about its augmentation, drawn on the host.

Like `draw` (crop and horizontal flip, in the same slots), a record depends on (seed, epoch, sample index) and the
recipe alone, except for what mixing takes from the batch: the partner's row, and the draws that samples share
(`Mix(mode="batch")` and `"pair"`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.arguments import whole
from lightning_gpuaug.augment.auto import auto_program
from lightning_gpuaug.augment.distributions import DrawAt, Floats, Ints, beta, each, normal
from lightning_gpuaug.augment.draw import check_key, draw, uniforms
from lightning_gpuaug.augment.policies import OP_WORDS
from lightning_gpuaug.augment.slots import Slot
from lightning_gpuaug.ops.record import (
    CROP_FILTER_SHIFT,
    INTERPOLATIONS,
    LONGEST_SIDE,
    PROGRAM_WORDS,
    VERSION,
    WORDS,
    Flag,
    Opcode,
    Word,
    float_word,
    head_word,
)
from lightning_gpuaug.recipe import ColorJitter, GaussianBlur, Mix, RandomErasing, Solarize, TrainRecipe

ERASE_ATTEMPTS = 10
"""Tries of a rectangle that fits, as torchvision and timm have it; then nothing is erased."""

_JITTER_OPS = (Opcode.BRIGHTNESS, Opcode.CONTRAST, Opcode.SATURATION, Opcode.HUE)
_PERMUTATIONS = np.array([[a, b, c, d] for a in range(4) for b in range(4) for c in range(4) for d in range(4)
                          if len({a, b, c, d}) == 4])  # fmt: skip


@dataclass(frozen=True)
class Params:
    """What was drawn for a batch of N samples.

    Attributes:
        records: (N, 64) int32, the argument `params` of `ops.augment`.
        chains: its argument `chains`: uint8 images that a sample of this recipe needs.
        share: (N,) float32, the sample's own share in its mixed label, 1 where it is not mixed; None without `mix`. The
            rest belongs to the label of sample N - 1 - i.
    """

    records: NDArray[np.int32]
    chains: int
    share: NDArray[np.float32] | None


def sample_params(
    recipe: TrainRecipe,
    indices: NDArray[np.int64],
    epoch: int,
    seed: int,
    height: int,
    width: int,
    sizes: NDArray[np.int32] | None = None,
) -> Params:
    """Draw the records of a batch.

    Args:
        recipe: what may happen.
        indices: (N,) sample indices.
        epoch: number of the epoch, 0..2**32-1.
        seed: 0..2**32-1.
        height: of the result, 1..32767.
        width: of the result, 1..32767.
        sizes: (N, 2) height and width of the decoded images, for `ops.augment_packed` and `ops.augment_list`: the
            records then hold the crop windows, the same that `draw` gives. None where the
            images are cropped and resized already, for `ops.augment`.

    Raises:
        ValueError: an argument has a wrong type, shape or value; or a program of the recipe does not fit a record.
    """
    check_key("sample_params", recipe, indices, epoch, seed, sizes)
    height = whole("sample_params: height", height, 1, LONGEST_SIDE)
    width = whole("sample_params: width", width, 1, LONGEST_SIDE)
    n = len(indices)
    wanted = _slots(recipe)
    drawn = uniforms(indices, epoch, seed, np.array(wanted)) if wanted else np.zeros((n, 0, 4))
    u = {slot: drawn[:, i] for i, slot in enumerate(wanted)}

    def draw_at(rows: Ints, slots: Ints) -> Floats:
        return uniforms(indices[rows], epoch, seed, slots)

    records = np.zeros((n, WORDS), dtype=np.int32)
    numbers = records.view(np.float32)
    wide = indices.astype(np.int64).view(np.uint64)
    records[:, Word.VERSION] = VERSION
    records[:, Word.SEED] = np.uint32(seed & 0xFFFFFFFF).astype(np.int32)
    records[:, Word.EPOCH] = np.uint32(epoch & 0xFFFFFFFF).astype(np.int32)
    records[:, Word.INDEX] = (wide & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    records[:, Word.INDEX + 1] = (wide >> np.uint64(32)).astype(np.uint32).view(np.int32)
    flags = records[:, Word.FLAGS]
    if recipe.hflip > 0:
        flags |= np.where(u[Slot.FLIP][:, 0] < recipe.hflip, Flag.FLIP_HORIZONTAL, 0).astype(np.int32)
    if recipe.vflip > 0:
        flags |= np.where(u[Slot.FLIP][:, 1] < recipe.vflip, Flag.FLIP_VERTICAL, 0).astype(np.int32)

    if sizes is not None:
        _crop(recipe, records, indices, epoch, seed, sizes)

    chains = 0
    parts: list[NDArray[np.int32]] = []
    if recipe.auto is not None:
        mean = recipe.normalize.mean if recipe.normalize is not None else (0.5, 0.5, 0.5)
        auto = auto_program(recipe.auto, n, height, width, mean, draw_at)
        parts.append(auto.words)
        records[:, Word.FILL] = auto.fill[0] | auto.fill[1] << 8 | auto.fill[2] << 16
        if auto.weights is not None:
            chains = auto.weights.shape[1] - 1
            records[:, Word.CHAINS] = chains
            numbers[:, Word.ORIGINAL_WEIGHT : Word.CHAIN_WEIGHT + chains] = auto.weights
    if recipe.color_jitter is not None:
        parts.append(_jitter(recipe.color_jitter, u[Slot.JITTER], u[Slot.JITTER_ORDER]))
    if recipe.grayscale > 0:
        parts.append(_grayscale(u[Slot.SINGLE][:, 0] < recipe.grayscale))
    if recipe.blur is not None:
        parts.append(_blur(recipe.blur, u[Slot.SINGLE]))
    if recipe.solarize is not None:
        parts.append(_solarize(recipe.solarize, u[Slot.SINGLE][:, 3]))
    if parts:
        stacked = np.concatenate(parts, axis=1)
        program = stacked.reshape(n, stacked.shape[1] * OP_WORDS)
        if program.shape[1] > PROGRAM_WORDS:
            most, got = PROGRAM_WORDS // OP_WORDS, program.shape[1] // OP_WORDS
            raise ValueError(f"TrainRecipe: a program has room for {most} ops, got {got}")
        records[:, Word.PROGRAM : Word.PROGRAM + program.shape[1]] = program
    if recipe.erasing is not None and n:
        _erase(recipe.erasing, records, numbers, height, width, u[Slot.ERASE], draw_at)
    share = _mix(recipe.mix, records, numbers, height, width, draw_at) if recipe.mix is not None else None
    return Params(records, max(chains, int(bool(parts))), share)


def _crop(recipe: TrainRecipe, records: NDArray[np.int32], indices: NDArray[np.int64], epoch: int, seed: int,
          sizes: NDArray[np.int32]) -> None:  # fmt: skip
    """Write crop window and filter."""
    resample = recipe.resample
    bits = INTERPOLATIONS.index(resample.interpolation) << CROP_FILTER_SHIFT | (
        Flag.ANTIALIAS if resample.antialias else 0
    )
    records[:, Word.FLAGS] |= np.int32(bits)
    if recipe.crop is not None:
        drawn = draw(recipe, indices, epoch, seed, sizes)
        records[:, Word.CROP : Word.CROP + 2], records[:, Word.CROP + 2 : Word.CROP + 4] = drawn.start, drawn.size


def _slots(recipe: TrainRecipe) -> list[int]:
    """Slots that every sample of the recipe needs; the others are drawn where they are used."""
    wanted: list[int] = []
    if recipe.hflip > 0 or recipe.vflip > 0:
        wanted.append(Slot.FLIP)
    if recipe.color_jitter is not None:
        wanted += [Slot.JITTER, Slot.JITTER_ORDER]
    if recipe.grayscale > 0 or recipe.blur is not None or recipe.solarize is not None:
        wanted.append(Slot.SINGLE)
    if recipe.erasing is not None:
        wanted.append(Slot.ERASE)
    return wanted


def _bits(values: Floats) -> NDArray[np.int32]:
    return values.astype(np.float32).view(np.int32)


def _jitter(jitter: ColorJitter, u: Floats, order: Floats) -> NDArray[np.int32]:
    """(N, 4, 3) words: the four ops in a random order."""
    n = len(u)
    words = np.zeros((n, 4, OP_WORDS), dtype=np.int32)
    for k, (op, (low, high)) in enumerate(zip(_JITTER_OPS, jitter.ranges(), strict=True)):
        neutral = 0.0 if op == Opcode.HUE else 1.0
        if low == high == neutral:
            continue
        factor = low + (high - low) * u[:, k]
        words[:, k, 0] = head_word(op)
        words[:, k, 1] = _bits(factor)
        if op in (Opcode.CONTRAST, Opcode.SATURATION):
            words[:, k, 2] = _bits(1.0 - factor)
    permutation = _PERMUTATIONS[(order[:, 0] * len(_PERMUTATIONS)).astype(np.int64)]
    words = np.take_along_axis(words, permutation[:, :, None], axis=1)
    words[order[:, 1] >= jitter.probability] = 0
    return words


def _grayscale(chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
    words = np.zeros((len(chosen), 1, OP_WORDS), dtype=np.int32)
    words[:, 0, 0] = np.where(chosen, head_word(Opcode.GRAYSCALE), 0)
    return words


def _blur(blur: GaussianBlur, u: Floats) -> NDArray[np.int32]:
    words = np.zeros((len(u), 1, OP_WORDS), dtype=np.int32)
    chosen = u[:, 1] < blur.probability
    low, high = blur.sigma
    words[:, 0, 0] = head_word(Opcode.BLUR)
    words[:, 0, 1] = _bits(low + (high - low) * u[:, 2])
    words[:, 0, 2] = blur.kernel_size
    words[~chosen] = 0
    return words


def _solarize(solarize: Solarize, u: NDArray[np.float64]) -> NDArray[np.int32]:
    words = np.zeros((len(u), 1, OP_WORDS), dtype=np.int32)
    words[:, 0, :2] = head_word(Opcode.SOLARIZE), float_word(solarize.threshold)
    words[u >= solarize.probability] = 0
    return words


def _erase(erasing: RandomErasing, records: NDArray[np.int32], numbers: NDArray[np.float32], height: int, width: int,
           u: Floats, draw_at: DrawAt) -> None:  # fmt: skip
    waiting = np.nonzero(u[:, 0] < erasing.probability)[0]
    mode = Flag.ERASE_NOISE if erasing.mode == "pixel" else Flag.ERASE_CONSTANT
    numbers[:, Word.ERASE_VALUE : Word.ERASE_VALUE + 3] = np.array(erasing.value, dtype=np.float32)
    if erasing.mode == "rand":
        a, b = draw_at(np.arange(len(u)), np.array([Slot.ERASE_COLOR, Slot.ERASE_COLOR + 1])).transpose(1, 0, 2)
        numbers[:, Word.ERASE_VALUE : Word.ERASE_VALUE + 3] = normal(a[:, :3], b[:, :3])
    narrow, wide = (math.log(r) for r in erasing.ratio)
    low, high = erasing.scale
    for attempt in range(ERASE_ATTEMPTS):
        if not len(waiting):
            return
        tries = draw_at(waiting, np.array([Slot.ERASE_ATTEMPT + attempt]))[:, 0]
        area = height * width * (low + (high - low) * tries[:, 0])
        ratio = each(math.exp, narrow + (wide - narrow) * tries[:, 1])
        h, w = np.rint(np.sqrt(area * ratio)).astype(np.int64), np.rint(np.sqrt(area / ratio)).astype(np.int64)
        fits = (h < height) & (w < width)
        rows = waiting[fits]
        top = (tries[fits, 2] * (height - h[fits] + 1)).astype(np.int64)
        left = (tries[fits, 3] * (width - w[fits] + 1)).astype(np.int64)
        records[rows, Word.ERASE : Word.ERASE + 4] = np.stack([top, left, h[fits], w[fits]], axis=1)
        records[rows, Word.FLAGS] |= np.int32(mode)
        waiting = waiting[~fits]


def _mix(mix: Mix, records: NDArray[np.int32], numbers: NDArray[np.float32], height: int, width: int,
         draw_at: DrawAt) -> NDArray[np.float32]:  # fmt: skip
    """Write the mix into the records; returns each sample's own share."""
    n = len(records)
    records[:, Word.PARTNER] = n - 1 - np.arange(n)
    numbers[:, Word.LAMBDA] = 1.0
    if n == 0:
        return np.ones(0, dtype=np.float32)
    # The batch's draw is that of its first sample, a pair's that of the sample that comes first.
    rows = {"batch": 1, "pair": (n + 1) // 2, "elem": n}[mix.mode]
    u = draw_at(np.arange(rows), np.array([Slot.MIX]))[:, 0]
    mixed = u[:, 0] < mix.probability
    cut_share = mix.switch_probability if mix.mixup_alpha > 0 else 1.0
    cut = (u[:, 1] < cut_share) & (mix.cutmix_alpha > 0)
    share = np.ones(rows)
    for alpha, slot, kind in (
        (mix.mixup_alpha, Slot.MIXUP_GAMMA, mixed & ~cut), (mix.cutmix_alpha, Slot.CUTMIX_GAMMA, mixed & cut)
    ):  # fmt: skip
        if alpha > 0:
            share[kind] = beta(alpha, np.nonzero(kind)[0], slot, draw_at)
    # timm's box: its share of the area, its centre anywhere, clipped.
    ratio = np.sqrt(1.0 - share)
    h, w = (height * ratio).astype(np.int64), (width * ratio).astype(np.int64)
    y, x = (u[:, 2] * height).astype(np.int64), (u[:, 3] * width).astype(np.int64)
    top, bottom = np.clip(y - h // 2, 0, height), np.clip(y + (h + 1) // 2, 0, height)
    left, right = np.clip(x - w // 2, 0, width), np.clip(x + (w + 1) // 2, 0, width)
    share = np.where(cut, 1.0 - (bottom - top) * (right - left) / (height * width), share)
    own = np.where(mixed, share, 1.0).astype(np.float32)
    box = np.stack([top, left, bottom - top, right - left], axis=1)
    box[~(mixed & cut)] = 0
    flag = np.where(mixed, np.where(cut, Flag.CUTMIX, Flag.MIXUP), 0).astype(np.int32)
    drawn = np.minimum(np.arange(n), n - 1 - np.arange(n)) if mix.mode == "pair" else np.arange(n) % rows
    records[:, Word.CUT : Word.CUT + 4] = box[drawn]
    records[:, Word.FLAGS] |= flag[drawn]
    numbers[:, Word.LAMBDA] = own[drawn]
    return own[drawn]
