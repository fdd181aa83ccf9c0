"""timm's policies: its strings, its op tables and its magnitudes (timm.data.auto_augment).

timm applies each op through Pillow, so warps take Pillow's border and grey is Pillow's; the interpolation of a warp is
bilinear or bicubic at random, and uncovered pixels take the mean colour. Blur is a true Gaussian, where Pillow's is an
approximation of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.augment.distributions import each
from lightning_gpuaug.augment.policies import OP_WORDS, Words
from lightning_gpuaug.ops.record import PIL_GRAY, Opcode, head_word
from lightning_gpuaug.recipe import read_policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_RAND = ("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast",
         "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")  # fmt: skip
_RAND_INCREASING = ("AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing",
                    "SolarizeAdd", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing",
                    "SharpnessIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")  # fmt: skip
_RAND_3A = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTS = {"Rotate": 3.0, "ShearX": 2.0, "ShearY": 2.0, "TranslateXRel": 1.0, "TranslateYRel": 1.0,
            "ColorIncreasing": 0.25, "SharpnessIncreasing": 0.25, "AutoContrast": 0.25, "SolarizeIncreasing": 0.05,
            "SolarizeAdd": 0.05, "ContrastIncreasing": 0.05, "BrightnessIncreasing": 0.05, "Equalize": 0.05,
            "PosterizeIncreasing": 0.05, "Invert": 0.05}  # fmt: skip
_WEIGHTS_3A = {"SolarizeIncreasing": 6.0, "Desaturate": 6.0, "GaussianBlur": 6.0, "Rotate": 3.0, "ShearX": 2.0,
               "ShearY": 2.0, "PosterizeIncreasing": 1.0, "AutoContrast": 1.0, "ColorIncreasing": 1.0,
               "SharpnessIncreasing": 1.0, "ContrastIncreasing": 1.0, "BrightnessIncreasing": 1.0, "Equalize": 1.0,
               "Invert": 1.0}  # fmt: skip
_AUGMIX = ("AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing",
           "Equalize", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "ShearX", "ShearY", "TranslateXRel",
           "TranslateYRel")  # fmt: skip

Step = tuple[str, float, int]
_V0: tuple[tuple[Step, ...], ...] = (
    (("Equalize", 0.8, 1), ("ShearY", 0.8, 4)),
    (("Color", 0.4, 9), ("Equalize", 0.6, 3)),
    (("Color", 0.4, 1), ("Rotate", 0.6, 8)),
    (("Solarize", 0.8, 3), ("Equalize", 0.4, 7)),
    (("Solarize", 0.4, 2), ("Solarize", 0.6, 2)),
    (("Color", 0.2, 0), ("Equalize", 0.8, 8)),
    (("Equalize", 0.4, 8), ("SolarizeAdd", 0.8, 3)),
    (("ShearX", 0.2, 9), ("Rotate", 0.6, 8)),
    (("Color", 0.6, 1), ("Equalize", 1.0, 2)),
    (("Invert", 0.4, 9), ("Rotate", 0.6, 0)),
    (("Equalize", 1.0, 9), ("ShearY", 0.6, 3)),
    (("Color", 0.4, 7), ("Equalize", 0.6, 0)),
    (("Posterize", 0.4, 6), ("AutoContrast", 0.4, 7)),
    (("Solarize", 0.6, 8), ("Color", 0.6, 9)),
    (("Solarize", 0.2, 4), ("Rotate", 0.8, 9)),
    (("Rotate", 1.0, 7), ("TranslateYRel", 0.8, 9)),
    (("ShearX", 0.0, 0), ("Solarize", 0.8, 4)),
    (("ShearY", 0.8, 0), ("Color", 0.6, 4)),
    (("Color", 1.0, 0), ("Rotate", 0.6, 2)),
    (("Equalize", 0.8, 4), ("Equalize", 0.0, 8)),
    (("Equalize", 1.0, 4), ("AutoContrast", 0.6, 2)),
    (("ShearY", 0.4, 7), ("SolarizeAdd", 0.6, 7)),
    (("Posterize", 0.8, 2), ("Solarize", 0.6, 10)),
    (("Solarize", 0.6, 8), ("Equalize", 0.6, 1)),
    (("Color", 0.8, 6), ("Rotate", 0.4, 5)),
)
_ORIGINAL: tuple[tuple[Step, ...], ...] = (
    (("PosterizeOriginal", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    (("PosterizeOriginal", 0.6, 7), ("PosterizeOriginal", 0.6, 6)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
    (("PosterizeOriginal", 0.8, 5), ("Equalize", 1.0, 2)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, 8), ("PosterizeOriginal", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
    (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
    (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
    (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
    (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
)
_3A: tuple[tuple[Step, ...], ...] = (
    (("Solarize", 1.0, 5),),
    (("Desaturate", 1.0, 10),),
    (("GaussianBlurRand", 1.0, 10),),
)


def _renamed(table: tuple[tuple[Step, ...], ...], old: str) -> tuple[tuple[Step, ...], ...]:
    return tuple(tuple(("PosterizeIncreasing" if s[0] == old else s[0], *s[1:]) for s in pair) for pair in table)


AUTO_TABLES = {
    "v0": _V0,
    "v0r": _renamed(_V0, "Posterize"),
    "original": _ORIGINAL,
    "originalr": _renamed(_ORIGINAL, "PosterizeOriginal"),
    "3a": _3A,
}


@dataclass(frozen=True)
class TimmPolicy:
    """A policy string, read.

    Attributes:
        kind: "rand", "auto" or "augmix".
        ops: names to draw from ("rand", "augmix") or of the sub-policies' steps, flattened ("auto").
        weights: of the names, for a draw without replacement; None draws uniformly with replacement.
        magnitude: of every op, on timm's scale of 10 ("rand", "augmix").
        deviation: standard deviation of the magnitude's noise; infinite draws it from 0..magnitude.
        highest: the largest magnitude after noise.
        num_ops: ops a sample ("rand").
        probability: of each op ("rand").
        steps: of "auto": the sub-policies.
        width: chains of "augmix".
        depth: ops a chain of "augmix"; -1 draws 1, 2 or 3.
        alpha: of the weights' Dirichlet distribution, "augmix".
        translate: largest translation, a share of the side. timm's `create_transform` says 0.3 for AugMix.
    """

    kind: str
    ops: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    magnitude: float = 10.0
    deviation: float = 0.0
    highest: float = 10.0
    num_ops: int = 2
    probability: float = 0.5
    steps: tuple[tuple[Step, ...], ...] = ()
    width: int = 3
    depth: int = -1
    alpha: float = 1.0
    translate: float = 0.45


@lru_cache(maxsize=64)
def parse(text: str) -> TimmPolicy:
    """Read a timm policy string.

    Raises:
        ValueError: it is not one; see `recipe.read_policy`.
    """
    policy = read_policy(text)
    infinity = float("inf")
    deviation = policy.number("mstd", infinity if policy.name == "augmix" else 0.0)
    if policy.name == "rand":
        table = policy.word("t")
        weighted = {"weights": _WEIGHTS, "3aw": _WEIGHTS_3A}.get(table or "")
        increasing = policy.number("inc", 0) == 1
        ops = tuple(weighted) if weighted else _RAND_3A if table == "3a" else _RAND_INCREASING if increasing else _RAND
        return TimmPolicy("rand", ops, tuple(weighted.values()) if weighted else None, policy.number("m", 10),
                          infinity if deviation > 100 else deviation, policy.number("mmax", 10),
                          int(policy.number("n", 2)), policy.number("p", 0.5))  # fmt: skip
    if policy.name == "augmix":
        return TimmPolicy("augmix", _AUGMIX, None, policy.number("m", 3), deviation, width=int(policy.number("w", 3)),
                          depth=int(policy.number("d", -1)), alpha=policy.number("a", 1.0), translate=0.3)  # fmt: skip
    steps = AUTO_TABLES[policy.name]
    ops = tuple(dict.fromkeys(step[0] for pair in steps for step in pair))
    return TimmPolicy("auto", ops, deviation=deviation, steps=steps)


def words_of(ops: tuple[str, ...], chosen: Ints, magnitude: Floats, negate: NDArray[np.bool_],
             bicubic: NDArray[np.bool_], extra: Floats, height: int, width: int,
             translate: float = 0.45) -> Words:  # fmt: skip
    """The ops of a batch as record words.

    Args:
        ops: names.
        chosen: (N, K), positions in `ops`; -1 is no op.
        magnitude: (N, K), 0..10 (or up to `mmax`).
        negate: (N, K), mirrors a signed op.
        bicubic: (N, K), the interpolation of a warp, else bilinear.
        extra: (N, K) uniform numbers, for ops that draw themselves.
        height: of the image.
        width: of the image.
        translate: largest translation, a share of the side.

    Returns:
        (N, K, 3) int32.
    """
    flat = chosen.reshape(-1)
    order = np.argsort(flat, kind="stable")  # each op's places side by side: arrays are gathered once, not once an op
    ends = np.searchsorted(flat[order], np.arange(-1, len(ops)), side="right").tolist()
    m, more = magnitude.reshape(-1)[order], extra.reshape(-1)[order]
    mirrored, cubic = negate.reshape(-1)[order], bicubic.reshape(-1)[order]
    found = np.zeros((len(flat), OP_WORDS), dtype=np.int32)
    for name, begin, end in zip(ops, ends[:-1], ends[1:], strict=True):
        if begin < end:
            at = slice(begin, end)
            heads, numbers = _op(name, m[at], mirrored[at], cubic[at], more[at], height, width, translate)
            found[at, 0] = heads
            for k, values in enumerate(numbers):
                found[at, k + 1] = values if values.dtype == np.int32 else values.astype(np.float32).view(np.int32)
    words = np.empty_like(found)
    words[order] = found
    return words.reshape(*chosen.shape, OP_WORDS)


_WARP_HEADS = {op: (head_word(op, "bilinear", "pil"), head_word(op, "bicubic", "pil"))
               for op in (Opcode.SHEAR_X, Opcode.SHEAR_Y, Opcode.TRANSLATE, Opcode.ROTATE)}  # fmt: skip


def _op(name: str, m: Floats, negate: NDArray[np.bool_], bicubic: NDArray[np.bool_], extra: Floats, height: int,
        width: int, translate: float) -> tuple[NDArray[np.int32] | int, list[NDArray[np.generic]]]:  # fmt: skip
    level = m / 10.0
    signed = np.where(negate, -level, level)

    def warp(op: Opcode, *parameters: Floats) -> tuple[NDArray[np.int32], list[NDArray[np.generic]]]:
        bilinear, cubic = _WARP_HEADS[op]
        return np.where(bicubic, cubic, bilinear).astype(np.int32), list(parameters)

    def enhance(op: Opcode, factor: Floats) -> tuple[int, list[NDArray[np.generic]]]:
        if op == Opcode.BRIGHTNESS:
            return head_word(op), [factor]
        if op == Opcode.SHARPNESS:
            return head_word(op), [1.0 - factor]
        return head_word(op, flags=PIL_GRAY), [factor, 1.0 - factor]

    zero = np.zeros_like(level)
    base = name.removesuffix("Increasing").removesuffix("Original")
    increasing = name.endswith("Increasing")
    match base:
        case "ShearX":
            return warp(Opcode.SHEAR_X, 0.3 * signed)
        case "ShearY":
            return warp(Opcode.SHEAR_Y, 0.3 * signed)
        case "TranslateXRel":
            return warp(Opcode.TRANSLATE, translate * signed * width, zero)
        case "TranslateYRel":
            return warp(Opcode.TRANSLATE, zero, translate * signed * height)
        case "Rotate":
            angle = np.radians(30.0 * signed)
            return warp(Opcode.ROTATE, each(math.cos, angle), -each(math.sin, angle))
        case "Color" | "Contrast" | "Brightness" | "Sharpness":
            op = Opcode.SATURATION if base == "Color" else Opcode[base.upper()]
            factor = np.maximum(0.1, 1.0 + 0.9 * signed) if increasing else 1.8 * level + 0.1
            return enhance(op, factor)
        case "Desaturate":
            return enhance(Opcode.SATURATION, 1.0 - np.clip(0.5 + 0.5 * level, 0.5, 1.0))
        case "Posterize":
            dropped = (level * 4).astype(np.int32)
            bits = 4 - dropped if increasing else dropped + 4 if name.endswith("Original") else dropped
            return head_word(Opcode.POSTERIZE), [np.clip(bits, 0, 8).astype(np.int32)]
        case "Solarize":
            threshold = np.minimum(256, (level * 256).astype(np.int64))
            return head_word(Opcode.SOLARIZE), [(256 - threshold if increasing else threshold).astype(np.float64)]
        case "SolarizeAdd":
            added = np.minimum(128, (level * 110).astype(np.int64))
            return head_word(Opcode.SOLARIZE_ADD), [added.astype(np.float64), zero + 128.0]
        case "GaussianBlur" | "GaussianBlurRand":
            sigma = np.clip(0.1 + 1.9 * level, 0.1, 2.0)
            if base == "GaussianBlurRand":
                sigma = 0.1 + (2.0 * np.clip(level, 0.0, 1.0) - 0.1) * extra
            return head_word(Opcode.BLUR), [sigma, (2 * np.ceil(3.0 * sigma) + 1).astype(np.int32)]
        case "AutoContrast":
            return head_word(Opcode.AUTOCONTRAST), []
        case "Equalize":
            return head_word(Opcode.EQUALIZE), []
        case "Invert":
            return head_word(Opcode.INVERT), []
    raise AssertionError(name)
