"""timm's learning-rate schedules, counted in optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from timm.scheduler.cosine_lr import CosineLRScheduler
from timm.scheduler.multistep_lr import MultiStepLRScheduler
from timm.scheduler.poly_lr import PolyLRScheduler
from timm.scheduler.scheduler import Scheduler
from timm.scheduler.step_lr import StepLRScheduler
from timm.scheduler.tanh_lr import TanhLRScheduler

ScheduleName = Literal["cosine", "tanh", "poly", "step", "multistep", "none"]
SCHEDULES: tuple[str, ...] = ("cosine", "tanh", "poly", "step", "multistep", "none")


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes over a run, in units that do not depend on the run's length.

    Attributes:
        name: the curve after warm-up. "cosine", "tanh" and "poly" fall from `lr` to `min_lr` between the end of
            warm-up and the end of the run; "step" and "multistep" multiply by `decay_rate` at `decay_epochs`,
            counted from the start of the run; "none" stays at `lr`.
        warmup_epochs: length of the linear warm-up from `warmup_lr` to `lr`, in epochs; may be a fraction.
        warmup_steps: the same in optimizer steps; when given, it is used and `warmup_epochs` must be 0.
        warmup_lr: learning rate of the first step of the warm-up.
        min_lr: learning rate at the end of the run ("cosine", "tanh", "poly").
        decay_epochs: "step": one number, epochs between decays. "multistep": the epochs at which to decay, rising.
        decay_rate: factor of each decay ("step", "multistep", 0.1 when None) or the power of "poly" (1 when None).
    """

    name: ScheduleName
    warmup_epochs: float
    warmup_steps: int | None
    warmup_lr: float
    min_lr: float
    decay_epochs: float | Sequence[float]
    decay_rate: float | None

    def __post_init__(self) -> None:
        """Validate every field."""
        if self.name not in SCHEDULES:
            raise ValueError(f"scheduler must be one of {', '.join(SCHEDULES)}, got {self.name!r}")
        for field in ("warmup_epochs", "warmup_lr", "min_lr"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be ≥ 0, got {getattr(self, field)!r}")
        if self.warmup_steps is not None and self.warmup_steps < 0:
            raise ValueError(f"warmup_steps must be ≥ 0, got {self.warmup_steps!r}")
        if self.warmup_steps is not None and self.warmup_epochs:
            raise ValueError(f"warmup_steps must not be given with warmup_epochs={self.warmup_epochs!r}, got both")
        listed = isinstance(self.decay_epochs, Sequence)
        if self.name == "multistep" and not listed:
            raise ValueError(f"decay_epochs must be a list for scheduler='multistep', got {self.decay_epochs!r}")
        if self.name == "step" and listed:
            raise ValueError(f"decay_epochs must be one number for scheduler='step', got {self.decay_epochs!r}")
        numbers = list(self.decay_epochs) if isinstance(self.decay_epochs, Sequence) else [self.decay_epochs]
        if not numbers or min(numbers) <= 0 or numbers != sorted(numbers):
            raise ValueError(f"decay_epochs must be positive and rising, got {self.decay_epochs!r}")

    @property
    def needs_epochs(self) -> bool:
        """Whether some length is given in epochs, so that the steps of one epoch must be known."""
        return bool(self.warmup_epochs) or self.name in ("step", "multistep")

    @property
    def needs_total(self) -> bool:
        """Whether the curve ends with the run, so that the length of the run must be known."""
        return self.name in ("cosine", "tanh", "poly")

    def warmup_length(self, steps_per_epoch: int) -> int:
        """Optimizer steps of warm-up."""
        return self.warmup_steps if self.warmup_steps is not None else round(self.warmup_epochs * steps_per_epoch)

    def build(self, optimizer: torch.optim.Optimizer, total_steps: int, steps_per_epoch: int) -> Scheduler | None:
        """The timm scheduler whose `step_update(k)` sets the learning rate of the step that follows `k` steps.

        Args:
            optimizer: its groups' `lr` is the peak; a group's `lr_scale` (layer decay) is honoured.
            total_steps: optimizer steps of the whole run; used when `needs_total`.
            steps_per_epoch: optimizer steps of one epoch; used when `needs_epochs`.

        Returns:
            None for "none" without warm-up.
        """
        warmup = self.warmup_length(steps_per_epoch)
        # timm calls a schedule that counts updates "not in epochs". With `warmup_prefix` the curve's time starts where
        # the warm-up ends, and its own length is then what remains of the run.
        common: dict[str, Any] = {"warmup_t": warmup, "warmup_lr_init": self.warmup_lr, "t_in_epochs": False}
        common["warmup_prefix"] = self.needs_total
        if self.needs_total:
            common |= {"t_initial": max(1, total_steps - warmup), "lr_min": self.min_lr}
        if self.name == "cosine":
            return CosineLRScheduler(optimizer, **common)
        if self.name == "tanh":
            return TanhLRScheduler(optimizer, **common)
        if self.name == "poly":
            return PolyLRScheduler(optimizer, power=1.0 if self.decay_rate is None else self.decay_rate, **common)
        if self.name == "none":  # a step schedule that never decays: warm-up alone
            return StepLRScheduler(optimizer, decay_t=1, decay_rate=1.0, **common) if warmup else None
        decay_rate = 0.1 if self.decay_rate is None else self.decay_rate
        if isinstance(self.decay_epochs, Sequence):
            # timm decays one unit before the milestone (its convention for epochs); + 1 makes it on time.
            milestones = [round(epoch * steps_per_epoch) + 1 for epoch in self.decay_epochs]
            return MultiStepLRScheduler(optimizer, decay_t=milestones, decay_rate=decay_rate, **common)
        every = max(1, round(self.decay_epochs * steps_per_epoch))
        return StepLRScheduler(optimizer, decay_t=every, decay_rate=decay_rate, **common)


def rescale(scheduler: Scheduler, factor: float) -> None:
    """Multiply the peaks of a schedule; its length, `warmup_lr` and `min_lr` stay."""
    scheduler.base_values = [value * factor for value in scheduler.base_values]
    warmup: Any = scheduler  # every schedule that `build` makes has these
    if warmup.warmup_t:
        warmup.warmup_steps = [(peak - warmup.warmup_lr_init) / warmup.warmup_t for peak in scheduler.base_values]


def run_length(trainer: pl.Trainer, schedule: Schedule) -> tuple[int, int]:
    """Optimizer steps of the whole run and of one epoch, 0 where `schedule` does not ask.

    Both count gradient accumulation as Lightning does: an epoch's last, incomplete accumulation is a step too. Where a
    `GradientAccumulationScheduler` changes it, the run is counted epoch by epoch, and "one epoch" is the first.

    Raises:
        ValueError: the schedule needs a length that the trainer or the data does not have.
    """
    total = per_epoch = 0
    if 0 in (trainer.limit_train_batches, trainer.max_steps):  # nothing is trained, and Lightning looks at no data
        return total, per_epoch
    if schedule.needs_total:
        estimate = trainer.estimated_stepping_batches
        if not 0 < estimate < math.inf:
            raise ValueError(
                f"scheduler={schedule.name!r} needs the run's length: set trainer.max_steps, or trainer.max_epochs "
                f"with a sized train dataloader; got max_epochs={trainer.max_epochs}, max_steps={trainer.max_steps}"
            )
        total = int(min(estimate, _steps_of_epochs(trainer)))
    if schedule.needs_epochs:
        if trainer.train_dataloader is None:
            trainer.fit_loop.setup_data()  # as `estimated_stepping_batches` itself does
        batches = trainer.num_training_batches
        if not batches < math.inf:
            raise ValueError(
                "warmup_epochs and decay_epochs need a sized train dataloader, got one without a length; "
                "use warmup_steps and a scheduler other than 'step' and 'multistep'"
            )
        per_epoch = math.ceil(batches / _accumulation(trainer, epoch=0))
    return total, per_epoch


def _steps_of_epochs(trainer: pl.Trainer) -> float:
    """Optimizer steps of all epochs, infinite where the epochs or their batches are not limited."""
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    if batches == math.inf or epochs is None or epochs < 0:
        return math.inf
    return sum(math.ceil(batches / _accumulation(trainer, epoch)) for epoch in range(max(1, epochs)))


def _accumulation(trainer: pl.Trainer, epoch: int) -> int:
    """Batches of an optimizer step in an epoch."""
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, GradientAccumulationScheduler):
            return callback.get_accumulate_grad_batches(epoch)
    return trainer.accumulate_grad_batches
