"""The same draws and the same pixels from a Trainer, from Fabric and from a plain loop, on any rank layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric import Fabric

from lightning_gpuaug import ImageDataModule, Mix, RandomErasing, TrainRecipe, View
from lightning_gpuaug.recipe import ColorJitter, RandomResizedCrop
from tests.format_cases import photo

RECIPES = {
    "a1": TrainRecipe(auto="rand-m7-mstd0.5-inc1", mix=Mix(0.2, 1.0, label_smoothing=0.1), repeats=3),
    "unmixed": TrainRecipe(auto="rand-m9-mstd0.5-inc1", erasing=RandomErasing(0.5, mode="pixel")),
    "ramp": TrainRecipe(auto="ta_wide", image_size={0: 16, 1: 24}),
    "splits": TrainRecipe(auto="augmix-m3", splits=3),
    "views": TrainRecipe(views=(View(2, color_jitter=ColorJitter()), View(2, 16, RandomResizedCrop((0.05, 0.4))))),
}  # fmt: skip
EPOCHS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i in range(12):
        (root / f"class{i % 4}").mkdir(exist_ok=True)
        photo(40 + 5 * i, 50 + 3 * i).save(root / f"class{i % 4}" / f"{i}.png")
    return root


def module(root: Path, recipe: TrainRecipe, **options: Any) -> ImageDataModule:
    settings: dict[str, Any] = {"batch_size": 4, "image_size": 24, "num_threads": 1, "seed": 11, **options}
    return ImageDataModule(train=root, train_recipe=recipe, **settings)


def flat(batch: Any) -> list[torch.Tensor]:
    """Images and targets of a batch, copied."""
    images, targets = batch
    return [x.clone() for x in (*(images if isinstance(images, list) else [images]), targets)]


class Recorder(pl.LightningModule):
    """Trains nothing worth having, and keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[list[torch.Tensor]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append(flat(batch))
        return self.weight * sum(float(x.float().mean()) for x in self.seen[-1])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        raise AssertionError("there is no validation data")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def by_trainer(root: Path, recipe: TrainRecipe, folder: Path) -> list[list[torch.Tensor]]:
    model = Recorder()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_checkpointing=False,
        default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, module(root, recipe))
    return model.seen


def by_fabric(root: Path, recipe: TrainRecipe) -> list[list[torch.Tensor]]:
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    dm = module(root, recipe).setup_for(fabric.device, fabric.global_rank, fabric.world_size)
    model, optimizer = fabric.setup(model := Recorder(), model.configure_optimizers())
    seen = []
    for _ in range(EPOCHS):
        for batch in dm.train_dataloader():
            seen.append(flat(batch))
            loss = model.weight * float(seen[-1][0].float().mean())
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    dm.teardown("fit")
    return seen


def by_loop(root: Path, recipe: TrainRecipe, **options: Any) -> list[list[torch.Tensor]]:
    dm = module(root, recipe, **options).setup_for("cpu")
    seen = [flat(batch) for _ in range(EPOCHS) for batch in dm.train_dataloader()]
    dm.teardown("fit")
    return seen


@pytest.mark.parametrize("name", ["a1", "ramp", "splits", "views"])
def test_a_trainer_fabric_and_a_loop_see_the_same(folder: Path, tmp_path: Path, name: str) -> None:
    recipe = RECIPES[name]
    loop = by_loop(folder, recipe)
    assert len(loop) == EPOCHS * 3
    for others in (
        by_trainer(folder, recipe, tmp_path),
        by_fabric(folder, recipe),
        by_loop(folder, recipe, prefetch=1),
    ):
        assert len(others) == len(loop)
        for one, other in zip(loop, others, strict=True):
            assert [tuple(x.shape) for x in one] == [tuple(x.shape) for x in other]
            assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("name", ["unmixed", "views"])
def test_a_sample_looks_the_same_whatever_the_ranks(folder: Path, name: str) -> None:
    """What does not belong to the batch (mixing does) depends on the sample alone."""
    recipe = RECIPES[name]
    alone = module(folder, recipe).setup_for("cpu")
    of_one: dict[int, list[torch.Tensor]] = {}
    loader = alone.train_dataloader()
    for step, batch in enumerate(loader):
        for row, index in enumerate(loader.plan.batch(0, step)):
            of_one[int(index)] = [x[row] for x in flat(batch)]
    seen = 0
    for rank in range(2):
        dm = module(folder, recipe, batch_size=3).setup_for("cpu", rank, 2)
        loader = dm.train_dataloader()
        for step, batch in enumerate(loader):
            for row, index in enumerate(loader.plan.batch(0, step)):
                assert all(torch.equal(x[row], y) for x, y in zip(flat(batch), of_one[int(index)], strict=True))
                seen += 1
        dm.teardown("fit")
    assert seen == 12
    alone.teardown("fit")
