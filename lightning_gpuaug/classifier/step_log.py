"""What a training step says of itself, to callbacks and loggers."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import Tensor


class StepLog:
    """Hands on values of training steps as `LightningModule.log` does, at a fraction of its cost.

    `log` copies its whole record of a value, part by part, whenever it gets the next one: for two values that is half
    of the Python that Lightning's loop runs in a step, and a small network's training waits for Python.

    Callbacks find the values of the last batch in `trainer.callback_metrics` and `logged_metrics`. Loggers get those of
    each optimizer step whose number is due (`trainer.log_every_n_steps`), which is when they are read from the GPU.
    """

    def __init__(self) -> None:
        self._values: dict[str, Tensor] = {}

    def note(self, trainer: pl.Trainer, values: dict[str, Tensor]) -> None:
        """The values of this batch: scalars, detached."""
        self._values = values
        trainer.callback_metrics.update(values)
        trainer.logged_metrics.update(values)

    def write(self, trainer: pl.Trainer) -> None:
        """To the loggers, if this optimizer step is due; from within it, while `trainer.global_step` is its number."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and (trainer.global_step + 1) % every == 0:
            self._write(trainer, trainer.global_step)

    def write_last(self, trainer: pl.Trainer) -> None:
        """Behind an optimizer step: to the loggers, if it is the last of a run that is told to stop."""
        if trainer.should_stop and trainer.log_every_n_steps:  # type: ignore[attr-defined]
            self._write(trainer, trainer.global_step - 1)

    def _write(self, trainer: pl.Trainer, step: int) -> None:
        values, self._values = self._values, {}  # once
        if not values or not trainer.loggers:
            return
        row = {name: value.item() for name, value in values.items()} | {"epoch": trainer.current_epoch}
        for logger in trainer.loggers:
            logger.log_metrics(row, step)
            logger.save()
