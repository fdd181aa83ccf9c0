"""`gpuaug parity --recipe`: published recipes agree with their origins, and what was made wrong is caught."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug.cli import main, parity_published
from lightning_gpuaug.cli.origins import ORIGINS, Heard, make, origin, published_size
from lightning_gpuaug.cli.parity_published import PublishedParity, compare_published, resized
from lightning_gpuaug.cli.parity_statistics import (
    MOST_DISTRIBUTION_APART,
    STANDARD_ERRORS,
    distribution_apart,
    distribution_distance,
    histogram_distance,
    means_apart,
)
from lightning_gpuaug.cli.recipe_files import read_recipe, recipe_files
from lightning_gpuaug.recipe import Mix, TrainRecipe
from tests.format_cases import photo

CPU = torch.device("cpu")
SIZE = 32


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    """One wide, one high, with texture and highlights."""
    noise = np.random.default_rng(0).normal(0, 30, (60, 90, 3))
    wide = np.clip(np.asarray(photo(90, 60), float) * 1.3 + noise, 0, 255).astype(np.uint8)
    return [Image.fromarray(wide), Image.fromarray(255 - wide[::-1, ::-1, ::-1]).rotate(90, expand=True)]


def compared(name: str, pictures: list[Image.Image], draws: int, **changes: Any) -> list[PublishedParity]:
    recipe = read_recipe(recipe_files([name])[0])
    recipe = dataclasses.replace(resized(recipe, SIZE, published_size(name)), **changes)
    return compare_published(name, recipe, origin(name, SIZE), pictures, SIZE, draws, 0, CPU)


def test_every_published_recipe_has_an_origin_of_its_size() -> None:
    assert sorted(ORIGINS) == [path.stem for path in recipe_files(["all"])]
    for path in recipe_files(["all"]):
        recipe = read_recipe(path)
        assert recipe.size_at(0, 224) == published_size(path.stem), path


@pytest.mark.parametrize("name", sorted(ORIGINS))
def test_recipes_agree(name: str, pictures: list[Image.Image]) -> None:
    draws = 40
    found = compared(name, pictures, draws)
    assert [parity.agrees for parity in found] == [True] * len(found)
    for parity in found:
        assert parity.images % (2 * draws) == 0
        assert {"crop area", "crop ratio", "crop centre x", "crop centre y"} <= parity.numbers.keys()
        assert 0.3 < parity.frequency["flip"][0] < 0.7
        assert 0.3 < parity.frequency["flip"][1] < 0.7
        for distance in (parity.mean, parity.std, parity.histogram):
            assert distance.found > 0
            assert distance.twice > 0
    drawn = {op for parity in found for op in parity.frequency}
    expected = {
        "timm_a1": {"mixup", "cutmix", "solarize add"}, "deit": {"mixup", "cutmix", "erase", "solarize add"},
        "simclr": {"brightness", "hue", "grayscale", "blur"}, "torchvision_resnet50_v2": {"mixup", "cutmix", "erase"},
        "dino": {"brightness", "hue", "grayscale", "blur", "solarize"},
    }.get(name, {"flip"})  # fmt: skip
    assert expected <= drawn
    assert [parity.size for parity in found] == ([32, 32, 14] if name == "dino" else [32])
    assert [parity.view for parity in found] == {"dino": ["1", "2", "3–8"], "simclr": ["1–2"]}.get(name, [""])


@pytest.mark.parametrize(
    ("name", "changes", "caught_by"),
    [
        ("torchvision_resnet50_v1", {"hflip": 0.0}, "flip"),
        ("torchvision_resnet50_v2", {"mix": None}, "mixup"),
        ("timm_a1", {"mix": Mix(0.2, 1.0, switch_probability=0.0)}, "cutmix"),
    ],
)
def test_a_recipe_that_draws_ops_otherwise_is_caught(
    name: str, changes: dict[str, Any], caught_by: str, pictures: list[Image.Image]
) -> None:
    [found] = compared(name, pictures, 60, **changes)
    assert not found.agrees
    assert found.frequency[caught_by][2] > STANDARD_ERRORS


def test_a_recipe_that_draws_other_numbers_is_caught(pictures: list[Image.Image]) -> None:
    recipe = read_recipe(recipe_files(["torchvision_resnet50_v1"])[0])
    assert recipe.crop is not None
    wrong = dataclasses.replace(recipe.crop, scale=(0.4, 1.0))
    [found] = compared("torchvision_resnet50_v1", pictures, 60, crop=wrong)
    assert not found.agrees
    assert found.number_apart[0] == "crop area"
    mix = Mix(1.0, 1.0)  # uniform shares instead of Beta(0.2, 0.2), whose mean is the same
    [found] = compared("timm_a1", pictures, 250, mix=mix)
    assert found.numbers["mixup share"].apart > MOST_DISTRIBUTION_APART


def test_pixels_that_differ_are_caught_where_draws_agree(
    pictures: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    def brighter(*args: Any) -> list[tuple[torch.Tensor, Heard]]:
        return [(batch * 1.3 + 0.6, heard) for batch, heard in make(*args)]

    monkeypatch.setattr(parity_published, "make", brighter)
    [found] = compared("ffcv_rn50", pictures, 30)
    assert found.frequency_apart[1] <= STANDARD_ERRORS
    assert not found.agrees
    assert min(found.mean.apart, found.histogram.apart) > STANDARD_ERRORS
    assert found.mean.found > found.mean.twice


def test_other_views_are_refused(pictures: list[Image.Image]) -> None:
    with pytest.raises(ValueError, match=r"recipe x has \[1\] views of each kind, its origin \[2\]"):
        compare_published("x", TrainRecipe(), origin("simclr", SIZE), pictures, SIZE, 2, 0, CPU)


def test_statistics_tell_chance_from_difference() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 400))
    assert distribution_apart(a, b) < 1.6
    assert distribution_apart(a, 2 * b) > MOST_DISTRIBUTION_APART  # the same mean
    assert distribution_distance(np.zeros(3), np.ones(5)) == 1.0
    assert distribution_distance(a, a) == 0.0
    assert means_apart(a[:, None], b[:, None]) < 3
    assert means_apart(a[:, None], b[:, None] + 0.5) > STANDARD_ERRORS
    assert means_apart(np.zeros((5, 2)), np.zeros((5, 2))) == 0.0
    dark, light = np.zeros((2, 3, 256), dtype=np.int64)
    dark[:, 10], light[:, 12] = 7, 4
    assert histogram_distance(dark, light) == pytest.approx(2.0)


def test_command_with_a_name_and_with_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photo(50, 40).save(tmp_path / "a.png")
    photo(40, 50).save(tmp_path / "b.jpg")
    small = [str(tmp_path), "--size", "16", "--draws", "24"]
    assert main(["parity", *small, "--recipe", "torchvision_resnet50_v1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ops"] == found["recipes"] == found["noise"] == []
    [recipe] = found["published"]
    assert (recipe["peer"], recipe["recipe"], recipe["draws"], recipe["images"]) == (
        "torchvision", "torchvision_resnet50_v1", 24, 48,
    )  # fmt: skip
    mine = tmp_path / "mine.yaml"
    mine.write_text("data: {train_recipe: {hflip: 0.0}}\n")
    assert main(["parity", *small, "--recipe", str(mine), "--origin", "torchvision_resnet50_v1"]) == 1
    out = capsys.readouterr().out
    assert "mine" in out
    assert "(flip)" in out
    assert out.count("differs") == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (None, ["--recipe", "timm_a4"], "got 'timm_a4'"),
        ("data: {train_recipe: {hflip: 2}}", ["--origin", "deit"], "hflip"),
        ("data: {batch_size: 2}", ["--origin", "deit"], "must have a mapping data.train_recipe"),
        ("data: {train_recipe: {}}", [], "no pipeline is known that it could come from; give --origin one of "),
        ("a: [", [], "is not YAML"),
    ],
)
def test_errors_are_one_line(
    text: str | None, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "mine.yaml").write_text(text)
        options = ["--recipe", str(tmp_path / "mine.yaml"), *options]
    assert main(["parity", *options]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("gpuaug parity: error: ")
    assert message in line
