"""What a record says, in words: the steps that one sample goes through, for captions and counts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.ops.record import (
    CHAIN_END,
    INTEGER_PARAMETERS,
    PARAMETERS,
    WORDS,
    Flag,
    Op,
    Opcode,
    Word,
)

_OPCODE_MASK = 0xFF
_FLAGS_SHIFT = 16


def program_of(record: NDArray[np.int32]) -> list[Op]:
    """The ops of a record's program, in order; interpolation and border are left at their defaults.

    Args:
        record: (64,) int32.

    Returns:
        The ops. One of `Opcode.NONE` stands where an AugMix chain ends in an identity.

    Raises:
        ValueError: the record has another length, or holds an opcode that there is not.
    """
    if record.shape != (WORDS,):
        raise ValueError(f"record must have shape ({WORDS},), got {record.shape}")
    numbers = record.view(np.float32)
    program: list[Op] = []
    at = int(Word.PROGRAM)
    while at < WORDS:
        head = int(record[at])
        at += 1
        if head == 0:
            continue
        opcode = Opcode(head & _OPCODE_MASK)
        values = tuple(
            float(record[at + i] if (opcode, i) in INTEGER_PARAMETERS else numbers[at + i])
            for i in range(PARAMETERS[opcode])
        )
        program.append(Op(opcode, values, flags=head >> _FLAGS_SHIFT))
        at += len(values)
    return program


def steps_of(record: NDArray[np.int32], height: int, width: int) -> list[str]:
    """Everything a record does to its sample but the crop, in order: `["flip", "rotate -12°", "erase 8 %"]`.

    Args:
        record: (64,) int32.
        height: of the image, pixels.
        width: of the image, pixels.
    """
    flags = Flag(int(record[Word.FLAGS]))
    numbers = record.view(np.float32)
    steps = ["flip"] if Flag.FLIP_HORIZONTAL in flags else []
    steps += ["vertical flip"] if Flag.FLIP_VERTICAL in flags else []
    program = program_of(record)
    if record[Word.CHAINS] > 0:
        steps += _chains(program, numbers, int(record[Word.CHAINS]))
    else:
        steps += [name_with_numbers(op) for op in program]
    if flags & (Flag.ERASE_CONSTANT | Flag.ERASE_NOISE):
        share = float(record[Word.ERASE + 2]) * float(record[Word.ERASE + 3]) / (height * width)
        steps.append(f"erase {share:.0%}" + (" noise" if Flag.ERASE_NOISE in flags else ""))
    for flag, name in ((Flag.MIXUP, "mixup"), (Flag.CUTMIX, "cutmix")):
        if flag in flags:
            steps.append(f"{name}, own {numbers[Word.LAMBDA]:.2f}")
    return steps


def name_of(op: Op) -> str:
    """The name of an op, without its numbers; a translation tells its axis."""
    if op.opcode == Opcode.TRANSLATE and op.parameters[0] != 0 and op.parameters[1] == 0:
        return "translate x"
    if op.opcode == Opcode.TRANSLATE and op.parameters[1] != 0 and op.parameters[0] == 0:
        return "translate y"
    return op.opcode.name.lower().replace("_", " ")


def name_with_numbers(op: Op) -> str:
    """The name of an op with its numbers as a reader expects them: degrees, factors, pixels of movement."""
    if op.opcode == Opcode.TRANSLATE:  # the record says where pixels come from, a reader asks where they go
        right, down = (f"{-offset:+.0f}" if offset else "0" for offset in op.parameters)
        return f"shift {right}, {down} px"
    if op.opcode == Opcode.ROTATE:
        return f"rotate {math.degrees(math.atan2(-op.parameters[1], op.parameters[0])):+.0f}°"
    numbers = _NUMBERS.get(op.opcode)
    return name_of(op) if numbers is None else f"{name_of(op)} {numbers(op.parameters)}"


_NUMBERS: dict[Opcode, Callable[[tuple[float, ...]], str]] = {
    Opcode.SHEAR_X: lambda p: f"{p[0]:+.2f}",
    Opcode.SHEAR_Y: lambda p: f"{p[0]:+.2f}",
    Opcode.BRIGHTNESS: lambda p: f"{p[0]:.2f}",
    Opcode.CONTRAST: lambda p: f"{p[0]:.2f}",
    Opcode.SATURATION: lambda p: f"{p[0]:.2f}",
    Opcode.HUE: lambda p: f"{p[0]:+.2f}",
    Opcode.POSTERIZE: lambda p: f"{p[0]:.0f} bits",
    Opcode.SOLARIZE: lambda p: f"{p[0]:.0f}",
    Opcode.SOLARIZE_ADD: lambda p: f"{p[0]:.0f}",
    Opcode.GAMMA: lambda p: f"{p[0]:.2f}",
    Opcode.SHARPNESS: lambda p: f"{1 - p[0]:.2f}",
    Opcode.BLUR: lambda p: f"{p[0]:.1f} px",
}


def _chains(program: list[Op], numbers: NDArray[np.float32], count: int) -> list[str]:
    """AugMix: the share of the unchanged image, then each chain with its own."""
    lines = [f"{numbers[Word.ORIGINAL_WEIGHT]:.2f} unchanged"]
    chain: list[str] = []
    for op in program:
        if op.opcode != Opcode.NONE:
            chain.append(name_with_numbers(op))
        if op.flags & CHAIN_END and len(lines) <= count:
            lines.append(f"{numbers[Word.CHAIN_WEIGHT + len(lines) - 1]:.2f} {' + '.join(chain) or 'unchanged'}")
            chain = []
    return lines
