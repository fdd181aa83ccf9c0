"""Recipes: plain values, compared by value, refused by name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from lightning_gpuaug import ColorJitter, EvalRecipe, Normalize, RandomResizedCrop, TrainRecipe

TWO = "must be two numbers 0 < a ≤ b"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomResizedCrop(scale=0.5), f"RandomResizedCrop.scale {TWO} ≤ 1, got 0.5"),  # type: ignore[arg-type]
        (lambda: RandomResizedCrop(scale=(1, 0.5)), f"RandomResizedCrop.scale {TWO} ≤ 1, got (1, 0.5)"),
        (lambda: RandomResizedCrop(scale=(0.1, 1.1)), f"RandomResizedCrop.scale {TWO} ≤ 1, got (0.1, 1.1)"),
        (lambda: RandomResizedCrop(scale=(0, 1)), f"RandomResizedCrop.scale {TWO} ≤ 1, got (0, 1)"),
        (lambda: RandomResizedCrop(scale=(math.nan, 1)), f"RandomResizedCrop.scale {TWO} ≤ 1, got (nan, 1)"),
        (lambda: RandomResizedCrop(scale="ab"), f"RandomResizedCrop.scale {TWO} ≤ 1, got 'ab'"),  # type: ignore[arg-type]
        (lambda: RandomResizedCrop(ratio=(1, math.inf)), f"RandomResizedCrop.ratio {TWO}, got (1, inf)"),
        (lambda: RandomResizedCrop(ratio=(1, 2, 3)), f"RandomResizedCrop.ratio {TWO}, got (1, 2, 3)"),  # type: ignore[arg-type]
        (lambda: RandomResizedCrop(interpolation="cubic"), "RandomResizedCrop.interpolation must be one of"),  # type: ignore[arg-type]
        (lambda: RandomResizedCrop(antialias="no"), "RandomResizedCrop.antialias must be True or False, got 'no'"),  # type: ignore[arg-type]
        (lambda: Normalize(mean=0.5), "Normalize.mean must be three numbers, got 0.5"),  # type: ignore[arg-type]
        (lambda: Normalize(mean=("a", 0, 0)), "Normalize.mean must be three numbers, got ('a', 0, 0)"),  # type: ignore[arg-type]
        (lambda: Normalize(std=(0, 1, 1)), "Normalize.std must be three positive numbers, got (0, 1, 1)"),
        (lambda: Normalize(std=(math.inf, 1, 1)), "Normalize.std must be three positive numbers, got (inf, 1, 1)"),
        (lambda: TrainRecipe(hflip=1.5), "TrainRecipe.hflip must be a probability in 0..1, got 1.5"),
        (lambda: TrainRecipe(hflip="x"), "TrainRecipe.hflip must be a probability in 0..1, got 'x'"),  # type: ignore[arg-type]
        (lambda: TrainRecipe(crop=0.5), "TrainRecipe.crop must be a RandomResizedCrop or None, got 0.5"),  # type: ignore[arg-type]
        (lambda: TrainRecipe(normalize=(0, 1)), "TrainRecipe.normalize must be a Normalize or None, got (0, 1)"),  # type: ignore[arg-type]
        (lambda: TrainRecipe(exif_orientation=1), "TrainRecipe.exif_orientation must be True or False, got 1"),  # type: ignore[arg-type]
        (lambda: EvalRecipe(crop_ratio=0), "EvalRecipe.crop_ratio must be a number in (0, 1], got 0"),
        (lambda: EvalRecipe(crop_ratio=[1]), "EvalRecipe.crop_ratio must be a number in (0, 1], got [1]"),  # type: ignore[arg-type]
        (lambda: EvalRecipe(normalize=False), "EvalRecipe.normalize must be a Normalize or None, got False"),  # type: ignore[arg-type]
        (lambda: EvalRecipe(interpolation=3), "EvalRecipe.interpolation must be one of"),  # type: ignore[arg-type]
    ],
)
def test_wrong_fields_are_named_in_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the message is compared below
        make()
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_recipes_compare_by_value_however_they_were_written() -> None:
    """Lists from YAML and whole numbers from Python are the same recipe, so a resume does not warn of a change."""
    written = TrainRecipe(
        RandomResizedCrop(scale=[0.5, 1], ratio=[1, 1]),  # type: ignore[arg-type]
        normalize=Normalize([0, 0, 0], [1, 1, 1]),  # type: ignore[arg-type]
        color_jitter=ColorJitter([0, 2]),  # type: ignore[arg-type]
    )
    plain = TrainRecipe(
        RandomResizedCrop((0.5, 1.0), (1.0, 1.0)),
        normalize=Normalize((0.0,) * 3, (1.0,) * 3),  # type: ignore[arg-type]
        color_jitter=ColorJitter((0.0, 2.0)),
    )
    assert written == plain
    assert repr(written) == repr(plain)
    assert hash(written) == hash(plain)


def test_recipes_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainRecipe().hflip = 0.0  # type: ignore[misc]
