"""How long training steps took and how much of that was waiting for data: arithmetic alone, on an injected clock."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

Mark = TypeVar("Mark")

_SETTLE_AT = 256
"""Batches whose marks may be kept unread; a run that logs nothing would otherwise keep all of its CUDA events."""


class Clock(Protocol[Mark]):
    """A clock whose readings may arrive late, as a GPU's do."""

    def mark(self) -> Mark:
        """A mark at this point of the work. Must not wait for anything."""

    def seconds(self, start: Mark, end: Mark) -> float | None:
        """Seconds between two marks, or None if `end` had not been reached at the last look. Must not wait."""

    def look(self, newest_first: Iterable[Mark]) -> None:
        """Find out which marks have been reached: all that were made before the first of these that has."""

    def done_with(self, mark: Mark) -> None:
        """Nobody will ask for this mark any more."""

    def finish(self) -> None:
        """Wait until every mark has been reached."""


@dataclass(frozen=True)
class Measured:
    """Sums over the measured batches of one rank.

    Attributes:
        images: rows in them.
        steps: optimizer steps that ended in them.
        seconds: their time, data wait included.
        wait_seconds: the part of `seconds` spent waiting for the batch.
        host_wait_seconds: how long the host asked for these batches, by its own clock.
    """

    images: int = 0
    steps: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    host_wait_seconds: float = field(default=0.0, compare=False)

    def since(self, earlier: Measured) -> Measured:
        """What came after `earlier`."""
        return Measured(
            self.images - earlier.images,
            self.steps - earlier.steps,
            self.seconds - earlier.seconds,
            self.wait_seconds - earlier.wait_seconds,
            self.host_wait_seconds - earlier.host_wait_seconds,
        )


class _Batch(NamedTuple, Generic[Mark]):  # cheaper to make than a dataclass, and one is made every batch
    images: int
    stepped: bool
    first: bool  # of its optimizer step
    whole_step: bool  # all batches of the step so far are measured
    host_wait: float
    previous_end: Mark | None  # None: what lay between was not training
    asked: Mark
    in_hand: Mark
    end: Mark


class ThroughputCounter(Generic[Mark]):
    """Turns the moments of a training loop into sums.

    For each batch the loop says `wait_begins()` (it asks for the batch), `batch_in_hand()`, `batch_done(rows)`. The
    batch's time runs from the end of the batch before; its data wait from the asking to the batch in hand. A loop
    that never says `wait_begins()` has its wait counted from the end of the batch before.

    What is not training is kept out by `interrupted()` (validation, a checkpoint): between two batches, the time
    since the last batch's end until the next one is asked for does not count; in the middle of a batch, the batch
    does not count.

    Marks are read by `settle()`, which takes what the clock has reached and never waits.

    Args:
        clock: gives marks and the seconds between them.
        warmup_batches: batches at the start that are counted as delivered but not measured.
    """

    def __init__(self, clock: Clock[Mark], warmup_batches: int) -> None:
        """Start with nothing counted."""
        self.images = 0
        self.batches = 0
        self.step_seconds = array("d")
        """Seconds of each measured optimizer step, oldest first: 8 MB per million steps."""
        self._clock = clock
        self._warmup_batches = warmup_batches
        self._measured = Measured()
        self._pending: deque[_Batch[Mark]] = deque()
        self._previous_end: Mark | None = None
        self._asked: Mark | None = None
        self._in_hand: Mark | None = None
        self._spoiled = False
        self._host_asked: float | None = None
        self._host_wait = 0.0
        self._first_of_step = True
        self._whole_step = True
        self._step_so_far = 0.0  # of the step whose last batch is not settled yet

    def wait_begins(self) -> None:
        """The loop has nothing to do but get the next batch. Only the first call before a batch counts."""
        if self._asked is None:
            self._asked = self._clock.mark()
            self._host_asked = time.perf_counter()

    def batch_in_hand(self) -> None:
        """The next batch has arrived."""
        self._in_hand = self._clock.mark()
        self._host_wait = 0.0 if self._host_asked is None else time.perf_counter() - self._host_asked

    def interrupted(self) -> None:
        """Something that is not training happens now."""
        if self._in_hand is not None:
            self._spoiled = True
        else:
            self._asked = self._host_asked = None  # it was too early to call that a wait: the loop asks again
        self._previous_end = None

    def epoch_begins(self) -> None:
        """An epoch begins: all since the last batch was not training; making the loader's iterator is data wait."""
        self._forget_batch()
        self._previous_end = None
        self.wait_begins()

    def batch_done(self, images: int, stepped: bool = True) -> None:
        """The batch in hand has been worked through.

        Args:
            images: its rows.
            stepped: whether the optimizer stepped, which it does not while gradients accumulate.
        """
        end = self._clock.mark()
        self.images += images
        self.batches += 1
        asked = self._asked if self._asked is not None else self._previous_end
        if asked is None:
            asked = self._in_hand  # not asked for, and nothing to count from: no wait is known
        if (
            self.batches > self._warmup_batches
            and not self._spoiled
            and asked is not None
            and self._in_hand is not None
        ):
            self._pending.append(
                _Batch(
                    images, stepped, self._first_of_step, self._whole_step, self._host_wait,
                    self._previous_end, asked, self._in_hand, end,
                )
            )  # fmt: skip
            if len(self._pending) >= _SETTLE_AT:
                self.settle()
        else:
            self._whole_step = False
        self._first_of_step = stepped
        self._whole_step |= stepped
        self._forget_batch()
        self._previous_end = end

    def finish(self) -> Measured:
        """The sums over all batches, waiting for the clock to reach the last one: the end of a fit."""
        self._clock.finish()
        return self.settle()

    def settle(self) -> Measured:
        """The sums over all batches whose marks the clock has reached."""
        if not self._pending:
            return self._measured
        before = self._measured
        images, steps, total, waited, host_waited = 0, 0, 0.0, 0.0, 0.0
        self._clock.look(batch.end for batch in reversed(self._pending))
        while self._pending:
            batch = self._pending[0]
            since = batch.asked if batch.previous_end is None else batch.previous_end
            seconds = self._clock.seconds(since, batch.end)
            wait = self._clock.seconds(batch.asked, batch.in_hand)
            if seconds is None or wait is None:
                break
            self._pending.popleft()
            self._clock.done_with(batch.in_hand)
            if batch.previous_end is not None:  # nor will the next batch ask for it: that one begins at this one's end
                self._clock.done_with(batch.previous_end)
            if batch.asked is not batch.in_hand and batch.asked is not batch.previous_end:
                self._clock.done_with(batch.asked)
            images, steps = images + batch.images, steps + batch.stepped
            total, waited, host_waited = total + seconds, waited + wait, host_waited + batch.host_wait
            self._step_so_far = seconds if batch.first else self._step_so_far + seconds
            if batch.stepped and batch.whole_step:
                self.step_seconds.append(self._step_so_far)
        self._measured = Measured(
            before.images + images,
            before.steps + steps,
            before.seconds + total,
            before.wait_seconds + waited,
            before.host_wait_seconds + host_waited,
        )
        return self._measured

    def _forget_batch(self) -> None:
        self._asked = self._in_hand = self._host_asked = None
        self._spoiled = False
