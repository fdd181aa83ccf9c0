"""The callback's own decisions: when it looks, what it says and how often, what it survives."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor

from lightning_gpuaug.callbacks import InputDoctor, Throughput, input_doctor
from lightning_gpuaug.callbacks.verdict import Knob, Probe
from tests.callbacks.simulated_time import Loader, SimulatedTime


class Module(pl.LightningModule):
    """A step takes 0.1 s."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        SimulatedTime.now += 0.1
        return self.layer(batch["x"]).mean()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Rows(pl.loggers.Logger):
    """Keeps what it is given."""

    name = version = "rows"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, metrics))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def _simulated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    SimulatedTime.now = 0.0
    monkeypatch.setattr(input_doctor, "HostClock", SimulatedTime)
    monkeypatch.setattr(input_doctor, "time", SimpleNamespace(perf_counter=lambda: SimulatedTime.now))


def fit(doctor: InputDoctor, wait: float, batches: int = 60, *others: pl.Callback, **options: Any) -> Rows:
    rows = Rows()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=rows, callbacks=[doctor, *others], enable_progress_bar=False,
        enable_checkpointing=False, enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(Module(), Loader([4] * batches, wait))
    return rows


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.message.startswith("InputDoctor: ")]


def test_waits_are_told_once_and_logged_at_every_check_up(caplog: pytest.LogCaptureFixture) -> None:
    doctor = InputDoctor(every_n_batches=20, batches=4)
    with caplog.at_level(logging.INFO, logger="lightning.pytorch.utilities.rank_zero"):
        rows = fit(doctor, wait=0.3)
    logged = [(step, row) for step, row in rows.rows if "doctor/img_per_s" in row]
    assert [step for step, _ in logged] == [25, 51]  # 20 batches, 6 of a check-up; again
    for _, row in logged:
        assert row["doctor/img_per_s"] == pytest.approx(10.0)
        assert row["doctor/img_per_s_without_input"] == pytest.approx(40.0)
        assert row["doctor/lost_fraction"] == pytest.approx(0.75)
        assert row["doctor/lost_input"] == pytest.approx(0.75)
        assert row["doctor/expected_gain"] == pytest.approx(3.0)
    assert told(caplog) == [
        "InputDoctor: input-bound: which setting helps is not known; that can give up to +300% "
        "(10 → 40 img/s, as without the input pipeline)."
    ]
    record = doctor.run_record()
    assert record is not None
    assert (record.bound_by, record.knob, record.lost["input"]) == ("input", None, pytest.approx(0.75))
    assert any("No batches were laid in (a Loader may notice" in note for note in record.details)


def test_a_probe_that_fails_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Probe:
        raise OSError("no more processes")

    doctor = InputDoctor(every_n_batches=20, batches=4)
    monkeypatch.setattr(doctor, "_ask", fail)
    fit(doctor, wait=0.3)
    assert doctor.verdict is not None
    assert "The probes failed: OSError: no more processes" in doctor.verdict.notes


def test_the_probes_are_asked_once_and_only_where_something_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(trainer: Any, check: Any, batch: Any) -> Probe:
        asked.append(check)
        return Probe({"decode": 1.0}, [Knob("num_threads", "1", "2", speed_up=2.0)])

    for wait, times in ((0.3, 1), (0.0, 0)):
        asked.clear()
        doctor = InputDoctor(every_n_batches=20, batches=4)
        monkeypatch.setattr(doctor, "_ask", answer)
        fit(doctor, wait)
        assert len(asked) == times
        assert doctor.verdict is not None
        assert doctor.verdict.cause == ("decode" if times else "model")
    doctor = InputDoctor(every_n_batches=20, batches=4, probe_seconds=0)
    monkeypatch.setattr(doctor, "_ask", answer)
    fit(doctor, 0.3)
    assert not asked


def test_a_fit_that_is_too_short_says_so() -> None:
    with pytest.warns(UserWarning, match="InputDoctor found nothing: its first check-up comes after 20 batches"):
        fit(InputDoctor(every_n_batches=20, batches=4), 0.1, batches=25, log_every_n_steps=1)


def test_between_check_ups_nothing_is_watched() -> None:
    doctor = InputDoctor(every_n_batches=40, batches=4)
    seen: list[bool] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.append(doctor._watching)

    fit(doctor, 0.1, 60, Watch())
    assert seen.index(True) == 19  # for half of the way, 32 batches at most
    assert seen[45:] == [False] * 15


@pytest.mark.parametrize("order", [1, -1], ids=["doctor first", "doctor last"])
def test_throughput_leaves_a_check_up_out(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning_gpuaug.callbacks import throughput

    monkeypatch.setattr(throughput, "HostClock", SimulatedTime)

    class Rest(InputDoctor):
        def _begin(self, *args: Any) -> None:
            super()._begin(*args)
            SimulatedTime.now += 1000.0  # laying in, and probing

    doctor, counted = Rest(every_n_batches=20, batches=4), Throughput(warmup_batches=0)
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, callbacks=[doctor, counted][::order],
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False, log_every_n_steps=10,
    )  # fmt: skip
    trainer.fit(Module(), Loader([4] * 40, 0.3))
    summary = counted.summary()
    assert summary.images == 160
    assert summary.step_ms == pytest.approx(400.0)
    assert summary.data_wait_fraction == pytest.approx(0.75)
