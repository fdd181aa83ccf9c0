"""`Throughput`: images per second, step time, and the share of it spent waiting for data."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn

from lightning_gpuaug.callbacks.batch_rows import batch_rows
from lightning_gpuaug.callbacks.clocks import CudaClock, HostClock
from lightning_gpuaug.callbacks.fetches import watch_fetches
from lightning_gpuaug.callbacks.flops import ModelFlops
from lightning_gpuaug.callbacks.idle_hooks import leave_out_idle_hooks
from lightning_gpuaug.callbacks.rank_sum import RankSum
from lightning_gpuaug.callbacks.run_record import Series, ThroughputRecord
from lightning_gpuaug.callbacks.throughput_counter import Measured, ThroughputCounter
from lightning_gpuaug.callbacks.throughput_summary import ThroughputSummary, histogram, percentile, ratio


@dataclass(frozen=True)
class _OverRanks:
    img_per_s: float | None
    data_wait_fraction: float | None
    images: int


def _waited_ms_a_step(measured: Measured) -> float | None:
    """The share of the time that was waiting, of a step; that of the batches may begin in the middle of a step."""
    waited = ratio(measured.wait_seconds, measured.seconds)
    return None if measured.step_ms is None or waited is None else measured.step_ms * waited


class Throughput(pl.Callback):
    """Log how fast training consumes images and whether it waits for them.

    Works with any LightningModule, any loader and any batch that holds a tensor. Logged by rank 0 to all of the
    trainer's loggers, over the batches since the log before:

    - `throughput/img_per_s_device`: images per second of rank 0's device.
    - `throughput/img_per_s_global`: images per second of all ranks together.
    - `throughput/step_ms`: milliseconds from one optimizer step to the next, data wait included; with gradient
      accumulation a step is several batches. Steps whose first batches were not measured (warm-up, `pause`) are left
      out. `step_ms_p50` and `step_ms_p95` are its percentiles on this rank.
    - `throughput/data_wait_fraction`: share of the time spent waiting for a batch, 0..1, over all ranks. On a GPU
      that is the time the GPU was idle for lack of the batch, not the time the host spent asking for it.
    - `throughput/gpu_starved_ms`: on a GPU, milliseconds a step in which rank 0's GPU had nothing to do for lack of a
      batch, and `throughput/host_wait_fraction`: the share of the time that its host spent asking for batches. A host
      that waits while the GPU does not is a host that runs ahead: nothing is lost.
    - `throughput/tflops_device` and `throughput/mfu`: FLOP/s of the model on rank 0's device, and the share of the
      device's dense peak (`callbacks/peaks.py`) in the trainer's precision. Counted once, in the last batch of the
      warm-up, while that batch is trained on (see `callbacks/flops.py`); absent where they cannot be counted
      (torch.compile, sharded strategies, no warm-up) or the peak is not known.
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
        flops_per_image: of a training step, forward and backward; "auto" counts them, None leaves FLOP/s out.
    """

    def __init__(
        self,
        log_every_n_steps: int | None = None,
        warmup_batches: int = 10,
        flops_per_image: float | Literal["auto"] | None = "auto",
    ) -> None:
        """Check the arguments."""
        if log_every_n_steps is not None and log_every_n_steps <= 0:
            raise ValueError(f"log_every_n_steps must be > 0 or None, got {log_every_n_steps!r}")
        if warmup_batches < 0:
            raise ValueError(f"warmup_batches must be ≥ 0, got {warmup_batches!r}")
        if isinstance(flops_per_image, str) and flops_per_image != "auto":
            raise ValueError(f'flops_per_image must be a number > 0, "auto" or None, got {flops_per_image!r}')
        if isinstance(flops_per_image, int | float) and not flops_per_image > 0:
            raise ValueError(f'flops_per_image must be a number > 0, "auto" or None, got {flops_per_image!r}')
        self.log_every_n_steps = log_every_n_steps
        self.warmup_batches = warmup_batches
        self.flops_per_image = flops_per_image
        self._flops = ModelFlops(flops_per_image)
        self._on_gpu = False
        self._timeline: list[tuple[float, Measured]] = []
        self._logged_steps = 0  # entries of the counter's step times that earlier logs have told
        self._counter = ThroughputCounter[Any](HostClock(), warmup_batches)
        self._stop_watching: Callable[[], None] | None = None
        self._reports: deque[tuple[int, Measured, array[float], RankSum]] = deque()
        self._logged = Measured()
        self._final: tuple[Measured, _OverRanks] | None = None  # set when training ends
        self._world_size = 1
        self._steps_seen = 0
        self._earlier_images = 0
        self._epochs = 0
        leave_out_idle_hooks(self)

    def summary(self) -> ThroughputSummary:
        """The fit so far. While several ranks train, figures over all ranks are not known and this rank's stand in."""
        if self._final is not None:
            measured, over_ranks = self._final
        else:
            measured = self._counter.settle()
            rate = ratio(measured.images, measured.seconds)
            over_ranks = _OverRanks(
                img_per_s=None if rate is None else rate * self._world_size,
                data_wait_fraction=ratio(measured.wait_seconds, measured.seconds),
                images=self._images_estimate(),
            )
        rate = ratio(measured.images, measured.seconds)
        steps = self._counter.step_ms
        return ThroughputSummary(
            img_per_s_device=rate,
            img_per_s_global=over_ranks.img_per_s,
            step_ms=measured.step_ms,
            step_ms_p50=percentile(steps, 0.5),
            step_ms_p95=percentile(steps, 0.95),
            data_wait_fraction=over_ranks.data_wait_fraction,
            gpu_starved_ms=_waited_ms_a_step(measured) if self._on_gpu else None,
            tflops_device=self._flops.tflops(rate),
            mfu=self._flops.mfu(rate),
            images=over_ranks.images,
            epochs=self._epochs,
            warmup_batches=self.warmup_batches,
        )

    def pause(self) -> None:
        """What happens now is not ordinary training: the batch in hand, or the time until the next, is not measured."""
        self._counter.interrupted()

    def run_record(self) -> ThroughputRecord | None:
        """This rank's section of the run's record; None before any training."""
        if not self._counter.batches:
            return None
        measured = self._final[0] if self._final is not None else self._counter.settle()
        steps = self._counter.step_ms
        rate = ratio(measured.images, measured.seconds)
        windows = [window for _, window in self._timeline]
        return ThroughputRecord(
            images=self._counter.images,
            warmup_batches=self.warmup_batches,
            img_per_s=rate,
            step_ms=measured.step_ms,
            step_ms_p50=percentile(steps, 0.5),
            step_ms_p95=percentile(steps, 0.95),
            data_wait_fraction=ratio(measured.wait_seconds, measured.seconds),
            mfu=self._flops.mfu(rate),
            timeline=Series(
                [end for end, _ in self._timeline],
                {
                    "images": [window.images for window in windows],
                    "steps": [window.steps for window in windows],
                    "step_seconds": [window.step_seconds for window in windows],
                    "seconds": [window.seconds for window in windows],
                    "wait_seconds": [window.wait_seconds for window in windows],
                },
            ),
            step_ms_histogram=histogram(steps),
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
            self._counter, self._final = ThroughputCounter(HostClock(), self.warmup_batches), None
            self._earlier_images = self._epochs = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Choose the clock and watch for the moments at which the loop asks for a batch."""
        device = trainer.strategy.root_device
        self._on_gpu = device.type == "cuda"
        clock = CudaClock(device) if self._on_gpu else HostClock()
        self._counter = ThroughputCounter(clock, self.warmup_batches)
        self._world_size = trainer.world_size
        self._steps_seen = trainer.global_step
        self._logged, self._logged_steps = Measured(), 0
        self._timeline = []
        self._flops = ModelFlops(self.flops_per_image).of(trainer)
        self._reports.clear()
        self._stop_watching = watch_fetches(trainer, self._counter.wait_begins)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count from here: what lay between the epochs was not training."""
        self._counter.epoch_begins()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The batch is in hand, on the device."""
        counter = self._counter
        counter.batch_in_hand()
        if counter.batches == self.warmup_batches - 1:
            self._flops.begin(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch; report when it is time."""
        counter, rows = self._counter, batch_rows(batch)
        if rows is None:
            rank_zero_warn(f"Throughput found no tensor in a batch of type {type(batch).__name__}: counted as 0 images")
            rows = 0
        if counter.batches == self.warmup_batches - 1:
            self._flops.end(rows)
        # What `trainer.global_step` is in the end.
        before, self._steps_seen = self._steps_seen, trainer.fit_loop.epoch_loop.global_step
        counter.batch_done(rows, stepped=self._steps_seen > before)
        every: int = self.log_every_n_steps or trainer.log_every_n_steps  # type: ignore[attr-defined]
        # A collective, so it must depend on nothing that could differ between ranks: steps are equal everywhere.
        if every and self._steps_seen // every > before // every:
            self._start_report(trainer)
        if self._reports:
            self._send_reports(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count the epoch."""
        self._epochs += 1

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Validation is not training time."""
        self._counter.interrupted()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Saving is not training time."""
        self._counter.interrupted()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Gather the whole fit over all ranks. Training is over, so waiting here costs it nothing."""
        self._unwatch()
        self._send_reports(trainer, wait=True)
        measured = self._counter.finish()
        if measured.images > self._logged.images:
            self._timeline.append((time.time(), measured.since(self._logged)))
        self._final = measured, self._read(self._sum_over_ranks(trainer, measured))

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Let go of the loop. No collective: other ranks may not be here."""
        self._unwatch()
        self._flops.give_up()
        self._reports.clear()

    def _images_estimate(self) -> int:
        return self._earlier_images + self._counter.images * self._world_size

    def _unwatch(self) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None

    def _start_report(self, trainer: pl.Trainer) -> None:
        measured = self._counter.settle()
        window = measured.since(self._logged)
        self._logged = measured
        if window.images:
            self._timeline.append((time.time(), window))
        # Numbered as Lightning numbers the rows it logs for this step.
        steps = self._counter.step_ms[self._logged_steps :]
        self._logged_steps += len(steps)
        self._reports.append((self._steps_seen - 1, window, steps, self._sum_over_ranks(trainer, window)))

    def _sum_over_ranks(self, trainer: pl.Trainer, measured: Measured) -> RankSum:
        # Rates add up: ranks step together, and each divides its own images by its own time. The first number counts
        # the ranks that have a rate, for a GPU may not have passed any of its marks yet.
        rate = ratio(measured.images, measured.seconds)
        values = (rate is not None, rate or 0.0, measured.seconds, measured.wait_seconds, self._counter.images)
        return RankSum(values, trainer.strategy.root_device)

    def _read(self, sums: RankSum) -> _OverRanks:
        ranks, rate, seconds, wait_seconds, images = sums.values()
        complete = round(ranks) == self._world_size
        return _OverRanks(
            img_per_s=rate if complete else None,
            data_wait_fraction=ratio(wait_seconds, seconds) if complete else None,
            images=self._earlier_images + round(images),
        )

    def _send_reports(self, trainer: pl.Trainer, wait: bool = False) -> None:
        while self._reports and (wait or self._reports[0][3].ready()):
            step, window, steps, sums = self._reports.popleft()
            if not trainer.is_global_zero:
                continue
            over_ranks = self._read(sums)
            rate = ratio(window.images, window.seconds)
            figures: dict[str, float | None] = {
                "throughput/img_per_s_device": rate,
                "throughput/img_per_s_global": over_ranks.img_per_s,
                "throughput/step_ms": window.step_ms,
                "throughput/step_ms_p50": percentile(steps, 0.5),
                "throughput/step_ms_p95": percentile(steps, 0.95),
                "throughput/data_wait_fraction": over_ranks.data_wait_fraction,
                "throughput/tflops_device": self._flops.tflops(rate),
                "throughput/mfu": self._flops.mfu(rate),
                "throughput/images": over_ranks.images,
            }
            if self._on_gpu:
                figures["throughput/gpu_starved_ms"] = _waited_ms_a_step(window)
                figures["throughput/host_wait_fraction"] = ratio(window.host_wait_seconds, window.seconds)
            known = {name: value for name, value in figures.items() if value is not None}
            for logger in trainer.loggers:
                logger.log_metrics(known, step=step)
