"""The callback inside a Trainer: counts, exclusions, several ranks, resume, reports that arrive late."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger
from torch import Tensor

from lightning_gpuaug.callbacks import InputDoctor, Throughput, throughput
from lightning_gpuaug.callbacks.fetches import watch_fetches
from tests.callbacks.simulated_time import Loader, SimulatedTime
from tests.ddp import LeavesItsGroup

pytestmark = [
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


class Module(pl.LightningModule):
    """Someone's module: dict batches, 10 images per simulated second, or `step_seconds` a batch."""

    def __init__(self, step_seconds: float | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.step_seconds = step_seconds

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        SimulatedTime.now += len(batch["x"]) / 10 if self.step_seconds is None else self.step_seconds
        loss: Tensor = self.layer(batch["x"]).mean()
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        SimulatedTime.now += 1000.0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rows(Logger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    name = version = "rows"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, {key.removeprefix("throughput/"): value for key, value in metrics.items()}))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass

    def column(self, name: str) -> list[float]:
        return [row[name] for _, row in self.rows if name in row]


@pytest.fixture(autouse=True)
def _simulated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedTime.now = 0.0
    monkeypatch.setattr(throughput, "HostClock", SimulatedTime)


def trainer(**arguments: Any) -> pl.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    defaults = {"devices": 1, "logger": False, "log_every_n_steps": 1}
    return pl.Trainer(accelerator="cpu", **{**defaults, **quiet, **arguments})


def test_short_batches_sanity_check_and_validation() -> None:
    # 5 images in batches of 4, three epochs; 10 images per second; validation takes 1000 s each time.
    rows, callback = Rows(), Throughput(log_every_n_steps=1, warmup_batches=0)
    fit = trainer(max_epochs=3, logger=rows, callbacks=[callback], num_sanity_val_steps=2)
    fit.fit(Module(), Loader([4, 1]), Loader([2, 2]))
    assert rows.column("images") == [4, 5, 9, 10, 14, 15]
    assert rows.column("img_per_s_device") == pytest.approx([10.0] * 6)
    assert rows.column("img_per_s_global") == pytest.approx([10.0] * 6)
    assert rows.column("step_ms") == pytest.approx([400.0, 100.0] * 3)
    assert rows.column("data_wait_fraction") == pytest.approx([0.0] * 6)
    assert [step for step, row in rows.rows if "images" in row] == [0, 1, 2, 3, 4, 5]
    summary = callback.summary()
    assert (summary.images, summary.epochs) == (15, 3)
    assert summary.img_per_s_device == summary.img_per_s_global == pytest.approx(10.0)


def test_wait_inside_and_validation_within_the_epoch(tmp_path: Path) -> None:
    class Slow(ModelCheckpoint):
        def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
            super()._save_checkpoint(trainer, filepath)
            SimulatedTime.now += 500.0

    rows, callback = Rows(), Throughput(warmup_batches=0)
    slow = Slow(tmp_path, every_n_train_steps=3, save_top_k=-1)
    fit = trainer(max_epochs=2, logger=rows, callbacks=[callback, slow], val_check_interval=2, log_every_n_steps=4,
                  enable_checkpointing=True, num_sanity_val_steps=0)  # fmt: skip
    fit.fit(Module(), Loader([6] * 8, wait=0.2), Loader([1]))
    assert rows.column("images") == [24, 48, 72, 96]
    # A batch: 0.2 s of waiting and 0.6 s of work.
    assert rows.column("step_ms") == pytest.approx([800.0] * 4)
    assert rows.column("img_per_s_device") == pytest.approx([7.5] * 4)
    assert rows.column("data_wait_fraction") == pytest.approx([0.25] * 4)
    table = dict(callback.summary().rows())
    assert table == {
        "images/s, device": "7.5 img/s",
        "images/s, global": "7.5 img/s",
        "step time": "800.00 ms",
        "step time p50": "800.00 ms",
        "step time p95": "800.00 ms",
        "data wait": "0.250 of the time (0..1)",
        "images": "96",
        "epochs": "2",
        "not measured": "first 0 batches",
    }
    assert str(callback.summary()).splitlines()[2] == "step time         800.00 ms"


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_between_epochs_only_making_the_iterator_is_data_wait() -> None:
    class Restarting(Loader):
        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            SimulatedTime.now += 2.0  # starting workers, say
            return iter([{"x": torch.ones(size, 1)} for size in self.sizes])

    class Plots(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            SimulatedTime.now += 700.0

    # Two batches of 1 s an epoch; the first epoch's iterator is made before training starts.
    callback = Throughput(warmup_batches=0)
    trainer(max_epochs=3, callbacks=[callback, Plots()]).fit(Module(), Restarting([10, 10]))
    summary = callback.summary()
    assert summary.img_per_s_device == pytest.approx(60 / (6 + 2 * 2.0))
    assert summary.data_wait_fraction == pytest.approx(4 / 10)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_a_loader_without_length_that_is_made_anew_every_epoch() -> None:
    class Unsized:
        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            for _ in range(4):
                SimulatedTime.now += 0.25
                yield {"x": torch.ones(1, 1)}

    class Data(pl.LightningDataModule):
        def train_dataloader(self) -> Unsized:
            return Unsized()

    callback = Throughput(warmup_batches=0)
    fit = trainer(max_epochs=2, callbacks=[callback], reload_dataloaders_every_n_epochs=1, limit_val_batches=0)
    fit.fit(Module(step_seconds=0.75), datamodule=Data())
    # Lightning fetches one batch ahead; the first one of the first epoch before training begins.
    summary = callback.summary()
    assert summary.img_per_s_device == pytest.approx(8 / (8 * 0.75 + 7 * 0.25))
    assert summary.data_wait_fraction == pytest.approx(7 * 0.25 / (8 * 0.75 + 7 * 0.25))


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_accumulation_reports_once_a_step_and_warm_up_has_no_rates() -> None:
    rows, callback = Rows(), Throughput(log_every_n_steps=1, warmup_batches=4)
    fit = trainer(max_epochs=1, logger=rows, callbacks=[callback], accumulate_grad_batches=2, num_sanity_val_steps=0)
    fit.fit(Module(), Loader([5] * 7))
    assert rows.column("images") == [10, 20, 30, 35]
    assert [set(row) for _, row in rows.rows[:2]] == [{"images"}] * 2
    assert rows.column("img_per_s_device") == pytest.approx([10.0] * 2)
    assert rows.column("step_ms") == pytest.approx([1000.0, 500.0])
    assert callback.summary().step_ms == pytest.approx(750.0)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_fewer_batches_than_warm_up_give_no_figure() -> None:
    callback = Throughput()
    trainer(max_epochs=1, callbacks=[callback]).fit(Module(), Loader([5] * 2))
    summary = callback.summary()
    assert (summary.img_per_s_device, summary.img_per_s_global, summary.step_ms, summary.data_wait_fraction) == (
        None,
    ) * 4
    assert (summary.images, summary.warmup_batches) == (10, 10)
    assert "step time         not measured" in str(summary)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_resume_continues_images_and_epochs(tmp_path: Path) -> None:
    callback = Throughput(warmup_batches=0)
    fit = trainer(max_epochs=2, callbacks=[callback])
    fit.fit(Module(), Loader([4, 1]))
    fit.save_checkpoint(tmp_path / "two.ckpt")
    assert torch.load(tmp_path / "two.ckpt", weights_only=True)["callbacks"]["Throughput"] == {
        "images": 10,
        "epochs": 2,
    }
    resumed, rows = Throughput(log_every_n_steps=1, warmup_batches=0), Rows()
    trainer(max_epochs=3, callbacks=[resumed], logger=rows).fit(
        Module(), Loader([4, 1]), ckpt_path=tmp_path / "two.ckpt", weights_only=True
    )
    assert rows.column("images") == [14, 15]
    assert (resumed.summary().images, resumed.summary().epochs) == (15, 3)
    # A fit from the start starts from nothing.
    trainer(max_epochs=1, callbacks=[resumed]).fit(Module(), Loader([4, 1]))
    assert (resumed.summary().images, resumed.summary().epochs) == (5, 1)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
def test_a_batch_without_tensors_warns_once_counted_as_nothing() -> None:
    class Strings(Loader):
        def __iter__(self) -> Iterator[Any]:
            return iter([["a", "b"]])

    class Reader(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.layer(torch.ones(2, 1)).mean()  # type: ignore[no-any-return]

    callback = Throughput(warmup_batches=0)
    with pytest.warns(UserWarning, match="no tensor in a batch of type list"):
        trainer(max_epochs=1, callbacks=[callback]).fit(Reader(), Strings([2]))
    assert callback.summary().images == 0


@pytest.mark.parametrize("arguments", [{"log_every_n_steps": 0}, {"warmup_batches": -1}])
def test_bad_arguments(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"^(log_every_n_steps|warmup_batches) must be .* got (0|-1)$"):
        Throughput(**arguments)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
@pytest.mark.parametrize("fails", [False, True])
def test_the_loop_is_given_back_also_after_an_exception(fails: bool) -> None:
    class Failing(Module):
        def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
            if fails:
                raise RuntimeError("out of luck")
            return super().training_step(batch, batch_idx)

    # As another callback that listens, InputDoctor is let go of in the same order as it came.
    fit = trainer(max_epochs=1, callbacks=[Throughput(), InputDoctor()])
    before = set(vars(fit.fit_loop.epoch_loop))
    expected = pytest.raises(RuntimeError, match="out of luck") if fails else pytest.warns(match="found nothing")
    with expected:
        fit.fit(Failing(), Loader([1]), Loader([1]))
    assert set(vars(fit.fit_loop.epoch_loop)) == before


class EpochLoop:
    """The part of Lightning's that is looked at."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.global_step = 0

    def _on_before_fetch(self) -> None:
        self.told.append("loop before")

    def _on_after_fetch(self) -> None:
        self.told.append("loop after")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_listeners_come_and_go_in_any_order(order: tuple[int, int]) -> None:
    loop = EpochLoop()
    run: Any = SimpleNamespace(fit_loop=SimpleNamespace(epoch_loop=loop))

    def fetch() -> list[str]:
        loop.told.clear()
        loop._on_before_fetch()
        loop._on_after_fetch()
        return list(loop.told)

    stops = [
        watch_fetches(run, lambda: loop.told.append("first asks")),
        watch_fetches(run, lambda: loop.told.append("second asks"), lambda: loop.told.append("second got")),
    ]
    assert fetch() == ["first asks", "second asks", "loop before", "loop after", "second got"]
    stops[order[0]]()
    if order[0] == 0:
        assert fetch() == ["second asks", "loop before", "loop after", "second got"]
    else:
        assert fetch() == ["first asks", "loop before", "loop after"]
    stops[order[1]]()
    assert fetch() == ["loop before", "loop after"]
    assert set(vars(loop)) == {"told", "global_step"}


class ByHand:
    """A callback driven through its hooks as rank 0 of several."""

    def __init__(self, world_size: int, is_global_zero: bool = True) -> None:
        self.rows, self.loop = Rows(), EpochLoop()
        self.callback = Throughput(log_every_n_steps=1, warmup_batches=0)
        self.trainer: Any = SimpleNamespace(
            strategy=SimpleNamespace(root_device=torch.device("cpu")), world_size=world_size, global_step=0,
            fit_loop=SimpleNamespace(epoch_loop=self.loop), loggers=[self.rows], is_global_zero=is_global_zero,
        )  # fmt: skip
        self.module: Any = None
        self.callback.setup(self.trainer, self.module, "fit")
        self.callback.on_train_start(self.trainer, self.module)
        self.callback.on_train_epoch_start(self.trainer, self.module)

    def step(self, rows: int) -> None:
        batch = torch.zeros(rows, 1)
        self.loop._on_before_fetch()
        self.callback.on_train_batch_start(self.trainer, self.module, batch, 0)
        SimulatedTime.now += rows / 10
        self.loop.global_step += 1
        self.callback.on_train_batch_end(self.trainer, self.module, None, batch, 0)


def test_four_ranks_at_ten_images_each_are_forty(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[Tensor] = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: sums.append(tensor.mul_(4)))
    ranks = [ByHand(4), ByHand(4, is_global_zero=False)]
    for rank in ranks:
        for rows in (4, 1):
            rank.step(rows)
        rank.callback.on_train_end(rank.trainer, rank.module)
    assert ranks[0].rows.column("img_per_s_device") == pytest.approx([10.0, 10.0])
    assert ranks[0].rows.column("img_per_s_global") == pytest.approx([40.0, 40.0])
    assert ranks[0].rows.column("images") == [16, 20]
    assert ranks[1].rows.rows == []  # one writer
    assert len(sums) == 2 * 3  # as many collectives on each rank
    assert ranks[0].callback.summary().img_per_s_global == pytest.approx(40.0)
    assert ranks[0].callback.state_dict()["images"] == 20


def test_a_sum_that_is_not_there_yet_is_logged_later_under_its_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late:
        arrived = False

        def __init__(self, values: tuple[float, ...], device: torch.device) -> None:
            self._values = values

        def ready(self) -> bool:
            return Late.arrived

        def values(self) -> list[float]:
            return list(self._values)

    monkeypatch.setattr(throughput, "RankSum", Late)
    rank = ByHand(1)
    rank.step(4)
    rank.step(2)
    assert rank.rows.rows == []
    Late.arrived = True
    rank.step(1)
    assert [step for step, _ in rank.rows.rows] == [0, 1, 2]
    assert rank.rows.column("images") == [4, 6, 7]


class RankedTime(pl.Callback):
    """In each process: simulated time, and the rank's own batches."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        throughput.HostClock = SimulatedTime  # type: ignore[misc, assignment]


class RankedData(pl.LightningDataModule):
    """Rank 0 gets batches of 4, rank 1 of 2, with a shorter last one."""

    def train_dataloader(self) -> Loader:
        return Loader([4, 4, 3] if self.trainer.global_rank == 0 else [2, 2, 1], wait=0.25)  # type: ignore[union-attr]

    def val_dataloader(self) -> Loader:
        return Loader([1])


def test_two_ranks_reduce_once_a_report_and_one_writes(tmp_path: Path) -> None:
    fit = trainer(
        max_epochs=2,
        devices=2,
        strategy="ddp_spawn",
        logger=CSVLogger(tmp_path, "", ""),
        log_every_n_steps=3,
        callbacks=[LeavesItsGroup(), RankedTime(), Throughput(warmup_batches=0)],
    )
    fit.fit(Module(step_seconds=0.75), datamodule=RankedData())
    [written] = tmp_path.rglob("metrics.csv")
    rows = [row for row in csv.DictReader(written.read_text().splitlines()) if row["throughput/images"]]
    assert [float(row["throughput/images"]) for row in rows] == [16, 32]
    assert [float(row["throughput/img_per_s_device"]) for row in rows] == pytest.approx([11 / 3] * 2)
    assert [float(row["throughput/img_per_s_global"]) for row in rows] == pytest.approx([16 / 3] * 2)
    assert [float(row["throughput/data_wait_fraction"]) for row in rows] == pytest.approx([0.25] * 2)
    assert [float(row["throughput/step_ms"]) for row in rows] == pytest.approx([1000.0] * 2)


def test_percentiles_of_optimizer_steps_and_the_record_of_the_run() -> None:
    # 20 steps of two accumulated batches; one step in twenty is slow.
    rows, callback = Rows(), Throughput(log_every_n_steps=10, warmup_batches=0)
    sizes = [1] * 38 + [40, 1]
    fit = trainer(max_epochs=1, logger=rows, callbacks=[callback], accumulate_grad_batches=2, num_sanity_val_steps=0)
    fit.fit(Module(), Loader(sizes), Loader([1]))
    assert rows.column("step_ms_p50") == pytest.approx([200.0, 200.0])
    assert rows.column("step_ms_p95") == pytest.approx([200.0, 4100.0])  # of ten, the largest
    summary = callback.summary()
    assert (summary.step_ms_p50, summary.step_ms_p95) == pytest.approx((200.0, 200.0))
    assert summary.gpu_starved_ms is None  # no GPU
    record = callback.run_record()
    assert record is not None
    assert (record.images, record.step_ms_p95) == (79, pytest.approx(200.0))
    assert record.timeline.columns["images"] == [20, 59]
    assert record.timeline.columns["steps"] == [10, 10]
    assert sum(record.timeline.columns["seconds"]) == pytest.approx(7.9)  # type: ignore[arg-type]
    assert record.step_ms_histogram is not None
    assert sum(record.step_ms_histogram.counts) == 20
    assert record.step_ms_histogram.edges[0] <= 200.0
    assert record.step_ms_histogram.edges[-1] >= 4100.0


def test_a_step_that_began_in_the_warm_up_is_no_step() -> None:
    # Four steps of four batches of 0.1 s, of which 0.025 s are waiting; the third began unmeasured.
    rows, callback = Rows(), Throughput(log_every_n_steps=1, warmup_batches=10)
    fit = trainer(max_steps=4, logger=rows, callbacks=[callback], accumulate_grad_batches=4, num_sanity_val_steps=0)
    fit.fit(Module(step_seconds=0.075), Loader([2] * 16, wait=0.025), Loader([1]))
    assert rows.column("img_per_s_device") == pytest.approx([20.0, 20.0])
    assert rows.column("step_ms") == pytest.approx([400.0])
    assert [step for step, row in rows.rows if "step_ms" in row] == [3]
    summary, record = callback.summary(), callback.run_record()
    assert summary.step_ms == summary.step_ms_p50 == pytest.approx(400.0)
    assert summary.img_per_s_device == pytest.approx(20.0)
    assert record is not None
    assert record.step_ms == pytest.approx(400.0)
    assert record.timeline.columns["images"] == [4, 8]
    assert record.timeline.columns["steps"] == [0, 1]
    assert record.timeline.columns["step_seconds"] == pytest.approx([0.0, 0.4])


def test_starvation_a_step_is_that_of_whole_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    callback = Throughput(warmup_batches=10)
    fit = trainer(max_steps=4, callbacks=[callback], accumulate_grad_batches=4, num_sanity_val_steps=0)
    fit.fit(Module(step_seconds=0.075), Loader([2] * 16, wait=0.025), Loader([1]))
    monkeypatch.setattr(callback, "_on_gpu", True)
    assert callback.summary().gpu_starved_ms == pytest.approx(100.0)


def test_a_paused_batch_is_not_measured() -> None:
    class Pausing(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: Any, index: int) -> None:
            if index == 2:
                callback.pause()
                SimulatedTime.now += 1000.0

    callback = Throughput(warmup_batches=0)
    fit = trainer(max_epochs=1, callbacks=[callback, Pausing()], num_sanity_val_steps=0)
    fit.fit(Module(), Loader([1] * 6), Loader([1]))
    assert callback.summary().step_ms == pytest.approx(100.0)
    assert callback.summary().images == 6
