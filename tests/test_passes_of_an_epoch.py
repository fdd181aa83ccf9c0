"""Passes over the training data in one epoch: beside other data, for callbacks, by steps that fetch for themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from lightning_gpuaug import ImageDataModule, TrainRecipe
from lightning_gpuaug.loader import Loader, Place
from tests.images import numbered
from tests.tracking import SaveEverywhere, Step, Tracking, trainer


@pytest.fixture(autouse=True)
def _quiet_lightning() -> None:
    for text in ("many workers", "Starting from v1.9", "dataloader is not resumable", "LeafSpec", "dataloader_iter"):
        warnings.filterwarnings("ignore", message=f".*{text}.*")


@pytest.fixture(params=[False, True], ids=["here", "worker"])
def _ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_gpuaug.data.Loader", partial(Loader, ahead=request.param))


def fitted(model: Tracking, data: ImageDataModule, folder: Path, *callbacks: pl.Callback, **options: Any) -> list[Step]:
    """The training steps of two epochs."""
    run = {"max_epochs": 2, "limit_val_batches": 0, "ckpt_path": None, **options}
    path = run.pop("ckpt_path")
    trainer(folder, callbacks=list(callbacks), **run).fit(model, data, ckpt_path=path)
    return model.train_steps


def module(folder: Path, **options: Any) -> ImageDataModule:
    return ImageDataModule(train=numbered(folder, 12), batch_size=2, image_size=8, num_threads=1, **options)


class Unsized(IterableDataset[int]):
    """20 numbers, which do not say how many they are."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


class Beside(ImageDataModule):
    """Twelve labelled images, again and again beside more data without labels."""

    other: torch.utils.data.Dataset[Any] = TensorDataset(torch.arange(34))

    def train_dataloader(self) -> Any:
        other: Any = DataLoader(self.other, batch_size=2)
        return CombinedLoader({"ours": super().train_dataloader(), "other": other}, "max_size_cycle")


class OfBoth(Tracking):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return super().training_step(batch["ours"], batch_idx)


def beside(folder: Path, **options: Any) -> Beside:
    return Beside(train=numbered(folder, 12), batch_size=2, image_size=8, num_threads=1, **options)


@pytest.mark.usefixtures("_ahead")
@pytest.mark.parametrize("repeats", [1, 3])
def test_the_shorter_of_two_loaders_begins_again(tmp_path: Path, repeats: int) -> None:
    """17 steps an epoch, of which 6 are a pass: each is whole, has an order and pixels of its own, and is resumed."""
    recipe, save = TrainRecipe(repeats=repeats), SaveEverywhere(tmp_path)
    steps = fitted(OfBoth(), beside(tmp_path, train_recipe=recipe), tmp_path, save)
    assert len(steps) == 34
    assert len({pixels for _, _, pixels in steps}) == 34
    usual = fitted(Tracking(), module(tmp_path, train_recipe=recipe), tmp_path)
    assert steps[:6] == usual[:6]
    assert steps[17:23] == usual[6:]
    if repeats == 1:
        passes = [steps[i : i + 6] for i in (0, 6, 17, 23)]
        assert all(sorted(sum((labels for _, labels, _ in of_pass), [])) == list(range(12)) for of_pass in passes)
    for hook, path, done in save.saved:
        if done not in (1, 6, 7, 12, 17, 23, 33):
            continue
        resumed = fitted(OfBoth(), beside(tmp_path, train_recipe=recipe), tmp_path, ckpt_path=path)
        assert resumed == steps[done:], (hook, done)


def test_beside_data_of_unknown_length(tmp_path: Path) -> None:
    """The Trainer fetches a batch ahead of its counters."""
    sized = fitted(OfBoth(), beside(tmp_path), tmp_path)
    data = beside(tmp_path)
    data.other = Unsized()
    assert fitted(OfBoth(), data, tmp_path) == sized[:10] + sized[17:27]


class Looks(pl.Callback):
    """Goes over the training data itself in a hook, as who computes statistics or a memory bank does."""

    def __init__(self, hook: str, batches: int | None) -> None:
        self.seen: list[int] = []
        self._batches = batches
        setattr(self, hook, self._look)

    def _look(self, trainer: pl.Trainer, model: pl.LightningModule) -> None:
        loader: Any = trainer.train_dataloader
        self.seen.append(0)
        for step, (images, _) in enumerate(loader):
            if step == self._batches:
                break
            self.seen[-1] += len(images)


@pytest.mark.parametrize("batches", [None, 2])
@pytest.mark.parametrize("limit", [1.0, 3])
@pytest.mark.parametrize("hook", ["on_train_epoch_start", "on_train_epoch_end"])
def test_callbacks_have_whole_passes(tmp_path: Path, hook: str, limit: float, batches: int | None) -> None:
    usual = fitted(Tracking(), module(tmp_path), tmp_path, limit_train_batches=limit)
    looks, save = Looks(hook, batches), SaveEverywhere(tmp_path)
    assert fitted(Tracking(), module(tmp_path), tmp_path, looks, save, limit_train_batches=limit) == usual
    assert looks.seen == [12 if batches is None else 4] * 2
    for at, path, done in save.saved:
        again = Looks(hook, batches)
        resumed = fitted(Tracking(), module(tmp_path), tmp_path, again, limit_train_batches=limit, ckpt_path=path)
        assert resumed == usual[done:], (at, done)


class Fetches(Tracking):
    """Lightning's other kind of step."""

    def training_step(self, dataloader_iter: Iterator[Any]) -> torch.Tensor:  # type: ignore[override]
        return super().training_step(next(dataloader_iter)[0], 0)


@pytest.mark.usefixtures("_ahead")
def test_a_step_that_fetches_its_batch_misses_none(tmp_path: Path) -> None:
    usual = fitted(Tracking(), module(tmp_path), tmp_path)
    save = SaveEverywhere(tmp_path)
    assert fitted(Fetches(), module(tmp_path), tmp_path, save) == usual
    for hook, path, done in save.saved:
        assert fitted(Fetches(), module(tmp_path), tmp_path, ckpt_path=path) == usual[done:], (hook, done)


def test_what_is_decoded_ahead_is_of_the_pass_that_comes_next(tmp_path: Path) -> None:
    """As many passes an epoch as the one before had."""
    data = module(tmp_path).setup_for("cpu")
    loader = data.train_dataloader()
    at = (0, 0)
    loader._locate = lambda: at
    guessed = []
    for located in [(0, 0), (0, 6), (0, 12), (1, 0), (1, 6), (1, 12), (2, 0), (3, 0)]:
        at = located
        assert len(list(loader)) == 6
        guessed.append(loader._orders[0].place)
    # The first epoch's further passes are a surprise, and so is that the third has none.
    places = [Place(1, 0), Place(1, 0), Place(1, 0), Place(1, 0, cycle=1), Place(1, 0, cycle=2), Place(2, 0)]
    assert guessed == [*places, Place(2, 0, cycle=1), Place(4, 0)]
    data.teardown("fit")
