"""`Report`: one HTML page about a fit, from what the other callbacks measured."""

from __future__ import annotations

import socket
import time
import uuid
from pathlib import Path

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from lightning_gpuaug.callbacks.idle_hooks import leave_out_idle_hooks
from lightning_gpuaug.callbacks.report_page import page
from lightning_gpuaug.callbacks.run_record import (
    DoctorRecord,
    GpuRecord,
    Recorded,
    RunRecord,
    Section,
    Span,
    ThroughputRecord,
    read_records,
)
from lightning_gpuaug.callbacks.surroundings import settings, surroundings

_MAX_SPANS = 500
"""Validations that a record lists; more are not told apart on a page."""


class Report(pl.Callback):
    """Write `report.html` at the end of a fit: throughput, GPUs, waiting, verdict, versions, as charts and tables.

    The page is one file that needs no network and no server. It shows what the trainer's other callbacks measured:
    `Throughput`, `GpuUtilization`, `InputDoctor`; each is left out where the callback is not there. The order of the
    callbacks does not matter.

    Every rank writes its numbers to `run_record/rank<rank>.json` beside the page (plain JSON, see
    `lightning_gpuaug.callbacks.run_record`), and rank 0 makes the page of all that it can read there; ranks without a
    common file system are named as missing. A fit that ends with an exception or Ctrl-C gets its page too. Nothing is
    written in a `fast_dev_run`. The report never breaks a run: what goes wrong with it is a warning.

    Args:
        folder: where to write; None takes the folder of the trainer's logger (`trainer.log_dir`).
    """

    def __init__(self, folder: str | None = None) -> None:
        """Nothing is written before the end of a fit."""
        self.folder = folder
        self._target: Path | None = None
        self._due = False  # a fit is on its way and has no page yet
        self._run_id = ""
        self._started = 0.0
        self._spans: list[Span] = []
        self._validation_started: float | None = None
        leave_out_idle_hooks(self)

    @property
    def path(self) -> Path | None:
        """The page of this fit, existing or to come; None before a fit and in a `fast_dev_run`."""
        return None if self._target is None else self._target / "report.html"

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Agree with the other ranks on where to write."""
        if stage != "fit":
            return
        self._target, self._due = None, False
        self._spans.clear()
        self._started = time.time()
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        folder = self.folder or trainer.log_dir or trainer.default_root_dir
        self._target = Path(trainer.strategy.broadcast(folder))
        self._run_id = trainer.strategy.broadcast(uuid.uuid4().hex)
        self._due = True

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The time axis begins here."""
        self._started = time.time()
        self._spans.clear()  # of the sanity check

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is shaded."""
        self._validation_started = time.time()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is over."""
        if self._validation_started is not None and len(self._spans) < _MAX_SPANS:
            self._spans.append(Span("validation", self._validation_started, time.time()))
        self._validation_started = None

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write this rank's record, wait for the others', make the page."""
        if not self._due:
            return
        self._due = False
        self._write_record(trainer, pl_module, None)
        trainer.strategy.barrier("gpuaug_report")
        self._write_page(trainer)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Write this rank's record and make the page of what there is. Waits for nobody."""
        if not self._due:
            return
        self._due = False
        message = " ".join(f"{type(exception).__name__}: {exception}".split()).removesuffix(":")
        self._write_record(trainer, pl_module, message[:300])
        self._write_page(trainer)

    def _write_record(self, trainer: pl.Trainer, pl_module: pl.LightningModule, error: str | None) -> None:
        assert self._target is not None
        try:
            self._record(trainer, pl_module, error).write(self._target)
        except Exception as problem:
            rank_zero_warn(f"Report: no record of rank {trainer.global_rank}: {type(problem).__name__}: {problem}")

    def _write_page(self, trainer: pl.Trainer) -> None:
        assert self._target is not None
        if not trainer.is_global_zero:
            return
        try:
            path = write_report(self._target, self._run_id)
        except Exception as problem:
            rank_zero_warn(f"Report: {self.path} could not be written: {type(problem).__name__}: {problem}")
        else:
            rank_zero_info(f"Report: {path}")

    def _record(self, trainer: pl.Trainer, pl_module: pl.LightningModule, error: str | None) -> RunRecord:
        sections, notes = _sections(trainer)
        device = trainer.strategy.root_device
        return RunRecord(
            run_id=self._run_id,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            host=socket.gethostname(),
            device=str(device),
            started=self._started,
            finished=time.time(),
            error=error,
            settings=settings(trainer, pl_module),
            environment=surroundings(device),
            spans=list(self._spans),
            notes=notes,
            throughput=next((part for part in sections if isinstance(part, ThroughputRecord)), None),
            gpu=next((part for part in sections if isinstance(part, GpuRecord)), None),
            doctor=next((part for part in sections if isinstance(part, DoctorRecord)), None),
        )


def write_report(folder: Path, run_id: str | None = None) -> Path:
    """Make `report.html` from the records in `folder`, as `Report` does at the end of a fit; returns its path.

    Args:
        folder: of the run; has a folder `run_record`.
        run_id: of the fit; None takes the newest.

    Raises:
        FileNotFoundError: there are no records.
        ValueError: a file there is not a run record.
    """
    path = folder / "report.html"
    path.write_text(page(read_records(folder, run_id)), encoding="utf-8")
    return path


def _sections(trainer: pl.Trainer) -> tuple[list[Section], list[str]]:
    """What the callbacks have to say, and which of them failed to."""
    sections: list[Section] = []
    notes: list[str] = []
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if not isinstance(callback, Recorded):
            continue
        try:
            section = callback.run_record()
        except Exception as problem:
            notes.append(f"{type(callback).__name__} has no record: {type(problem).__name__}: {problem}")
        else:
            sections += [] if section is None else [section]
    return sections, notes
