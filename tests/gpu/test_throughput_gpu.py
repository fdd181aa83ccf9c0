"""On a GPU: the callback never synchronises, and its data wait is the GPU's idle time, not the host's."""

from __future__ import annotations

import csv
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor

from lightning_gpuaug.callbacks import Throughput

pytestmark = [
    pytest.mark.gpu,
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


def cycles_per_second() -> float:
    """Of the counter that `torch.cuda._sleep` counts; clocks are up after the first half."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(200_000_000)
    start.record()
    torch.cuda._sleep(200_000_000)
    end.record()
    torch.cuda.synchronize()
    return 200_000_000 / (start.elapsed_time(end) / 1000.0)


class Loader:
    """The same batch on the GPU again and again; each takes the host `seconds` to get."""

    def __init__(self, batches: int, seconds: float) -> None:
        self.batches, self.seconds = batches, seconds
        self.batch = torch.ones(32, 4, device="cuda")

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Tensor]:
        for _ in range(self.batches):
            time.sleep(self.seconds)
            yield self.batch


class Busy(pl.LightningModule):
    """Keeps the GPU busy for `cycles` a step."""

    def __init__(self, cycles: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.cycles = cycles

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        torch.cuda._sleep(self.cycles)
        loss: Tensor = self.layer(batch).mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(callback: Throughput, step_seconds: float, load_seconds: float, batches: int = 60) -> None:
    """Train one epoch of steps that keep the GPU busy for `step_seconds` each."""
    cycles = int(cycles_per_second() * step_seconds)
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_epochs=1, logger=False, callbacks=[callback], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=10,
    )  # fmt: skip
    trainer.fit(Busy(cycles), Loader(batches, load_seconds))
    torch.cuda.synchronize()


def test_slow_data_starves_the_gpu_by_the_known_share() -> None:
    callback = Throughput()
    fit(callback, step_seconds=0.010, load_seconds=0.030)
    summary = callback.summary()
    assert summary.step_ms is not None
    assert summary.data_wait_fraction is not None
    assert summary.img_per_s_device is not None
    # The host sleeps while the GPU still works on the step before: what is left of the sleep is idleness.
    assert summary.step_ms == pytest.approx(31.0, abs=3.0)
    assert summary.data_wait_fraction == pytest.approx(1.0 - 10.0 / summary.step_ms, abs=0.06)
    assert summary.img_per_s_device == pytest.approx(32 * 1000.0 / summary.step_ms, rel=0.01)


@pytest.mark.parametrize("load_seconds", [0.0, 0.008])
def test_data_that_comes_while_the_gpu_is_busy_is_no_wait(load_seconds: float) -> None:
    # With 8 ms of loading under 20 ms of work the host does wait in next(), and the GPU does not.
    callback = Throughput()
    fit(callback, step_seconds=0.020, load_seconds=load_seconds)
    summary = callback.summary()
    assert summary.data_wait_fraction is not None
    assert summary.data_wait_fraction < 0.02
    assert summary.step_ms == pytest.approx(20.0, rel=0.1)


class Guarded(Throughput):
    """Every hook of the training path runs where a synchronising call raises."""

    def _guard(self, hook: Any, *args: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            hook(*args)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def on_train_epoch_start(self, *args: Any) -> None:
        self._guard(super().on_train_epoch_start, *args)

    def on_train_batch_start(self, *args: Any) -> None:
        self._guard(super().on_train_batch_start, *args)

    def on_train_batch_end(self, *args: Any) -> None:
        self._guard(super().on_train_batch_end, *args)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_the_training_path_never_synchronises(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    running: list[bool] = []

    def count(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            if running:
                calls.append(f"{owner.__name__}.{name}")
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    class Watched(Guarded):
        def on_train_start(self, *args: Any) -> None:
            super().on_train_start(*args)
            running.append(True)

        def on_train_end(self, *args: Any) -> None:
            running.clear()
            super().on_train_end(*args)

    count(torch.cuda, "synchronize")
    count(torch.cuda.Event, "synchronize")
    count(torch.cuda.Stream, "synchronize")
    callback = Watched(log_every_n_steps=1)
    fit(callback, step_seconds=0.005, load_seconds=0.0, batches=40)
    assert calls == []
    assert callback.summary().images == 40 * 32


def test_what_a_step_asks_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def count(name: str) -> None:
        original = getattr(torch.cuda.Event, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(torch.cuda.Event, name, counted)

    class Counted(Throughput):
        while_training: Counter[str]

        def on_train_start(self, *args: Any) -> None:
            super().on_train_start(*args)
            calls.clear()

        def on_train_end(self, *args: Any) -> None:
            self.while_training = calls.copy()
            super().on_train_end(*args)

    for name in ("record", "elapsed_time", "query"):
        count(name)
    callback = Counted(log_every_n_steps=10, warmup_batches=0)
    fit(callback, step_seconds=0.005, load_seconds=0.0, batches=60)
    assert callback.while_training["record"] == 3 * 60  # asked for, in hand, done
    assert 0 < callback.while_training["elapsed_time"] <= 2 * 60  # a batch's time and its wait
    assert callback.while_training["query"] <= 6 * 8  # a log
    # Not the mean: with no warm-up it holds the first step, in which CUDA loads its kernels.
    assert callback.summary().step_ms_p50 == pytest.approx(5.0, rel=0.2)


class RankedData(pl.LightningDataModule):
    """Batches made in each process, on its own GPU."""

    def train_dataloader(self) -> Loader:
        return Loader(60, 0.0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_report_their_sum(tmp_path: Path) -> None:
    trainer = pl.Trainer(
        accelerator="gpu", devices=2, strategy="ddp_spawn", max_epochs=1, logger=CSVLogger(tmp_path, "", ""),
        callbacks=[Throughput()], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        log_every_n_steps=20,
    )  # fmt: skip
    trainer.fit(Busy(20_000_000), datamodule=RankedData())
    [written] = tmp_path.rglob("metrics.csv")
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert [float(row["throughput/images"]) for row in rows] == [2 * 32 * steps for steps in (20, 40, 60)]
    device, total = (float(rows[-1][f"throughput/img_per_s_{name}"]) for name in ("device", "global"))
    assert total == pytest.approx(2 * device, rel=0.1)
