"""Where a Trainer is in its training epoch, and how to continue there with another number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import lightning.pytorch as pl
from lightning.pytorch.loops.progress import _ProcessedTracker


def position(trainer: pl.Trainer) -> tuple[int, int]:
    """(epoch, steps done in it) of the training loop, when a pass over the training data begins.

    A step that fetches its batch itself (`training_step(dataloader_iter)`) is ready before it has one, so not those
    that are ready count.
    """
    return trainer.current_epoch, _progress(trainer).processed


def steps_in_flight(trainer: pl.Trainer) -> int:
    """1 while a batch is out and its step is not finished (an exception saved the checkpoint), else 0."""
    progress = _progress(trainer)
    return progress.ready - progress.processed


def _progress(trainer: pl.Trainer) -> _ProcessedTracker:
    """The training loop's counters of the running epoch."""
    return cast(_ProcessedTracker, trainer.fit_loop.epoch_loop.batch_progress.current)


class ContinueEpoch(pl.Callback):
    """Moves a restored training loop to the step from which the data continues.

    The Trainer counts steps, the data counts samples. When a run is resumed with another world or batch size, the
    step that the checkpoint recorded is not the step at which the rest of the epoch begins, and an epoch that was over
    may have more steps now than were taken.

    Args:
        resumed: (epoch, step) at which the data continues, or None when nothing was restored.
        end_epoch: called when the loop has no step left in that epoch, which `limit_train_batches` may have ended
            before the data did: the loop asks for a batch all the same.
    """

    def __init__(self, resumed: Callable[[], tuple[int, int] | None], end_epoch: Callable[[], None]) -> None:
        self._resumed, self._end_epoch = resumed, end_epoch

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the loop's counters, after they were restored and before the loop reads them."""
        resumed = self._resumed()
        if resumed is None or resumed[0] > trainer.current_epoch:
            return
        loop = trainer.fit_loop.epoch_loop
        progress = _progress(trainer)
        # A checkpoint of `on_train_batch_end` has its last step not counted as completed; the loop adds it.
        late = int(loop.restarted_on_train_batch_end)
        if resumed[0] == trainer.current_epoch:
            step = int(min(resumed[1], trainer.num_training_batches))  # passes that callbacks had are not the loop's
            if step == trainer.num_training_batches:
                self._end_epoch()
        elif late:  # the epoch was over: to the loop too, however many steps it has now
            step = int(trainer.num_training_batches)
        else:  # the next one has begun, and has had neither steps nor validation
            step, loop.batch_progress.is_last_batch = 0, False
        if progress.completed + late != step:
            progress.ready = progress.started = progress.processed = step
            progress.completed = step - late
