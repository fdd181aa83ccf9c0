"""`Throughput`: images per second, step time, and the share of it spent waiting for data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.utilities import rank_zero_warn

from lightning_gpuaug.callbacks.batch_rows import batch_rows
from lightning_gpuaug.callbacks.clocks import CudaClock, HostClock
from lightning_gpuaug.callbacks.rank_sum import RankSum
from lightning_gpuaug.callbacks.throughput_counter import Measured, ThroughputCounter

# What Lightning's training loop tells its profiler right before it asks the loader for a batch.
_FETCH = "train_dataloader_next"


@dataclass(frozen=True)
class ThroughputSummary:
    """A fit's throughput; None where nothing was measured (fewer batches than warm-up).

    Attributes:
        img_per_s_device: images per second of this rank's device.
        img_per_s_global: images per second of all ranks together.
        step_ms: milliseconds from one optimizer step to the next, data wait included.
        data_wait_fraction: share of the training time spent waiting for data, 0..1, over all ranks.
        images: images delivered by all ranks, those of a resumed run's checkpoint included.
        epochs: training epochs completed, those of the checkpoint included.
        warmup_batches: batches at the start of the fit that the rates and times leave out.
    """

    img_per_s_device: float | None
    img_per_s_global: float | None
    step_ms: float | None
    data_wait_fraction: float | None
    images: int
    epochs: int
    warmup_batches: int

    def rows(self) -> list[tuple[str, str]]:
        """`(name, value with unit)` pairs for a table."""
        return [
            ("images/s, device", _text(self.img_per_s_device, "{:,.1f} img/s")),
            ("images/s, global", _text(self.img_per_s_global, "{:,.1f} img/s")),
            ("step time", _text(self.step_ms, "{:,.2f} ms")),
            ("data wait", _text(self.data_wait_fraction, "{:.3f} of the time (0..1)")),
            ("images", f"{self.images:,}"),
            ("epochs", f"{self.epochs}"),
            ("not measured", f"first {self.warmup_batches} batches"),
        ]

    def __str__(self) -> str:
        """One row a line."""
        return "\n".join(f"{name:<17} {value}" for name, value in self.rows())


@dataclass(frozen=True)
class _OverRanks:
    img_per_s: float | None
    data_wait_fraction: float | None
    images: int


class Throughput(pl.Callback):
    """Log how fast training consumes images and whether it waits for them.

    Works with any LightningModule, any loader and any batch that holds a tensor. Logged by rank 0 to all of the
    trainer's loggers, over the batches since the log before:

    - `throughput/img_per_s_device`: images per second of rank 0's device.
    - `throughput/img_per_s_global`: images per second of all ranks together.
    - `throughput/step_ms`: milliseconds from one optimizer step to the next, data wait included; with gradient
      accumulation a step is several batches.
    - `throughput/data_wait_fraction`: share of the time spent waiting for a batch, 0..1, over all ranks. On a GPU
      that is the time the GPU was idle for lack of the batch, not the time the host spent asking for it.
    - `throughput/images`: images delivered by all ranks since training began, resumed runs included.

    Validation, checkpoints and what happens between epochs do not count as time, the sanity check counts as nothing.
    Images are the rows that the loader really gave, so short batches are right. CUDA is never synchronised while
    training: the figures come from events that are read once the GPU has passed them, so a log lacks the few steps
    that were still queued.

    Resuming continues `images` and `epochs`; a checkpoint holds rank 0's count times the number of ranks, which is
    exact when ranks get equal batches (every loader that drops the remainder).

    Args:
        log_every_n_steps: optimizer steps between logs; None takes the trainer's.
        warmup_batches: batches at the start of each fit that no rate or time includes (they are slow once: compiling,
            tuning, filling queues); they do count as images.
    """

    def __init__(self, log_every_n_steps: int | None = None, warmup_batches: int = 10) -> None:
        """Check the arguments."""
        if log_every_n_steps is not None and log_every_n_steps <= 0:
            raise ValueError(f"log_every_n_steps must be > 0 or None, got {log_every_n_steps!r}")
        if warmup_batches < 0:
            raise ValueError(f"warmup_batches must be ≥ 0, got {warmup_batches!r}")
        self.log_every_n_steps = log_every_n_steps
        self.warmup_batches = warmup_batches
        self._counter: ThroughputCounter[Any] | None = None
        self._stop_watching: Callable[[], None] | None = None
        self._reports: deque[tuple[int, Measured, RankSum]] = deque()
        self._logged = Measured()
        self._final: tuple[Measured, _OverRanks] | None = None  # set when training ends
        self._world_size = 1
        self._steps_seen = 0
        self._earlier_images = 0
        self._epochs = 0

    def summary(self) -> ThroughputSummary:
        """The fit so far. While several ranks train, figures over all ranks are not known and this rank's stand in."""
        if self._final is not None:
            measured, over_ranks = self._final
        else:
            measured = Measured() if self._counter is None else self._counter.settle()
            rate = _ratio(measured.images, measured.seconds)
            over_ranks = _OverRanks(
                img_per_s=None if rate is None else rate * self._world_size,
                data_wait_fraction=_ratio(measured.wait_seconds, measured.seconds),
                images=self._images_estimate(),
            )
        return ThroughputSummary(
            img_per_s_device=_ratio(measured.images, measured.seconds),
            img_per_s_global=over_ranks.img_per_s,
            step_ms=_ratio(measured.seconds * 1000.0, measured.steps),
            data_wait_fraction=over_ranks.data_wait_fraction,
            images=over_ranks.images,
            epochs=self._epochs,
            warmup_batches=self.warmup_batches,
        )

    def state_dict(self) -> dict[str, Any]:
        """Images over all ranks and epochs so far."""
        return {"images": self._images_estimate(), "epochs": self._epochs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the counts of a checkpoint."""
        self._earlier_images = int(state_dict["images"])
        self._epochs = int(state_dict["epochs"])

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Start from nothing; a checkpoint's counts, if any, are restored after this."""
        if stage == "fit":
            self._counter = self._final = None
            self._earlier_images = self._epochs = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Choose the clock and watch for the moments at which the loop asks for a batch."""
        device = trainer.strategy.root_device
        clock = CudaClock(device) if device.type == "cuda" else HostClock()
        self._counter = counter = ThroughputCounter[Any](clock, self.warmup_batches)
        self._world_size = trainer.world_size
        self._steps_seen = trainer.global_step
        self._logged = Measured()
        self._reports.clear()
        self._stop_watching = _call_before_fetches(trainer.profiler, counter.wait_begins)  # type: ignore[attr-defined]

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count from here: what lay between the epochs was not training."""
        self._active.epoch_begins()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is in hand, on the device."""
        self._active.batch_in_hand()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch; report when it is time."""
        rows = batch_rows(batch)
        if rows is None:
            rank_zero_warn(f"Throughput found no tensor in a batch of type {type(batch).__name__}: counted as 0 images")
        before, self._steps_seen = self._steps_seen, trainer.global_step
        self._active.batch_done(rows or 0, stepped=self._steps_seen > before)
        every: int = self.log_every_n_steps or trainer.log_every_n_steps  # type: ignore[attr-defined]
        # A collective, so it must depend on nothing that could differ between ranks: steps are equal everywhere.
        if every and self._steps_seen // every > before // every:
            self._start_report(trainer)
        self._send_reports(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count the epoch."""
        self._epochs += 1

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is not training time."""
        if self._counter is not None:
            self._counter.interrupted()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Saving is not training time."""
        if self._counter is not None:
            self._counter.interrupted()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Gather the whole fit over all ranks. Training is over, so waiting here costs it nothing."""
        self._unwatch()
        self._send_reports(trainer, wait=True)
        measured = self._active.finish()
        self._final = measured, self._read(self._sum_over_ranks(trainer, measured))

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Let go of the profiler. No collective: other ranks may not be here."""
        self._unwatch()
        self._reports.clear()

    @property
    def _active(self) -> ThroughputCounter[Any]:
        assert self._counter is not None, "on_train_start comes first"
        return self._counter

    def _images_estimate(self) -> int:
        own = 0 if self._counter is None else self._counter.images
        return self._earlier_images + own * self._world_size

    def _unwatch(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None

    def _start_report(self, trainer: pl.Trainer) -> None:
        measured = self._active.settle()
        window = measured.since(self._logged)
        self._logged = measured
        # Numbered as Lightning numbers the rows it logs for this step.
        self._reports.append((self._steps_seen - 1, window, self._sum_over_ranks(trainer, window)))

    def _sum_over_ranks(self, trainer: pl.Trainer, measured: Measured) -> RankSum:
        # Rates add up: ranks step together, and each divides its own images by its own time. The first number counts
        # the ranks that have a rate, for a GPU may not have passed any of its marks yet.
        rate = _ratio(measured.images, measured.seconds)
        values = (rate is not None, rate or 0.0, measured.seconds, measured.wait_seconds, self._active.images)
        return RankSum(values, trainer.strategy.root_device)

    def _read(self, sums: RankSum) -> _OverRanks:
        ranks, rate, seconds, wait_seconds, images = sums.values()
        complete = round(ranks) == self._world_size
        return _OverRanks(
            img_per_s=rate if complete else None,
            data_wait_fraction=_ratio(wait_seconds, seconds) if complete else None,
            images=self._earlier_images + round(images),
        )

    def _send_reports(self, trainer: pl.Trainer, wait: bool = False) -> None:
        while self._reports and (wait or self._reports[0][2].ready()):
            step, window, sums = self._reports.popleft()
            if not trainer.is_global_zero:
                continue
            over_ranks = self._read(sums)
            figures: dict[str, float | None] = {
                "throughput/img_per_s_device": _ratio(window.images, window.seconds),
                "throughput/img_per_s_global": over_ranks.img_per_s,
                "throughput/step_ms": _ratio(window.seconds * 1000.0, window.steps),
                "throughput/data_wait_fraction": over_ranks.data_wait_fraction,
                "throughput/images": over_ranks.images,
            }
            known = {name: value for name, value in figures.items() if value is not None}
            for logger in trainer.loggers:
                logger.log_metrics(known, step=step)


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def _text(value: float | None, form: str) -> str:
    return "not measured" if value is None else form.format(value)


def _call_before_fetches(profiler: Profiler, notify: Callable[[], None]) -> Callable[[], None]:
    """Call `notify` whenever the training loop is about to ask for a batch, until the returned function is called.

    No callback hook lies at that moment: between `on_train_batch_end` and `on_train_batch_start` there are also other
    callbacks, loggers and, on several ranks, a synchronising broadcast by Lightning itself, none of which is waiting
    for data. The loop does tell its profiler, whichever that is, so this one instance's `start` is listened to.
    """
    start = profiler.start
    listening = True

    def listening_start(action_name: str) -> None:
        if listening and action_name.endswith(_FETCH):
            notify()
        start(action_name)

    def stop() -> None:
        nonlocal listening
        listening = False
        if profiler.start is listening_start:  # else another listener was put on top, and removing ours removes both
            profiler.start = start  # type: ignore[method-assign]

    profiler.start = listening_start  # type: ignore[method-assign]
    return stop
