"""How long the steps of a fit take."""

from __future__ import annotations

import time
from typing import Any

import lightning.pytorch as pl

from lightning_gpuaug.bench.timing import synchronize


class Stopwatch(pl.Callback):
    """Times a fit from the beginning of one step to the end of another, the GPU's work included.

    Args:
        first: steps before the clock starts.
        last: steps when it stops.
    """

    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last
        self._begin = self._end = 0.0

    @property
    def seconds(self) -> float:
        """From the one to the other."""
        return self._end - self._begin

    def on_train_batch_start(self, trainer: pl.Trainer, module: Any, batch: Any, step: int) -> None:
        """Start the clock, if it is time."""
        if trainer.global_step == self._first:
            synchronize()
            self._begin = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Stop it, if it is time."""
        if trainer.global_step == self._last:
            synchronize()
            self._end = time.perf_counter()
