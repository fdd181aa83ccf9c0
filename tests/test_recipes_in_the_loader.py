"""Recipes that need more than crop and flip: what the loader hands over is what the ops make of the same draws."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_gpuaug import ImageDataModule, TrainRecipe, ops
from lightning_gpuaug.augment.params import sample_params
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.recipe import ColorJitter, GaussianBlur, Mix, RandAugment, RandomErasing
from tests.format_cases import photo

RECIPES = {
    "policy": TrainRecipe(auto=RandAugment()),
    "timm": TrainRecipe(auto="rand-m9-mstd0.5-inc1"),
    "colour": TrainRecipe(crop=None, color_jitter=ColorJitter(), grayscale=0.5, blur=GaussianBlur(), vflip=0.5),
    "erase": TrainRecipe(erasing=RandomErasing(probability=1.0)),
    "mix": TrainRecipe(mix=Mix()),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i in range(8):
        (root / f"class{i % 4}").mkdir(exist_ok=True)
        photo(60 + 5 * i, 50 + 3 * i).rotate(10 * i).save(root / f"class{i % 4}" / f"{i}.png")
    return root


def module(root: Path, recipe: TrainRecipe, **options: object) -> ImageDataModule:
    defaults = {"batch_size": 8, "image_size": 32, "num_threads": 1, "seed": 6}
    return ImageDataModule(train=root, train_recipe=recipe, **{**defaults, **options}).setup_for("cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RECIPES)
def test_batches_are_the_program_applied_to_the_crops(folder: Path, name: str) -> None:
    recipe = RECIPES[name]
    plain = dataclasses.replace(TrainRecipe(), crop=recipe.crop, hflip=0.0)
    crops = module(folder, plain, dtype="uint8")
    made = module(folder, recipe)
    for epoch in range(2):
        pixels, labels = next(iter(crops.train_dataloader()))
        images, targets = next(iter(made.train_dataloader()))
        indices = made.train_dataloader().plan.batch(epoch, 0)
        params = sample_params(recipe, indices, epoch, 6, 32, 32)
        assert recipe.normalize is not None
        expected = ops.augment(
            pixels.permute(0, 2, 3, 1), torch.from_numpy(params.records), recipe.normalize.mean, recipe.normalize.std,
            chains=params.chains,
        )  # fmt: skip
        assert torch.equal(images, expected)
        if recipe.mix is None:
            assert torch.equal(targets, labels)
            continue
        assert params.share is not None
        one_hot = np.eye(4, dtype=np.float32)[labels.numpy()]
        own = params.share[:, None]
        assert targets.dtype == torch.float32
        np.testing.assert_allclose(targets.numpy(), own * one_hot + (1 - own) * one_hot[::-1], atol=1e-6)
    crops.teardown("test")
    made.teardown("test")


def test_resizing_in_the_native_op_comes_before_the_program(folder: Path) -> None:
    dm = module(folder, RECIPES["policy"])
    loader = dm.train_dataloader()
    packed = Loader(
        loader.source, loader.plan, dataclasses.replace(loader.decoding, packed=True), loader.output, seed=6
    )
    (x, y), (x2, y2) = next(iter(loader)), next(iter(packed))
    assert torch.equal(y, y2)
    assert x2.shape == x.shape
    assert (x - x2).abs().mean() < 0.1
    packed.close()
    dm.teardown("test")


def test_another_recipe_is_another_picture_and_evaluation_has_none(folder: Path) -> None:
    dm = ImageDataModule(
        train=folder, val=folder, train_recipe=RECIPES["policy"], batch_size=8, image_size=32, num_threads=1
    ).setup_for("cpu")
    first, second = (next(iter(dm.train_dataloader()))[0] for _ in range(2))
    assert not torch.equal(first, second)
    once, twice = (next(iter(dm.val_dataloader()))[0] for _ in range(2))
    assert torch.equal(once, twice)
    dm.teardown("test")


def test_pairing_needs_an_even_batch(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"train_recipe\.mix pairs the images .* batch_size must be even, got 3"):
        module(folder, RECIPES["mix"], batch_size=3)


def test_pictures_differ_from_the_plain_ones(folder: Path) -> None:
    """The steps are really applied: each recipe changes most images."""
    for name in ("policy", "timm", "colour", "erase", "mix"):
        recipe = RECIPES[name]
        plain = module(folder, dataclasses.replace(TrainRecipe(), crop=recipe.crop, hflip=0.0), dtype="float32")
        rich = module(folder, dataclasses.replace(recipe, hflip=0.0), dtype="float32")
        a, b = (next(iter(dm.train_dataloader()))[0] for dm in (plain, rich))
        assert int((a != b).flatten(1).any(dim=1).sum()) >= 5, name
        plain.teardown("test")
        rich.teardown("test")
