"""The steps of a recipe with equal parameters: all agree with their peers, and a step that is made wrong does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lightning_gpuaug.augment import Params, params
from lightning_gpuaug.cli import parity_steps
from lightning_gpuaug.cli.parity_ops import OpParity
from lightning_gpuaug.cli.parity_steps import compare_noise, compare_steps, steps
from lightning_gpuaug.ops.record import Flag, Word
from tests.format_cases import photo

CPU = torch.device("cpu")
SIDE = 48
Change = Callable[[Params], None]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Two pictures with texture, (2, 48, 48, 3)."""
    noise = np.random.default_rng(0).integers(0, 40, (SIDE, SIDE, 3))
    one = (np.asarray(photo(SIDE, SIDE), int) * 0.8 + noise).astype(np.uint8)
    return np.stack([one, 255 - one.transpose(1, 0, 2)])


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity_steps, "_EPOCHS", 3)


def found_for(images: np.ndarray, start: str, monkeypatch: pytest.MonkeyPatch) -> list[OpParity]:
    chosen = [step for step in steps() if step.op.startswith(start)]
    monkeypatch.setattr(parity_steps, "steps", lambda: iter(chosen))
    return compare_steps(images, CPU)


def test_every_step_agrees(images: np.ndarray) -> None:
    found = compare_steps(images[:1], CPU)  # one comes twice
    assert [(step.peer, step.op) for step in found if not step.agrees] == []
    assert len(found) == len({(step.peer, step.op) for step in found}) == 29
    names = {step.op.split(" ")[0] for step in found}
    assert names == {
        "RandomResizedCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "ColorJitter", "RandomGrayscale",
        "GaussianBlur", "RandomSolarize", "RandomErasing", "MixUp", "CutMix",
    }  # fmt: skip
    exact = ("RandomHorizontal", "RandomVertical", "RandomSolarize", "RandomErasing", "CutMix", "MixUp")
    assert max(step.largest for step in found if step.op.startswith(exact)) <= 1
    assert min(step.equal for step in found if step.op.startswith(exact)) > 0.999


def test_jitter_with_its_factors_exchanged_is_caught(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    ops = params._JITTER_OPS
    monkeypatch.setattr(params, "_JITTER_OPS", (ops[1], ops[0], *ops[2:]))
    found = found_for(images, "ColorJitter", monkeypatch)
    assert len(found) == 4
    assert not any(step.agrees for step in found)


def test_jitter_in_another_order_is_caught(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(image: Any, record: np.ndarray) -> Any:
        return step_apply(image, turned(record))

    def turned(record: np.ndarray) -> np.ndarray:
        ops = record[Word.PROGRAM : Word.PROGRAM + 12].reshape(4, 3)[::-1].ravel()
        return np.concatenate([record[: Word.PROGRAM], ops, record[Word.PROGRAM + 12 :]])

    step = next(s for s in steps() if (s.peer, s.op) == ("torchvision", "ColorJitter (no hue)"))
    step_apply = step.apply
    assert step_apply is not None
    monkeypatch.setattr(parity_steps, "steps", lambda: iter([dataclasses.replace(step, apply=backwards)]))
    [found] = compare_steps(images, CPU)
    assert not found.agrees


def shift_window(made: Params) -> None:
    made.records[:, Word.CROP + 2 : Word.CROP + 4] = np.maximum(1, made.records[:, Word.CROP + 2 : Word.CROP + 4] - 4)


def transpose_box(at: Word) -> Change:
    def change(made: Params) -> None:
        made.records[:, at : at + 4] = made.records[:, [at + 1, at, at + 3, at + 2]]

    return change


def other_share(made: Params) -> None:
    made.records.view(np.float32)[:, Word.LAMBDA] = 1.0 - made.records.view(np.float32)[:, Word.LAMBDA]


def unflipped(made: Params) -> None:
    made.records[:, Word.FLAGS] &= ~np.int32(Flag.FLIP_HORIZONTAL)


def unantialiased(made: Params) -> None:
    made.records[:, Word.FLAGS] &= ~np.int32(Flag.ANTIALIAS)


@pytest.mark.parametrize(
    ("start", "change"),
    [
        ("RandomResizedCrop (bilinear)", shift_window),
        ("RandomResizedCrop (bicubic)", unantialiased),
        ("RandomHorizontalFlip", unflipped),
        ("RandomErasing (const)", transpose_box(Word.ERASE)),
        ("RandomErasing (pixel", transpose_box(Word.ERASE)),
        ("CutMix", transpose_box(Word.CUT)),
        ("MixUp", other_share),
    ],
)
def test_a_step_that_is_made_wrong_is_caught(
    start: str, change: Change, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The op gets other records than those that the peer is forced to."""
    run = parity_steps.ops.augment_packed

    def wrong(data: Any, offsets: Any, sizes: Any, records: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        changed = Params(records.numpy().copy(), 1, None)
        change(changed)
        return run(data, offsets, sizes, torch.from_numpy(changed.records), *args, **options)

    monkeypatch.setattr(parity_steps.ops, "augment_packed", wrong)
    found = found_for(images, start, monkeypatch)
    assert found
    assert not any(step.agrees for step in found)


def test_noise_of_erasing(monkeypatch: pytest.MonkeyPatch) -> None:
    colour, pixel = compare_noise(24, 80, CPU)
    assert colour.agrees
    assert pixel.agrees
    assert colour.count <= 3 * 80 < pixel.count
    run = parity_steps.ops.augment_packed
    monkeypatch.setattr(parity_steps.ops, "augment_packed", lambda *a, **k: run(*a, **k) * 1.1)
    _, pixel = compare_noise(24, 80, CPU)
    assert pixel.mean[0] == pytest.approx(0, abs=0.05)
    assert not pixel.agrees
