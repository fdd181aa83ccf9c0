"""Records for tests: hand-written programs and random ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch

from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word


def records(
    programs: Sequence[Sequence[Op]], *, flags: int = 0, fill: tuple[int, int, int] = (0, 0, 0)
) -> torch.Tensor:
    """One record a program."""
    params = torch.zeros(len(programs), rec.WORDS, dtype=torch.int32)
    params[:, Word.VERSION] = rec.VERSION
    params[:, Word.FLAGS] = flags
    params[:, Word.FILL] = fill[0] | fill[1] << 8 | fill[2] << 16
    for i, program in enumerate(programs):
        params[i, Word.PROGRAM :] = torch.tensor(rec.program_words(program), dtype=torch.int32)
    return params


def set_floats(params: torch.Tensor, sample: int, at: int, values: Sequence[float]) -> None:
    params[sample, at : at + len(values)] = torch.tensor(values, dtype=torch.float32).view(torch.int32)


def random_op(r: random.Random, height: int, width: int, *, opcode: Opcode | None = None) -> Op:
    """Any op with plausible parameters."""
    opcode = opcode or Opcode(r.randrange(1, len(rec.PARAMETERS)))
    interpolation, border = r.choice(rec.INTERPOLATIONS), r.choice(rec.BORDERS)
    flags = rec.PIL_GRAY * r.randrange(2)
    factor = r.uniform(0, 2.5)
    match opcode:
        case Opcode.TRANSLATE:
            values: tuple[float, ...] = (r.choice([r.randint(-width, width), r.uniform(-9, 9)]) * 1.0, r.uniform(-9, 9))
        case Opcode.SHEAR_X | Opcode.SHEAR_Y:
            values = (r.uniform(-1, 1),)
        case Opcode.ROTATE:
            angle = r.choice([r.uniform(0, 6.3), math.pi / 2, math.pi])
            values = (math.cos(angle), math.sin(angle))
        case Opcode.AFFINE:
            values = (r.uniform(-2, 2), r.uniform(-1, 1), r.uniform(-9, 9), r.uniform(-1, 1), r.uniform(-2, 2), 3.0)
        case Opcode.PERSPECTIVE:
            values = (
                1.1,
                r.uniform(-1, 1),
                2.0,
                r.uniform(-1, 1),
                0.9,
                -1.0,
                r.uniform(-0.2, 0.2),
                r.uniform(-0.2, 0.2),
            )
        case Opcode.CONTRAST | Opcode.SATURATION:
            values = (factor, 1 - factor)
        case Opcode.HUE:
            values = (r.uniform(-0.5, 0.5),)
        case Opcode.POSTERIZE:
            values = (r.randint(0, 8),)
        case Opcode.SOLARIZE:
            values = (r.uniform(0, 256),)
        case Opcode.SOLARIZE_ADD:
            values = (r.uniform(0, 110), 128.0)
        case Opcode.GAMMA:
            values = (r.uniform(0.2, 3), r.uniform(0.5, 1.5))
        case Opcode.BLUR:
            values = (r.uniform(0.1, 4), r.choice([1, 3, 5, 9, 23]))
        case Opcode.COLOR_MATRIX:
            values = tuple(r.uniform(-1, 1) for _ in range(12))
        case _:
            values = (factor,) * rec.PARAMETERS[opcode]
    return Op(opcode, values, interpolation, border, flags)


def random_program(r: random.Random, height: int, width: int, most: int = 5) -> list[Op]:
    program: list[Op] = []
    used = 0
    for _ in range(r.randint(0, most)):
        op = random_op(r, height, width)
        if used + 1 + len(op.parameters) > rec.PROGRAM_WORDS:
            break
        used += 1 + len(op.parameters)
        program.append(op)
    return program


def random_rectangle(r: random.Random, height: int, width: int) -> list[int]:
    top, left = r.randint(0, height), r.randint(0, width)
    return [top, left, r.randint(0, height - top), r.randint(0, width - left)]


def random_records(seed: int, samples: int, height: int, width: int, *, chains: int = 1) -> torch.Tensor:
    """Records with everything: flips, programs or AugMix, erasing, mixing."""
    r = random.Random(seed)
    programs = []
    for _ in range(samples):
        if chains > 1 and r.random() < 0.7:
            ops = [random_op(r, height, width, opcode=r.choice([Opcode.ROTATE, Opcode.EQUALIZE, Opcode.POSTERIZE,
                                                                Opcode.SHEAR_X, Opcode.SATURATION, Opcode.SHARPNESS]))
                   for _ in range(r.randint(chains, min(3 * chains, 10)))]  # fmt: skip
            ends = set(r.sample(range(len(ops) - 1), chains - 1)) | {len(ops) - 1}
            programs.append([op._replace(flags=op.flags | (rec.CHAIN_END if i in ends else 0))
                             for i, op in enumerate(ops)])  # fmt: skip
        else:
            programs.append(random_program(r, height, width))
    params = records(programs)
    for i, program in enumerate(programs):
        params[i, Word.FILL] = r.randrange(1 << 24)
        params[i, Word.SEED], params[i, Word.EPOCH] = r.randrange(-(2**31), 2**31), r.randrange(9)
        params[i, Word.INDEX], params[i, Word.INDEX + 1] = r.randrange(-(2**31), 2**31), r.randrange(4)
        erase, mix = r.choice([0, Flag.ERASE_CONSTANT, Flag.ERASE_NOISE]), r.choice([0, Flag.MIXUP, Flag.CUTMIX])
        params[i, Word.FLAGS] = r.choice([0, 1, 2, 3]) | erase | mix
        if any(op.flags & rec.CHAIN_END for op in program):
            params[i, Word.CHAINS] = chains
            weights = [r.random() for _ in range(chains + 1)]
            set_floats(params, i, Word.ORIGINAL_WEIGHT, [w / sum(weights) for w in weights])
        params[i, Word.PARTNER] = r.randrange(samples)
        set_floats(params, i, Word.LAMBDA, [r.random()])
        set_floats(params, i, Word.ERASE_VALUE, [r.uniform(-2, 2) for _ in range(3)])
        params[i, Word.ERASE : Word.ERASE + 4] = torch.tensor(random_rectangle(r, height, width))
        params[i, Word.CUT : Word.CUT + 4] = torch.tensor(random_rectangle(r, height, width))
    return params
