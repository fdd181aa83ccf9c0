"""The record of a sample: what `augment` is to do to it, in 64 words of 32 bits. Mirrors csrc/record.h.

A batch's records are an int32 tensor (N, 64); floats are stored by their bits. The stages run in this order: crop and
resize, flip, program (or AugMix chains), normalise, erase, mix.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple

WORDS = 64
VERSION = 0x47410001  # "GA", version 1
PROGRAM_WORDS = 32
MAX_CHAINS = 4
NOISE_SLOT = 0x10000
LONGEST_SIDE = 32767
MAX_BLUR_KERNEL = 63


class Word(enum.IntEnum):
    """Where a field starts."""

    VERSION = 0
    FLAGS = 1
    CHAINS = 2  # AugMix chains, 0 without AugMix
    SEED = 3
    EPOCH = 4
    INDEX = 5  # of the sample, low and high word
    PARTNER = 7  # row of the mix partner in the batch
    CROP = 8  # top, left, height, width in the source; height 0 is the whole image
    ERASE = 12  # top, left, height, width in the result
    ERASE_VALUE = 16  # a float a channel, in the normalised image's units
    LAMBDA = 19  # mix: share of the sample itself, float
    CUT = 20  # CutMix: top, left, height, width in the result
    FILL = 24  # of uncovered pixels: red | green << 8 | blue << 16
    ORIGINAL_WEIGHT = 25  # AugMix: of the unchanged image, float
    CHAIN_WEIGHT = 26  # AugMix: of each chain, floats
    PROGRAM = 32


class Flag(enum.IntFlag):
    """Bits of the flags word."""

    FLIP_HORIZONTAL = 1 << 0
    FLIP_VERTICAL = 1 << 1
    ERASE_CONSTANT = 1 << 4
    ERASE_NOISE = 1 << 5
    MIXUP = 1 << 6
    CUTMIX = 1 << 7
    ANTIALIAS = 1 << 8


CROP_FILTER_SHIFT = 12


class Opcode(enum.IntEnum):
    """The ops of a program and their parameters."""

    NONE = 0
    TRANSLATE = 1  # tx, ty: source = destination + (tx, ty)
    SHEAR_X = 2  # s: source x = x + s y, about the top left corner
    SHEAR_Y = 3  # s: source y = y + s x
    ROTATE = 4  # c, s: source = centre + (c dx + s dy, c dy - s dx)
    AFFINE = 5  # six numbers, row by row: source = M destination
    PERSPECTIVE = 6  # eight numbers; the ninth is 1
    BRIGHTNESS = 7  # factor
    CONTRAST = 8  # factor, 1 - factor
    SATURATION = 9  # factor, 1 - factor
    HUE = 10  # turn, -0.5..0.5
    POSTERIZE = 11  # bits kept, int 0..8
    SOLARIZE = 12  # threshold
    SOLARIZE_ADD = 13  # added value, threshold
    INVERT = 14
    GAMMA = 15  # gamma, gain
    EQUALIZE = 16
    AUTOCONTRAST = 17
    SHARPNESS = 18  # 1 - factor
    GRAYSCALE = 19
    BLUR = 20  # sigma in pixels, kernel size, odd int
    COLOR_MATRIX = 21  # twelve numbers: 3 x 4, row by row, on the 0..255 scale


PARAMETERS = (0, 2, 1, 1, 2, 6, 8, 1, 2, 2, 1, 1, 1, 2, 0, 2, 0, 0, 1, 0, 2, 12)
"""Words of parameters that follow an opcode's head word."""

INTEGER_PARAMETERS = ((Opcode.POSTERIZE, 0), (Opcode.BLUR, 1))
"""(opcode, position) of the parameters that are integers; the others are floats."""

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
BORDERS = ("constant", "replicate", "reflect", "reflect101", "pil")

CHAIN_END = 1
PIL_GRAY = 2
"""Flags of an op: the last of its AugMix chain; grey as Pillow has it."""


class Op(NamedTuple):
    """One op of a program.

    Attributes:
        opcode: what to do.
        parameters: numbers; integers where INTEGER_PARAMETERS says so.
        interpolation: of a warp: "nearest", "bilinear" or "bicubic".
        border: of a warp: "constant", "replicate", "reflect", "reflect101" or "pil".
        flags: CHAIN_END, PIL_GRAY or their sum.
    """

    opcode: Opcode
    parameters: tuple[float, ...] = ()
    interpolation: str = "nearest"
    border: str = "constant"
    flags: int = 0


def head_word(opcode: int, interpolation: str = "nearest", border: str = "constant", flags: int = 0) -> int:
    """The head word of an op."""
    return opcode | INTERPOLATIONS.index(interpolation) << 8 | BORDERS.index(border) << 12 | flags << 16


def float_word(value: float) -> int:
    """The bits of a float32 as an int32."""
    word: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return word


def program_words(program: Sequence[Op]) -> list[int]:
    """A program as the last words of its record.

    Raises:
        ValueError: an op has a wrong number of parameters, or the program does not fit the record.
    """
    words: list[int] = []
    for op in program:
        if len(op.parameters) != PARAMETERS[op.opcode]:
            raise ValueError(f"{op.opcode.name} takes {PARAMETERS[op.opcode]} parameters, got {len(op.parameters)}")
        words.append(head_word(op.opcode, op.interpolation, op.border, op.flags))
        for i, value in enumerate(op.parameters):
            words.append(int(value) if (op.opcode, i) in INTEGER_PARAMETERS else float_word(value))
    if len(words) > PROGRAM_WORDS:
        raise ValueError(f"a program has room for {PROGRAM_WORDS} words, got {len(words)}")
    return words + [0] * (PROGRAM_WORDS - len(words))
