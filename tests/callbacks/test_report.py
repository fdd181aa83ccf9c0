"""The callback inside a Trainer: where it writes, what it collects, errors of the fit and its own, several ranks."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pynvml
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from lightning_gpuaug.callbacks import GpuUtilization, Report, Throughput, gpu_utilization, report
from lightning_gpuaug.callbacks.report import write_report
from lightning_gpuaug.callbacks.run_record import DoctorRecord, RunRecord, ThroughputRecord, read_records
from tests.callbacks.fake_nvml import GPU, FakeNvml
from tests.callbacks.test_gpu_utilization import Module, data, install
from tests.callbacks.test_throughput import trainer
from tests.ddp import LeavesItsGroup

pytestmark = [
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


class Measured(pl.Callback):
    """Someone's callback with something to report."""

    def run_record(self) -> DoctorRecord:
        return DoctorRecord("It is the disk.", "read")


class Confused(pl.Callback):
    def run_record(self) -> ThroughputRecord:
        raise ZeroDivisionError("no steps")


def fit(folder: Path, *callbacks: pl.Callback, step_seconds: float = 0.005, **arguments: Any) -> pl.Trainer:
    run = trainer(**{
        "max_epochs": 1, "log_every_n_steps": 5, "callbacks": list(callbacks), "default_root_dir": str(folder),
        **arguments,
    })  # fmt: skip
    run.fit(Module(step_seconds), data(20))
    return run


def test_all_that_the_callbacks_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeNvml())
    written = Report(str(tmp_path / "run"))
    # The report comes first in the list and still has what the others measured to the end.
    fit(tmp_path, written, Measured(), GpuUtilization(0.1), step_seconds=0.02)
    assert written.path == tmp_path / "run" / "report.html"
    text = written.path.read_text()
    [one] = read_records(tmp_path / "run")
    assert one.doctor == DoctorRecord("It is the disk.", "read")
    assert "It is the disk." in text
    assert one.gpu is not None
    assert one.gpu.mean["utilization_pct"] == 93
    assert "NVIDIA H200" in text
    assert (one.rank, one.world_size, one.device, one.error, one.notes) == (0, 1, "cpu", None, [])
    assert 0 < one.finished - one.started < 60
    assert one.settings["model"] == "Module"
    assert one.settings["data"] == "DataLoader"
    assert one.settings["optimizer steps"] == "20"
    assert (one.settings["batch_size"], one.settings["num_workers"]) == ("2", "0")
    assert one.environment["torch"] == torch.__version__.split("+")[0]
    assert "cores for this process" in one.environment["CPU"]


@pytest.mark.skipif(not hasattr(Throughput, "run_record"), reason="Throughput hands over no record")
def test_throughput_is_in_it(tmp_path: Path) -> None:
    written = Report(str(tmp_path))
    fit(tmp_path, Throughput(warmup_batches=2), written)
    [one] = read_records(tmp_path)
    assert one.throughput is not None
    assert one.throughput.images == 40
    assert written.path is not None
    assert "Images per second" in written.path.read_text()


def test_it_is_written_beside_the_logs(tmp_path: Path) -> None:
    written = Report()
    fit(tmp_path, written, logger=CSVLogger(tmp_path, "logs"))
    assert written.path == tmp_path / "logs" / "version_0" / "report.html"
    assert written.path.exists()


def test_without_a_logger_it_is_written_into_the_root_folder_anew_each_time(tmp_path: Path) -> None:
    written = Report()
    run = fit(tmp_path, written)
    [first] = read_records(tmp_path)
    run.fit_loop.max_epochs = 2
    run.fit(Module(), data(20))
    [second] = read_records(tmp_path)
    assert second.run_id != first.run_id
    assert second.settings["optimizer steps"] == "40"


def test_validation_is_listed_and_the_sanity_check_is_not(tmp_path: Path) -> None:
    class Validated(Module):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            pass

    run = trainer(max_epochs=3, callbacks=[Report(str(tmp_path))], num_sanity_val_steps=2)
    run.fit(Validated(), data(4), data(2))
    [one] = read_records(tmp_path)
    assert [span.name for span in one.spans] == ["validation"] * 3
    assert all(one.started <= span.start <= span.end <= one.finished for span in one.spans)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_a_fit_that_is_ended_has_its_page(kind: type[BaseException], tmp_path: Path) -> None:
    class Ends(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
            if trainer.global_step == 7:
                raise kind("out of\nmemory")

    written = Report(str(tmp_path))
    with pytest.raises(RuntimeError if kind is RuntimeError else SystemExit):
        fit(tmp_path, Measured(), written, Ends())
    [one] = read_records(tmp_path)
    assert one.error == f"{kind.__name__}: out of memory"
    assert one.settings["optimizer steps"] == "7"
    assert written.path is not None
    assert "out of memory" in written.path.read_text()


def test_no_report_where_nothing_is_kept(tmp_path: Path) -> None:
    written = Report(str(tmp_path / "run"))
    fit(tmp_path, written, fast_dev_run=True)
    assert written.path is None
    run = trainer(callbacks=[Report(str(tmp_path / "run"))])

    class Validated(Module):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise RuntimeError("not a fit")

    with pytest.raises(RuntimeError, match="not a fit"):
        run.validate(Validated(), data(2), verbose=False)
    assert not (tmp_path / "run").exists()


def test_an_error_before_the_next_fit_leaves_the_page_of_the_last_one(tmp_path: Path) -> None:
    class Refuses(pl.Callback):
        refuses = False

        def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
            if self.refuses:
                raise ValueError("not this time")

    refusing = Refuses()
    run = fit(tmp_path, refusing, Report(str(tmp_path)))
    refusing.refuses = True
    with pytest.raises(ValueError, match="not this time"):
        run.fit(Module(), data(4))
    assert read_records(tmp_path)[0].error is None


def test_a_callback_without_a_record_costs_its_section_alone(tmp_path: Path) -> None:
    fit(tmp_path, Confused(), Measured(), Report(str(tmp_path)))
    [one] = read_records(tmp_path)
    assert one.notes == ["Confused has no record: ZeroDivisionError: no steps"]
    assert one.throughput is None
    assert one.doctor is not None
    assert "ZeroDivisionError: no steps" in (tmp_path / "report.html").read_text()


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(UserWarning, match=r"Report: .*(FileExistsError|NotADirectoryError|FileNotFoundError)") as caught:
        fit(tmp_path, Report(str(blocked)))
    assert len([warning for warning in caught if "Report" in str(warning.message)]) == 2  # the record, the page

    def broken(records: list[RunRecord]) -> str:
        raise KeyError("rank")

    monkeypatch.setattr(report, "page", broken)
    with pytest.warns(UserWarning, match="report.html could not be written: KeyError: 'rank'"):
        fit(tmp_path, Report(str(tmp_path)))
    monkeypatch.undo()
    assert write_report(tmp_path).exists()  # the records are there: it can be made later


# ---- several ranks --------------------------------------------------------------------------------------------------


class OwnGpu(pl.Callback):
    """In each process: another temperature, and no power reading on rank 1."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        rank = trainer.global_rank
        fake = FakeNvml(
            {"nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_NOT_SUPPORTED} if rank else {},
            answers={"nvmlDeviceGetTemperature": lambda handle, sensor: 50 + 20 * rank},
        )
        gpu_utilization._names = lambda device: [GPU]
        gpu_utilization.nvml.load = lambda: fake  # type: ignore[assignment, return-value]


def test_two_ranks_log_the_mean_of_those_that_know_and_share_a_page(tmp_path: Path) -> None:
    run = trainer(
        max_epochs=1, devices=2, strategy="ddp_spawn", logger=CSVLogger(tmp_path, "", ""), log_every_n_steps=30,
        callbacks=[LeavesItsGroup(), OwnGpu(), GpuUtilization(0.1), Report()],
    )  # fmt: skip
    run.fit(Module(step_seconds=0.03), data(120))
    [written] = tmp_path.rglob("metrics.csv")
    rows = [row for row in csv.DictReader(written.read_text().splitlines()) if row.get("gpu/temperature_c")]
    assert rows
    assert [float(row["gpu/temperature_c"]) for row in rows] == pytest.approx([60.0] * len(rows))
    assert [float(row["gpu/power_w"]) for row in rows] == pytest.approx([512.345] * len(rows))
    records = read_records(written.parent)
    assert [(one.rank, one.world_size) for one in records] == [(0, 2), (1, 2)]
    assert [one.gpu.mean["temperature_c"] for one in records if one.gpu] == [50, 70]
    assert records[1].gpu is not None
    assert records[1].gpu.notes == ["power: Not Supported"]
    text = (written.parent / "report.html").read_text()
    assert re.search(r"power: Not Supported \(rank 1\)", text)
    assert text.count('data-label="rank 1"') >= 10
