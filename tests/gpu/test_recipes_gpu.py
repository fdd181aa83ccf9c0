"""Recipes on a GPU: the draws and pixels of the CPU, views, splits, sizes by epoch, resuming."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_gpuaug import ImageDataModule, Mix, RandomErasing, SizeRamp, Solarize, Synthetic, TrainRecipe, View
from lightning_gpuaug.recipe import ColorJitter, GaussianBlur, RandomResizedCrop

pytestmark = pytest.mark.gpu

VIEWS = TrainRecipe(
    views=(
        View(crop=RandomResizedCrop((0.4, 1.0), interpolation="bicubic"), blur=GaussianBlur(15, probability=1.0)),
        View(color_jitter=ColorJitter(0.4, 0.4, 0.2, 0.1, 0.8), grayscale=0.2, solarize=Solarize(128, 0.2)),
        View(6, 40, RandomResizedCrop((0.05, 0.4))),
    )
)
RECIPES = {
    "a1": TrainRecipe(auto="rand-m7-mstd0.5-inc1", mix=Mix(0.2, 1.0, label_smoothing=0.1), repeats=3),
    "augmix": TrainRecipe(auto="augmix-m5-w4-d2"),
    "deit": TrainRecipe(auto="rand-m9-inc1", mix=Mix(0.8, 1.0, mode="pair"), erasing=RandomErasing(0.5, mode="pixel")),
    "ramp": TrainRecipe(auto="ta_wide", image_size=SizeRamp(0, 2, 64, 96, 32)),
    "splits": TrainRecipe(auto="augmix-m3", splits=3),
    "views": VIEWS,
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = Synthetic(length=64, num_classes=4, height=120, width=150, cache_dir=tmp_path_factory.mktemp("cache"))
    return str(Path(source.paths[0]).parent.parent)


def batches(
    root: str, recipe: TrainRecipe, device: str, epochs: int = 2, **options: Any
) -> list[tuple[list[torch.Tensor], torch.Tensor]]:
    settings: dict[str, Any] = {"batch_size": 16, "image_size": 64, "num_threads": 2, "seed": 11, **options}
    dm = ImageDataModule(train=root, train_recipe=recipe, **settings).setup_for(device)
    found = []
    for _ in range(epochs):
        for images, targets in dm.train_dataloader():
            listed = images if isinstance(images, list) else [images]
            assert all(x.device.type == torch.device(device).type for x in (*listed, targets))
            found.append(([x.cpu() for x in listed], targets.cpu()))
    dm.teardown("fit")
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_decoded_on_the_cpu_the_pixels_are_those_of_the_cpu(root: str, name: str) -> None:
    """One decoder, so the ops alone could differ: whole levels are equal to the bit."""
    recipe = dataclasses.replace(RECIPES[name], mix=None)
    if recipe.erasing is not None:
        recipe = dataclasses.replace(recipe, erasing=None)
    ours = batches(root, recipe, "cuda:0", decode="cpu", dtype="uint8")
    theirs = batches(root, recipe, "cpu", dtype="uint8")
    for (x, y), (x2, y2) in zip(ours, theirs, strict=True):
        assert torch.equal(y, y2)
        for one, other in zip(x, x2, strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", RECIPES)
def test_decoded_on_the_gpu_the_draws_are_those_of_the_cpu(root: str, name: str) -> None:
    """Decoders differ by a few levels here and there; another draw would differ everywhere."""
    ours = batches(root, RECIPES[name], "cuda:0")
    theirs = batches(root, RECIPES[name], "cpu")
    for (x, y), (x2, y2) in zip(ours, theirs, strict=True):
        torch.testing.assert_close(y, y2, atol=1e-6, rtol=0)
        for one, other in zip(x, x2, strict=True):
            assert one.shape == other.shape
            assert float((one - other).abs().median()) < 0.1


@pytest.mark.parametrize("name", ["views", "splits", "ramp", "a1"])
def test_resuming_is_exact_to_the_bit(root: str, name: str) -> None:
    def module() -> ImageDataModule:
        return ImageDataModule(
            train=root, train_recipe=RECIPES[name], batch_size=16, image_size=64, num_threads=2, seed=3
        ).setup_for("cuda:0")  # fmt: skip

    whole = module()
    epochs = [list(whole.train_dataloader()) for _ in range(2)]
    begun = module()
    list(begun.train_dataloader())
    passing = iter(begun.train_dataloader())
    next(passing)
    resumed = module()
    resumed.load_state_dict(begun.state_dict())
    rest = list(resumed.train_dataloader())
    assert len(rest) == len(epochs[1]) - 1
    for (x, y), (x2, y2) in zip(rest, epochs[1][1:], strict=True):
        assert torch.equal(y, y2)
        for one, other in zip(x if isinstance(x, list) else [x], x2 if isinstance(x2, list) else [x2], strict=True):
            assert torch.equal(one, other)
    for dm in (whole, begun, resumed):
        dm.teardown("fit")


def test_a_kept_batch_of_views_does_not_change_while_others_are_made(root: str) -> None:
    dm = ImageDataModule(
        train=root, train_recipe=VIEWS, batch_size=16, image_size=64, num_threads=2, seed=3, dtype="bfloat16"
    ).setup_for("cuda:0")  # fmt: skip
    kept, copies = [], []
    for _ in range(3):
        for images, _ in dm.train_dataloader():
            kept.append(images)
            copies.append([x.clone() for x in images])
    torch.cuda.synchronize()
    for one, other in zip(kept, copies, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    dm.teardown("fit")
