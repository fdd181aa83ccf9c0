"""What the classifier says of its training steps: to the bit what `LightningModule.log` would say."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from lightning_gpuaug import Classifier
from tests.test_classifier import batches, trainer

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")


class Both(Classifier):
    """Also says it by `log`, under other names."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("by_log/loss", loss, batch_size=len(batch[0]))
        rate = torch.tensor(self.trainer.optimizers[0].param_groups[0]["lr"], dtype=torch.float64)
        self.log("by_log/lr", rate, batch_size=len(batch[0]))
        return loss


PAIRS = {"train/loss": "by_log/loss", "lr": "by_log/lr"}


class Compare(pl.Callback):
    """After each batch, whatever its number."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        metrics = trainer.callback_metrics
        for ours, theirs in PAIRS.items():
            assert metrics[ours].dtype == metrics[theirs].dtype
            assert torch.equal(metrics[ours], metrics[theirs])
        self.batches += 1


def rows(folder: Path, name: str) -> list[tuple[str, str, str]]:
    """(step, epoch, value) of a column, where it has one."""
    with open(folder / "logs" / "a" / "metrics.csv", newline="") as file:
        return [(row["step"], row["epoch"], row[name]) for row in csv.DictReader(file) if row.get(name)]


@pytest.mark.parametrize(
    ("every", "accumulated", "steps"), [(1, 1, range(15)), (4, 1, range(3, 15, 4)), (2, 2, range(1, 9, 2)), (0, 1, ())]
)
def test_callbacks_and_loggers_get_what_log_would_give(
    tmp_path: Path, every: int, accumulated: int, steps: range
) -> None:
    compare = Compare()
    data = batches([4, 4, 4, 4, 2])
    fit = trainer(
        max_epochs=3, callbacks=[compare], log_every_n_steps=every, accumulate_grad_batches=accumulated,
        logger=CSVLogger(tmp_path, "logs", "a"),
    )  # fmt: skip
    fit.fit(Both("test_resnet", num_classes=7, lr=0.01), data, data)
    assert compare.batches == 15
    for ours, theirs in PAIRS.items():
        for metrics in (fit.callback_metrics, fit.logged_metrics):
            assert torch.equal(metrics[ours], metrics[theirs])
        assert [int(step) for step, _, _ in rows(tmp_path, ours)] == list(steps)
        assert rows(tmp_path, ours) == rows(tmp_path, theirs)


class Stop(pl.Callback):
    """After the third step."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step == 3


class Own(Classifier):
    """A training step that says nothing."""

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])


class Manual(Both):
    """Steps by itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        optimizer = self.optimizers()
        optimizer.zero_grad()  # type: ignore[union-attr]
        self.manual_backward(loss)
        optimizer.step()  # type: ignore[union-attr]
        return loss


@pytest.mark.parametrize("case", ["stopped", "silent", "manual"])
def test_runs_that_stop_and_subclasses(tmp_path: Path, case: str) -> None:
    data, logger = batches([4, 4, 4, 4, 4]), CSVLogger(tmp_path, "logs", "a")
    callbacks = [Stop()] if case == "stopped" else []
    fit = trainer(max_epochs=1, log_every_n_steps=2, logger=logger, callbacks=callbacks)
    kind = {"stopped": Both, "silent": Own, "manual": Manual}[case]
    fit.fit(kind("test_resnet", num_classes=7, lr=0.01, scheduler="none"), data, data)
    if case == "silent":
        validated = [step for step, _, _ in rows(tmp_path, "val/loss")]
        assert [step for step, _, _ in rows(tmp_path, "epoch")] == validated == ["4"]
        return
    assert rows(tmp_path, "train/loss") == rows(tmp_path, "by_log/loss")
    assert [int(step) for step, _, _ in rows(tmp_path, "train/loss")] == ([1, 2] if case == "stopped" else [1, 3])
