"""timm's policies: its strings, its op tables and its magnitudes (timm.data.auto_augment).

timm applies each op through Pillow, so warps take Pillow's border and grey is Pillow's; the interpolation of a warp is
bilinear or bicubic at random, and uncovered pixels take the mean colour. Blur is a true Gaussian, where Pillow's is an
approximation of one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.augment.policies import OP_WORDS, Words
from lightning_gpuaug.ops.record import PIL_GRAY, Opcode, head_word

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


@lru_cache(maxsize=64)
def parse(text: str) -> TimmPolicy:
    """Read a timm policy string.

    Raises:
        ValueError: a section is unknown or its number is out of range.
    """
    name, *sections = text.split("-")
    options: dict[str, str] = {}
    for section in sections:
        match = re.fullmatch(r"([a-z]+?)(\d.*|inf)?" if not section.startswith("t") else r"(t)(.*)", section)
        allowed = {"rand": "m n p mstd mmax inc t", "augmix": "m w d a b mstd"}.get(name, "mstd").split()
        if match is None or match[1] not in allowed or not match[2]:
            raise ValueError(f"TrainRecipe.auto: {name!r} knows the sections {allowed}, got {section!r} in {text!r}")
        options[match[1]] = match[2]

    def number(key: str, default: float, low: float, high: float) -> float:
        try:
            value = float(options.get(key, default))
        except ValueError:
            raise ValueError(f"TrainRecipe.auto: {key!r} must be a number, got {options[key]!r} in {text!r}") from None
        if not low <= value <= high:
            raise ValueError(f"TrainRecipe.auto: {key!r} must be in {low:g}..{high:g}, got {value:g} in {text!r}")
        return value

    infinity = float("inf")
    if name in AUTO_TABLES:
        steps = AUTO_TABLES[name]
        ops = tuple(dict.fromkeys(step[0] for pair in steps for step in pair))
        return TimmPolicy("auto", ops, deviation=number("mstd", 0.0, 0.0, infinity), steps=steps)
    if name == "rand":
        increasing = number("inc", 0, 0, 1) == 1
        table = options.get("t")
        weighted = {"weights": _WEIGHTS, "3aw": _WEIGHTS_3A}.get(table or "")
        if table not in (None, "weights", "3aw", "3a"):
            raise ValueError(f"TrainRecipe.auto: 't' must be weights, 3a or 3aw, got {table!r} in {text!r}")
        ops = tuple(weighted) if weighted else _RAND_3A if table == "3a" else _RAND_INCREASING if increasing else _RAND
        deviation = number("mstd", 0.0, 0.0, infinity)
        num_ops = int(number("n", 2, 1, min(10, len(ops)) if weighted else 10))
        return TimmPolicy("rand", ops, tuple(weighted.values()) if weighted else None, number("m", 10, 0, 30),
                          infinity if deviation > 100 else deviation, number("mmax", 10, 1, 30), num_ops,
                          number("p", 0.5, 0, 1))  # fmt: skip
    if name != "augmix":
        raise ValueError(f"TrainRecipe.auto: must start with rand, augmix or one of {tuple(AUTO_TABLES)}, got {text!r}")
    if number("b", 0, 0, 1):
        raise ValueError(f"TrainRecipe.auto: the blended mode of augmix is not offered, got {text!r}")
    return TimmPolicy("augmix", _AUGMIX, None, number("m", 3, 0, 10), number("mstd", infinity, 0, infinity),
                      width=int(number("w", 3, 1, 3)), depth=int(number("d", -1, 1, 3)) if "d" in options else -1,
                      alpha=number("a", 1.0, 1e-3, 1e3))  # fmt: skip


def words_of(ops: tuple[str, ...], chosen: Ints, magnitude: Floats, negate: NDArray[np.bool_],
             bicubic: NDArray[np.bool_], extra: Floats, height: int, width: int) -> Words:  # fmt: skip
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

    Returns:
        (N, K, 3) int32.
    """
    words = np.zeros((*chosen.shape, OP_WORDS), dtype=np.int32)
    for i, name in enumerate(ops):
        at = np.nonzero(chosen == i)
        if len(at[0]):
            heads, numbers = _op(name, magnitude[at], negate[at], bicubic[at], extra[at], height, width)
            rows, columns = at
            words[rows, columns, 0] = heads
            for k, values in enumerate(numbers):
                bits = values if values.dtype == np.int32 else values.astype(np.float32).view(np.int32)
                words[rows, columns, k + 1] = bits
    return words


_WARP_HEADS = {op: (head_word(op, "bilinear", "pil"), head_word(op, "bicubic", "pil"))
               for op in (Opcode.SHEAR_X, Opcode.SHEAR_Y, Opcode.TRANSLATE, Opcode.ROTATE)}  # fmt: skip


def _op(name: str, m: Floats, negate: NDArray[np.bool_], bicubic: NDArray[np.bool_], extra: Floats, height: int,
        width: int) -> tuple[NDArray[np.int32] | int, list[NDArray[np.generic]]]:  # fmt: skip
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
            return warp(Opcode.TRANSLATE, 0.45 * signed * width, zero)
        case "TranslateYRel":
            return warp(Opcode.TRANSLATE, zero, 0.45 * signed * height)
        case "Rotate":
            angle = np.radians(30.0 * signed)
            return warp(Opcode.ROTATE, np.cos(angle), -np.sin(angle))
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
