"""torchvision's policies as tables of record words: RandAugment, AutoAugment, TrivialAugmentWide, AugMix.

A policy op at a magnitude is three words of a program (a head and two parameters, zeros where there are fewer), so a
batch of programs is one lookup. Magnitudes are torchvision's, including the float32 steps of its `linspace`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.ops.record import Opcode, float_word, head_word
from lightning_gpuaug.recipe import AugMix, AutoAugment, RandAugment, TrivialAugmentWide

OP_WORDS = 3
"""Words of a policy op in a program."""

Words = NDArray[np.int32]

GEOMETRIC = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
_ENHANCE = ("Brightness", "Color", "Contrast", "Sharpness")
_UNSIGNED = ("Identity", "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")

RANDAUGMENT_OPS = ("Identity", *GEOMETRIC, *_ENHANCE, "Posterize", "Solarize", "AutoContrast", "Equalize")
AUTOAUGMENT_OPS = (*GEOMETRIC, *_ENHANCE, "Posterize", "Solarize", "AutoContrast", "Equalize", "Invert")
AUGMIX_OPS = (*GEOMETRIC, "Posterize", "Solarize", "AutoContrast", "Equalize")

# (op, probability, magnitude bin) twice; torchvision's tables, after Cubuk et al. (2019).
Step = tuple[str, float, int]
_IMAGENET: tuple[tuple[Step, Step], ...] = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 0)),
    (("Equalize", 0.8, 0), ("Equalize", 0.6, 0)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, 0), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, 0), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, 0)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, 0)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, 0), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, 0)),
    (("Equalize", 0.0, 0), ("Equalize", 0.8, 0)),
    (("Invert", 0.6, 0), ("Equalize", 1.0, 0)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, 0)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, 0)),
    (("Color", 0.4, 0), ("Equalize", 0.6, 0)),
    (("Equalize", 0.4, 0), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 0)),
    (("Invert", 0.6, 0), ("Equalize", 1.0, 0)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, 0), ("Equalize", 0.6, 0)),
)
_CIFAR10: tuple[tuple[Step, Step], ...] = (
    (("Invert", 0.1, 0), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, 0), ("Equalize", 0.9, 0)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, 0), ("Equalize", 0.5, 0)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, 0), ("AutoContrast", 0.4, 0)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, 0)),
    (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
    (("Equalize", 0.2, 0), ("Equalize", 0.6, 0)),
    (("Color", 0.9, 9), ("Equalize", 0.6, 0)),
    (("AutoContrast", 0.8, 0), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 0)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, 0), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, 0), ("Invert", 0.1, 0)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 0)),
)
_SVHN: tuple[tuple[Step, Step], ...] = (
    (("ShearX", 0.9, 4), ("Invert", 0.2, 0)),
    (("ShearY", 0.9, 8), ("Invert", 0.7, 0)),
    (("Equalize", 0.6, 0), ("Solarize", 0.6, 6)),
    (("Invert", 0.9, 0), ("Equalize", 0.6, 0)),
    (("Equalize", 0.6, 0), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("AutoContrast", 0.8, 0)),
    (("ShearY", 0.9, 8), ("Invert", 0.4, 0)),
    (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
    (("Invert", 0.9, 0), ("AutoContrast", 0.8, 0)),
    (("Equalize", 0.6, 0), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
    (("ShearY", 0.8, 8), ("Invert", 0.7, 0)),
    (("Equalize", 0.9, 0), ("TranslateY", 0.6, 6)),
    (("Invert", 0.9, 0), ("Equalize", 0.6, 0)),
    (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
    (("Invert", 0.8, 0), ("TranslateY", 0.0, 2)),
    (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
    (("Invert", 0.6, 0), ("Rotate", 0.8, 4)),
    (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
    (("ShearX", 0.1, 6), ("Invert", 0.6, 0)),
    (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
    (("ShearY", 0.8, 4), ("Invert", 0.8, 0)),
    (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
    (("ShearY", 0.8, 5), ("AutoContrast", 0.7, 0)),
    (("ShearX", 0.7, 2), ("Invert", 0.1, 0)),
)
AUTOAUGMENT_TABLES = {"imagenet": _IMAGENET, "cifar10": _CIFAR10, "svhn": _SVHN}


def op_words(name: str, magnitude: float, interpolation: str) -> list[int]:
    """An op of torchvision's policies (its `_apply_op`) as three words."""
    m = magnitude
    choices: dict[str, Callable[[], tuple[Opcode, tuple[float, ...]]]] = {
        "Identity": lambda: (Opcode.NONE, ()),
        "ShearX": lambda: (Opcode.SHEAR_X, (m,)),
        "ShearY": lambda: (Opcode.SHEAR_Y, (m,)),
        "TranslateX": lambda: (Opcode.TRANSLATE, (-float(int(m)), 0.0)),
        "TranslateY": lambda: (Opcode.TRANSLATE, (0.0, -float(int(m)))),
        "Rotate": lambda: (Opcode.ROTATE, (math.cos(math.radians(m)), -math.sin(math.radians(m)))),
        "Brightness": lambda: (Opcode.BRIGHTNESS, (1.0 + m,)),
        "Color": lambda: (Opcode.SATURATION, (1.0 + m, -m)),
        "Contrast": lambda: (Opcode.CONTRAST, (1.0 + m, -m)),
        "Sharpness": lambda: (Opcode.SHARPNESS, (-m,)),
        "Posterize": lambda: (Opcode.POSTERIZE, (int(m),)),
        "Solarize": lambda: (Opcode.SOLARIZE, (m,)),
        "AutoContrast": lambda: (Opcode.AUTOCONTRAST, ()),
        "Equalize": lambda: (Opcode.EQUALIZE, ()),
        "Invert": lambda: (Opcode.INVERT, ()),
    }
    opcode, parameters = choices[name]()
    head = head_word(opcode, interpolation if name in GEOMETRIC else "nearest")
    words = [head, *(value if isinstance(value, int) else float_word(value) for value in parameters)]
    return words + [0] * (OP_WORDS - len(words))


def linspace(start: float, stop: float, steps: int) -> list[float]:
    """`torch.linspace` in float32: from the nearer end, each value rounded once."""
    first, last = float(np.float32(start)), float(np.float32(stop))
    step = float(np.float32(last - first) / np.float32(steps - 1))
    half = steps // 2
    exact = [first + step * i if i < half else last - step * (steps - 1 - i) for i in range(steps)]
    return [float(np.float32(value)) for value in exact]


def _posterize_bits(most: int, span: int) -> Callable[[int], list[float]]:
    return lambda bins: [float(most - round(float(np.float32(i) / np.float32((bins - 1) / span)))) for i in range(bins)]


def _magnitudes(name: str, bins: int, *, shear: float, translate: float, rotate: float, enhance: float,
                bits: Callable[[int], list[float]]) -> list[float]:  # fmt: skip
    if name.startswith("Shear"):
        return linspace(0.0, shear, bins)
    if name.startswith("Translate"):
        return linspace(0.0, translate, bins)
    if name == "Rotate":
        return linspace(0.0, rotate, bins)
    if name in _ENHANCE:
        return linspace(0.0, enhance, bins)
    if name == "Posterize":
        return bits(bins)
    if name == "Solarize":
        return linspace(255.0, 0.0, bins)
    return [0.0] * bins


Torchvision = RandAugment | AutoAugment | TrivialAugmentWide | AugMix


def ops_of(policy: Torchvision) -> tuple[str, ...]:
    """Names of the ops that a policy draws from, in torchvision's order."""
    match policy:
        case AutoAugment():
            return AUTOAUGMENT_OPS
        case AugMix():
            return AUGMIX_OPS + (_ENHANCE if policy.all_ops else ())
        case _:
            return RANDAUGMENT_OPS


@lru_cache(maxsize=32)
def policy_words(policy: Torchvision, height: int, width: int) -> Words:
    """Every op of a policy at every magnitude: (ops, bins, 2, 3) int32; the third axis is the sign, plus first."""
    wide = isinstance(policy, TrivialAugmentWide)
    bins = policy.num_magnitude_bins if isinstance(policy, RandAugment) else 10
    if isinstance(policy, TrivialAugmentWide):
        bins = policy.bins
    bits = _posterize_bits(4, 4) if isinstance(policy, AugMix) else _posterize_bits(8, 6 if wide else 4)
    table = []
    for name in ops_of(policy):
        side = width if name == "TranslateX" else height
        translate = 32.0 if wide else side / 3.0 if isinstance(policy, AugMix) else 150.0 / 331.0 * side
        magnitudes = _magnitudes(name, bins, shear=0.99 if wide else 0.3, translate=translate,
                                 rotate=135.0 if wide else 30.0, enhance=0.99 if wide else 0.9, bits=bits)  # fmt: skip
        signs = (1.0, 1.0) if name in _UNSIGNED else (1.0, -1.0)
        table.append([[op_words(name, sign * m, policy.interpolation) for sign in signs] for m in magnitudes])
    words = np.array(table, dtype=np.int64).astype(np.int32)
    words.setflags(write=False)
    return words


@lru_cache(maxsize=8)
def autoaugment_table(policy: str) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """The sub-policies as arrays (25, 2): op, probability, magnitude bin."""
    steps = AUTOAUGMENT_TABLES[policy]
    ops = np.array([[AUTOAUGMENT_OPS.index(step[0]) for step in pair] for pair in steps])
    probabilities = np.array([[step[1] for step in pair] for pair in steps])
    return ops, probabilities, np.array([[step[2] for step in pair] for pair in steps])
