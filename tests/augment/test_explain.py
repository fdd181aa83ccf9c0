"""What a record says, in words."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lightning_gpuaug.augment import sample_params
from lightning_gpuaug.augment.explain import name_of, name_with_numbers, program_of, steps_of
from lightning_gpuaug.augment.policies import op_words
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Op, Opcode
from lightning_gpuaug.recipe import AugMix, GaussianBlur, Mix, RandomErasing, TrainRecipe
from tests.ops.programs import random_program, records


@pytest.mark.parametrize("seed", range(20))
def test_a_program_is_read_as_it_was_written(seed: int) -> None:
    program = random_program(random.Random(seed), 40, 50)
    found = program_of(records([program])[0].numpy())
    assert [(op.opcode, op.flags) for op in found] == [(op.opcode, op.flags) for op in program]
    for ours, written in zip(found, program, strict=True):
        assert ours.parameters == pytest.approx(written.parameters, rel=1e-6)


def test_every_opcode_has_a_name_with_its_numbers() -> None:
    r = random.Random(1)
    for opcode in list(Opcode)[1:]:
        op = Op(opcode, tuple(r.uniform(0.1, 0.9) for _ in range(rec.PARAMETERS[opcode])))
        assert name_with_numbers(op)
        assert name_of(op) == opcode.name.lower().replace("_", " ") or opcode == Opcode.TRANSLATE


@pytest.mark.parametrize(
    ("name", "magnitude", "text"),
    [
        ("Rotate", 30.0, "rotate +30°"),
        ("Rotate", -12.4, "rotate -12°"),
        ("TranslateX", 12.0, "shift +12, 0 px"),
        ("TranslateY", -7.0, "shift 0, -7 px"),
        ("Brightness", 0.5, "brightness 1.50"),
        ("Color", -0.25, "saturation 0.75"),
        ("Sharpness", -0.9, "sharpness 0.10"),
        ("Posterize", 4.0, "posterize 4 bits"),
        ("Solarize", 110.0, "solarize 110"),
        ("Equalize", 0.0, "equalize"),
    ],
)
def test_numbers_are_torchvisions(name: str, magnitude: float, text: str) -> None:
    record = records([[]])[0].numpy()
    record[rec.Word.PROGRAM : rec.Word.PROGRAM + 3] = op_words(name, magnitude, "nearest")
    assert steps_of(record, 32, 32) == [text]


def test_translations_tell_their_axis() -> None:
    assert name_of(Op(Opcode.TRANSLATE, (3.0, 0.0))) == "translate x"
    assert name_of(Op(Opcode.TRANSLATE, (0.0, 3.0))) == "translate y"
    assert name_of(Op(Opcode.TRANSLATE, (0.0, 0.0))) == "translate"


def test_a_whole_recipe_in_order() -> None:
    recipe = TrainRecipe(
        hflip=1.0, vflip=1.0, grayscale=1.0, blur=GaussianBlur(23, (1.0, 1.0), 1.0),
        erasing=RandomErasing(1.0, (0.25, 0.25), (1.0, 1.0)), mix=Mix(0.0, 1.0),
    )  # fmt: skip
    params = sample_params(recipe, np.arange(2), 0, 0, 32, 32)
    assert params.share is not None
    steps = steps_of(params.records[0], 32, 32)
    assert steps[:5] == ["flip", "vertical flip", "grayscale", "blur 1.0 px", "erase 25%"]
    assert steps[5:] == [f"cutmix, own {params.share[0]:.2f}"]
    plain = sample_params(TrainRecipe(hflip=0.0), np.arange(2), 0, 0, 32, 32)
    assert steps_of(plain.records[0], 32, 32) == []


def test_augmix_lists_its_chains_with_their_shares() -> None:
    params = sample_params(TrainRecipe(hflip=0.0, auto=AugMix(mixture_width=2)), np.arange(50), 0, 0, 32, 32)
    for record in params.records:
        steps = steps_of(record, 32, 32)
        assert len(steps) == 3
        assert steps[0].endswith("unchanged")
        assert sum(float(step.split()[0]) for step in steps) == pytest.approx(1.0, abs=0.02)
        names = sum(1 + step.count(" + ") for step in steps[1:] if "unchanged" not in step)
        assert names == sum(op.opcode != Opcode.NONE for op in program_of(record))


def test_a_record_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"record must have shape \(64,\), got \(3,\)"):
        program_of(np.zeros(3, dtype=np.int32))
