"""`InputDoctor`: what a run would make without its input pipeline, what limits it, and which knob to turn."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader

from lightning_gpuaug.callbacks.batch_rows import batch_rows
from lightning_gpuaug.callbacks.clocks import CudaClock, HostClock
from lightning_gpuaug.callbacks.fetches import watch_fetches
from lightning_gpuaug.callbacks.idle_hooks import leave_out_idle_hooks
from lightning_gpuaug.callbacks.phases import PhaseClock, Phases
from lightning_gpuaug.callbacks.probe_workers import probe_workers
from lightning_gpuaug.callbacks.rank_sum import RankSum
from lightning_gpuaug.callbacks.run_record import DoctorRecord
from lightning_gpuaug.callbacks.stock import Stocker, fitting, is_own, stocker_of
from lightning_gpuaug.callbacks.throughput import Throughput
from lightning_gpuaug.callbacks.transfer import pinned_saves
from lightning_gpuaug.callbacks.verdict import WORTH_IT, CheckUp, Knob, Probe, Verdict, judge

_BASELINE = 32
"""Batches before a check-up that say how fast the run is."""


@dataclass(frozen=True)
class _Running:
    """A check-up under way.

    Attributes:
        first: number of the first stocked batch.
        count: batches laid in on each rank that could.
        stocked: batches that lay ready on this rank.
        baseline: what the batches before took.
        ahead: batches that the pipeline has made by itself meanwhile.
    """

    first: int
    count: int
    stocked: int
    baseline: Phases
    ahead: int


class InputDoctor(pl.Callback):
    """Find out what the input pipeline costs this run, what part of it is to blame, and which knob to turn.

    Every `every_n_batches` training batches there is a check-up. Training rests while the next `batches` batches are
    made and laid in, then trains on them without waiting for any: that is the run without its input pipeline. They are
    the run's own batches in their own order, each trained on once, so weights, random states, metrics and checkpoints
    are those of a run without this callback, to the bit.

    Where the time went is asked of short probes beside the training, during the first check-up that finds a loss:
    pipelines of their own, over the same data, with the same and with other settings. They take some seconds, once.

    The finding is told once, in one sentence, as a log line of rank 0, and it is the `verdict` of this callback. Logged
    at every check-up to the trainer's loggers:

    - `doctor/img_per_s` and `doctor/img_per_s_without_input`: of all ranks, as the run is and without its input.
    - `doctor/lost_fraction`: share of the time that the input pipeline costs, 0..1, and of it `doctor/lost_read`,
      `lost_decode`, `lost_augment`, `lost_transfer`, `lost_host` and, where the part is not known, `lost_input`.
    - `doctor/expected_gain`: what turning the knob gives, 0.4 for +40 %.

    Works with `ImageDataModule` and with torch's DataLoader, whose knobs are `num_workers`, `pin_memory`, or to switch.
    A DataLoader without workers, or with a sampler or a state of its own, is not asked for batches early, since that
    could change the run: there the figure without the input is the run without its waits, a lower bound. So it is with
    any other iterable, whose knobs are not known either.

    Args:
        every_n_batches: training batches between check-ups; the first comes after as many.
        batches: trained on without waiting at a check-up, rounded up to whole optimizer steps.
        probe_seconds: about how long to measure each setting that is tried; 0 tries none.
    """

    def __init__(self, every_n_batches: int = 200, batches: int = 8, probe_seconds: float = 1.0) -> None:
        """Check the arguments."""
        if every_n_batches < 4:
            raise ValueError(f"every_n_batches must be ≥ 4, got {every_n_batches!r}")
        if batches < 2:
            raise ValueError(f"batches must be ≥ 2, got {batches!r}")
        if probe_seconds < 0:
            raise ValueError(f"probe_seconds must be ≥ 0, got {probe_seconds!r}")
        self.every_n_batches = every_n_batches
        self.batches = batches
        self.probe_seconds = probe_seconds
        self.verdict: Verdict | None = None
        """What was found and told; None before the first check-up is done."""
        self._clock: PhaseClock[Any] | None = None
        self._watching = False
        self._stop_listening: Callable[[], None] | None = None
        self._running: _Running | None = None
        self._probe: Probe | None = None
        self._number = 0  # of the batch in hand, in this fit
        self._last = 0  # number of the batch at which the last check-up ended
        self._not_stocked: str | None = None
        self._epoch_began: float | None = None
        self._starts: list[float] = []  # seconds from the beginning of an epoch to its first batch
        self._ordinary_again = 0  # number of the first batch for which the pipeline has had no rest
        leave_out_idle_hooks(self)

    # ---- hooks ---------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Choose the clock."""
        device = trainer.strategy.root_device
        clock = CudaClock(device) if device.type == "cuda" else HostClock()
        self._clock = PhaseClock[Any](clock, keep=max(_BASELINE, self._stock_size(trainer)))
        self._number = self._last = self._ordinary_again = 0
        self._epoch_began, self._starts = None, []
        self._running = self._probe = self._not_stocked = self.verdict = None
        self._watching = False
        self._stop_listening = watch_fetches(trainer, self._asks, self._got)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What lay between the epochs was not training; making an iterator and its first batch is."""
        self._interrupted()
        self._epoch_began = time.perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is in hand, on the device."""
        if self._epoch_began is not None:
            if self._number:  # the first epoch starts once
                self._starts.append(time.perf_counter() - self._epoch_began)
            self._epoch_began = None
        if self._watching:
            self._phases.in_hand()
        if self._running is not None or self._number < self._ordinary_again:
            _pause_throughput(trainer)  # a batch that was laid in is no ordinary one

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measure; begin or end a check-up when it is time."""
        if self._watching:
            self._phases.done(self._number, batch_rows(batch) or 0)
        self._number += 1
        running = self._running
        if running is not None or self._number <= self._ordinary_again:
            _pause_throughput(trainer)  # as above, for callbacks in the other order
        if running is not None and self._number == running.first + running.count:
            self._finish(trainer, pl_module, batch, running)
        elif running is None and self._number - self._last >= self.every_n_batches:
            self._begin(trainer, batch, batch_idx)
            _pause_throughput(trainer)
        if self._running is None:
            self._watch()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is not training time."""
        self._interrupted()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Saving is not training time."""
        self._interrupted()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A check-up does not go on in another epoch; one that ends early was no check-up."""
        self._running = None

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say so when there was no check-up."""
        self._let_go()
        if self.verdict is None:
            rank_zero_warn(
                f"InputDoctor found nothing: its first check-up comes after {self.every_n_batches} batches, with "
                f"{self._stock_size(trainer)} more left in the epoch; training made {self._number}. Lower "
                "every_n_batches"
            )

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Let go of the loop."""
        self._let_go()

    def run_record(self) -> DoctorRecord | None:
        """This rank's section of the run's record; None before the first check-up is done."""
        verdict = self.verdict
        if verdict is None:
            return None
        return DoctorRecord(
            verdict=verdict.text,
            bound_by=verdict.cause,
            knob=verdict.knob,
            expected_gain=verdict.gain,
            img_per_s=verdict.img_per_s,
            img_per_s_without_input=verdict.img_per_s_without_input,
            lost=dict(verdict.lost),
            details=list(verdict.notes),
        )

    # ---- when to look --------------------------------------------------------------------------------------------

    @property
    def _phases(self) -> PhaseClock[Any]:
        assert self._clock is not None, "on_train_start comes first"
        return self._clock

    def _asks(self) -> None:
        if self._watching:
            self._phases.asks()

    def _got(self) -> None:
        if self._watching:
            self._phases.got()

    def _interrupted(self) -> None:
        if self._clock is not None:
            self._clock.interrupted()

    def _watch(self) -> None:
        """Look at the batches before a check-up, and at no others: most of the time this callback costs little."""
        baseline = min(_BASELINE, self.every_n_batches // 2)
        due = self._number - self._last >= self.every_n_batches - baseline
        if due and not self._watching:
            self._phases.forget()
        self._watching = due

    def _let_go(self) -> None:
        self._watching = False
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    def _stock_size(self, trainer: pl.Trainer) -> int:
        """Batches to lay in: those that are measured, one before them and one behind.

        At the first one the pipeline may still be filling its queues and other ranks may still be at work; while the
        last one is trained on the pipeline begins again.
        """
        every = trainer.accumulate_grad_batches
        return -(-self.batches // every) * every + 2

    # ---- check-ups -----------------------------------------------------------------------------------------------

    def _begin(self, trainer: pl.Trainer, batch: Any, batch_idx: int) -> None:
        """Lay in the batches of a check-up, if enough are left in the epoch. Nothing here depends on the rank."""
        count = self._stock_size(trainer)
        if trainer.num_training_batches - (batch_idx + 1) < count:
            return
        baseline = self._phases.read()
        stocker: Stocker | str = stocker_of(trainer)
        stocked = ahead = 0
        if isinstance(stocker, str):
            self._not_stocked = stocker
        elif stocker.on_device and count > fitting(batch, trainer.strategy.root_device):
            self._not_stocked = f"the device has no memory for {count} more of them"
        else:
            stocked, ahead = stocker.stock(count, baseline.seconds / max(1, baseline.batches)), stocker.ahead
            self._interrupted()  # that was no waiting
        self._running = _Running(self._number, count, stocked, baseline, ahead)

    def _finish(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, running: _Running) -> None:
        """The stock is used up: compare, and the first time ask why."""
        self._running, self._last = None, self._number
        self._ordinary_again = self._number + running.ahead
        phases = self._phases.read(range(running.first + 1, running.first + running.count - 1))
        check = self._over_ranks(trainer, running, phases)
        if check is None:
            return
        first = self.verdict is None
        if first or (self._probe is None and check.lost_share > WORTH_IT):
            costly = check.img_per_s_without_input / check.img_per_s - 1.0 >= WORTH_IT
            if costly and self.probe_seconds > 0:
                try:
                    self._probe = self._ask(trainer, check, batch)
                except Exception as error:  # a diagnosis that fails is no reason to stop training
                    self._probe = Probe(notes=(f"The probes failed: {type(error).__name__}: {error}",))
        device_hooks = _transfers_augment(trainer, module)
        probe = self._probe or Probe()
        if not check.stocked:
            why = self._not_stocked or "of another rank"
            note = f"No batches were laid in ({why}): the rate without input is this run's without its waits."
            probe = dataclasses.replace(probe, notes=[*probe.notes, note])
        verdict = judge(check, probe, "augment" if device_hooks else "transfer")
        told_model = self.verdict is not None and self.verdict.cause == "model"
        if first or (told_model and verdict.cause != "model"):
            rank_zero_info(f"InputDoctor: {verdict.text}.")
            self.verdict = verdict
        self._log(trainer, verdict)
        _pause_throughput(trainer)
        self._interrupted()

    def _over_ranks(self, trainer: pl.Trainer, checked: _Running, phases: Phases) -> CheckUp | None:
        """The check-up of all ranks together. A collective: every rank comes here after the same batch."""
        base = checked.baseline
        known = base.seconds > 0 and base.images > 0  # else all batches before were interrupted
        interval, rate = (base.seconds / base.batches, base.images / base.seconds) if known else (0.0, 0.0)
        waits, transfers = (base.wait / base.seconds, base.transfer / base.seconds) if known else (0.0, 0.0)
        busy = phases.seconds - phases.wait - phases.transfer
        complete = checked.stocked == checked.count and phases.images > 0 and busy > 0
        free = phases.images / busy if complete else 0.0
        unwaited = rate / max(1e-9, 1.0 - waits - transfers)
        start = sum(self._starts) / len(self._starts) if self._starts else 0.0
        starts = start / (start + trainer.num_training_batches * interval) if start and known else 0.0
        running = 1.0 - starts
        own = (known, complete, running * rate, free, unwaited, running * waits, running * transfers, starts)
        sums = RankSum([float(value) for value in own], trainer.strategy.root_device).values()
        ranks = trainer.world_size
        if round(sums[0]) < ranks:
            return None
        stocked = round(sums[1]) == ranks
        now, free = sums[2], sums[3] if stocked else sums[4]
        # Ranks that wait for each other lose what the slowest waits for.
        return CheckUp(now, max(free, now), sums[5] / ranks, sums[6] / ranks, stocked, sums[7] / ranks)

    def _ask(self, trainer: pl.Trainer, check: CheckUp, batch: Any) -> Probe:
        """What the pipeline's stages cost and what its settings would give."""
        loader = trainer.train_dataloader
        cores = max(1, len(os.sched_getaffinity(0)) // max(1, trainer.num_devices))
        device = trainer.strategy.root_device
        if is_own(loader):
            from lightning_gpuaug.callbacks.probe_loader import probe_loader  # with the ops, which others may not have

            return probe_loader(loader, check, cores, self.probe_seconds)
        if not isinstance(loader, DataLoader):
            name = type(loader).__name__
            return Probe(notes=(f"The training loader is a {name}, whose settings are not known.",))
        on_gpu = device.type == "cuda"
        rows = batch_rows(batch) or 1
        probe = probe_workers(loader, check, rows, cores, self.probe_seconds, on_gpu)
        if check.start_share > 0 and loader.num_workers and not loader.persistent_workers:
            # What remains is making the first batch.
            first = sum(probe.stages.values()) * rows / (sum(self._starts) / len(self._starts))
            knob = Knob("persistent_workers", "False", "True", saves_share=check.start_share * max(0.0, 1.0 - first))
            probe = dataclasses.replace(probe, knobs=[knob, *probe.knobs])
        if on_gpu and not loader.pin_memory:
            saved = pinned_saves(batch, device) * check.transfer_share
            knob = Knob("pin_memory", "False", "True", saves_share=saved)
            probe = dataclasses.replace(probe, knobs=[*probe.knobs, knob])
        return probe

    def _log(self, trainer: pl.Trainer, verdict: Verdict) -> None:
        figures = {
            "doctor/img_per_s": verdict.img_per_s,
            "doctor/img_per_s_without_input": verdict.img_per_s_without_input,
            "doctor/lost_fraction": sum(verdict.lost.values()),
            "doctor/expected_gain": verdict.gain,
            **{f"doctor/lost_{cause}": share for cause, share in verdict.lost.items()},
        }
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=trainer.global_step - 1)


def _pause_throughput(trainer: pl.Trainer) -> None:
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Throughput):
            callback.pause()


def _transfers_augment(trainer: pl.Trainer, module: pl.LightningModule) -> bool:
    """Whether more than a copy happens between the loader and the step."""
    data = trainer.datamodule  # type: ignore[attr-defined]
    on_module = is_overridden("on_after_batch_transfer", module)
    return on_module or (data is not None and is_overridden("on_after_batch_transfer", data, pl.LightningDataModule))
