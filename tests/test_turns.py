"""Batches are made while the training thread rests, where the loop says when that is."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from lightning_gpuaug import ImageDataModule, turns
from lightning_gpuaug.turns import Turns
from tests.images import numbered


class Waiter:
    """A thread that waits for its turn."""

    def __init__(self, shared: Turns) -> None:
        self._came = threading.Event()
        self._thread = threading.Thread(target=lambda: (shared.wait(), self._came.set()))
        self._thread.start()

    def came(self, within: float) -> bool:
        return self._came.wait(within)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(turns, "_PATIENCE", 30.0)
    return Turns()


def test_nobody_waits_for_a_loop_that_says_nothing(patient: Turns) -> None:
    patient.work()
    assert Waiter(patient).came(5)


@pytest.mark.parametrize("end", ["rest", "hurry"])
def test_work_is_waited_for(patient: Turns, end: str) -> None:
    patient.rest()
    assert Waiter(patient).came(5)
    patient.work()
    waiter = Waiter(patient)
    assert not waiter.came(0.1)
    getattr(patient, end)()
    assert waiter.came(5)


def test_patience_ends_and_so_does_waiting_for_turns_that_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PATIENCE", 0.01)
    shared = Turns()
    shared.rest()
    for _ in range(3):
        shared.work()
        shared.wait()
    monkeypatch.setattr(turns, "_PATIENCE", 30.0)
    shared.work()
    assert Waiter(shared).came(5)
    shared.rest()  # it does say so, after all
    shared.work()
    waiter = Waiter(shared)
    assert not waiter.came(0.1)
    shared.rest()
    assert waiter.came(5)


def test_one_that_comes_makes_up_for_those_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PATIENCE", 0.01)
    shared = Turns()
    shared.rest()
    for _ in range(4):  # in turns: missed twice, then there
        for _ in range(2):
            shared.work()
            shared.wait()
        shared.rest()
        shared.wait()
    monkeypatch.setattr(turns, "_PATIENCE", 30.0)
    shared.work()
    waiter = Waiter(shared)
    assert not waiter.came(0.1)
    shared.rest()
    assert waiter.came(5)


class Net(pl.LightningModule):
    """Notes how many batches the loader had made when its backward pass began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.made: list[tuple[int, int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        time.sleep(0.02)
        self._loader = self.trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
        self._before = self._loader.timings.batches
        return self.layer(batch[0].flatten()[:1]).sum()  # type: ignore[no-any-return]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass

    def on_after_backward(self) -> None:
        time.sleep(0.3)
        self.made.append((self._before, self._loader.timings.batches))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def test_a_trainers_backward_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_PATIENCE", 30.0)
    data = ImageDataModule(numbered(tmp_path, 32), batch_size=4, image_size=8, num_threads=1, seed=0)
    net = Net()

    class Ahead(pl.Callback):
        def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            data.train_dataloader()._ahead = True  # as on a GPU

    trainer = pl.Trainer(
        max_steps=6, accelerator="cpu", logger=False, callbacks=[Ahead()], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(net, datamodule=data)
    # One a step, in its backward pass: those that were not there before it are there after it.
    assert [after - before for before, after in net.made[1:]] == [1] * 5
