"""How long training steps took and how much of that was waiting for data: arithmetic alone, on an injected clock."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Mark = TypeVar("Mark")

_SETTLE_AT = 256
"""Batches whose marks may be kept unread; a run that logs nothing would otherwise keep all of its CUDA events."""


class Clock(Protocol[Mark]):
    """A clock whose readings may arrive late, as a GPU's do. Nothing here but `finish` waits."""

    def mark(self) -> Mark:
        """A mark at this point of the work."""

    def reached(self, mark: Mark) -> bool:
        """Whether the work has come to this mark, and so to every earlier one."""

    def seconds(self, start: Mark, end: Mark) -> float:
        """Seconds of the work between two marks that have been reached."""

    def host_seconds(self, start: Mark, end: Mark) -> float:
        """Seconds of the host between making the two."""

    def forget_before(self, mark: Mark) -> None:
        """Nobody will ask for the marks that were made before this one any more."""

    def finish(self) -> None:
        """Wait until every mark has been reached."""


@dataclass(frozen=True)
class Measured:
    """Sums over the measured batches of one rank.

    Attributes:
        images: rows in them.
        steps: optimizer steps that ended in them, of which every batch was measured.
        seconds: their time, data wait included.
        wait_seconds: the part of `seconds` spent waiting for the batch.
        host_wait_seconds: how long the host asked for these batches, by its own clock.
        step_seconds: time of `steps`; with accumulated gradients not that of the batches, of which the first may
            belong to a step that was not measured whole.
    """

    images: int = 0
    steps: int = 0
    seconds: float = 0.0
    wait_seconds: float = 0.0
    host_wait_seconds: float = field(default=0.0, compare=False)
    step_seconds: float = field(default=0.0, compare=False)

    @property
    def step_ms(self) -> float | None:
        """Mean time of `steps` in milliseconds; None without any."""
        return self.step_seconds * 1000.0 / self.steps if self.steps else None

    def since(self, earlier: Measured) -> Measured:
        """What came after `earlier`."""
        return Measured(
            self.images - earlier.images,
            self.steps - earlier.steps,
            self.seconds - earlier.seconds,
            self.wait_seconds - earlier.wait_seconds,
            self.host_wait_seconds - earlier.host_wait_seconds,
            self.step_seconds - earlier.step_seconds,
        )


class ThroughputCounter(Generic[Mark]):
    """Turns the moments of a training loop into sums.

    For each batch the loop says `wait_begins()` (it asks for the batch), `batch_in_hand()`, `batch_done(rows)`. The
    batch's time runs from the end of the batch before; its data wait from the asking to the batch in hand. A loop
    that never says `wait_begins()` has its wait counted from the end of the batch before.

    What is not training is kept out by `interrupted()` (validation, a checkpoint): between two batches, the time
    since the last batch's end until the next one is asked for does not count; in the middle of a batch, the batch
    does not count.

    A batch only leaves its marks behind; the arithmetic is for `settle()`, which takes what the clock has reached and
    never waits.

    Args:
        clock: gives marks and the seconds between them.
        warmup_batches: batches at the start that are counted as delivered but not measured.
    """

    def __init__(self, clock: Clock[Mark], warmup_batches: int) -> None:
        """Start with nothing counted."""
        self.images = 0
        self.batches = 0
        self.step_ms = array("d")
        """Milliseconds of each measured optimizer step, oldest first: 8 MB per million steps."""
        self._clock = clock
        self._mark = clock.mark
        self._warmup_batches = warmup_batches
        self._measured = Measured()
        # Images, whether the optimizer stepped, and the marks: of what the time counts from (None where the batch is
        # not measured), of the asking, of the batch in hand, and of its end.
        self._pending: list[tuple[int, bool, Mark | None, Mark, Mark, Mark]] = []
        self._previous_end: Mark | None = None  # None: what lies between was not training
        self._asked: Mark | None = None
        self._in_hand: Mark | None = None
        self._spoiled = False
        self._step_so_far: float | None = 0.0  # of the step not settled to its end; None: not all of it was measured

    def wait_begins(self) -> None:
        """The loop has nothing to do but get the next batch. Only the first call before a batch counts."""
        if self._asked is None:
            self._asked = self._mark()

    def batch_in_hand(self) -> None:
        """The next batch has arrived."""
        self._in_hand = self._mark()

    def interrupted(self) -> None:
        """Something that is not training happens now."""
        if self._in_hand is not None:
            self._spoiled = True
        else:
            self._asked = None  # it was too early to call that a wait: the loop asks again
        self._previous_end = None

    def epoch_begins(self) -> None:
        """An epoch begins: all since the last batch was not training; making the loader's iterator is data wait."""
        self._asked = self._in_hand = self._previous_end = None
        self._spoiled = False
        self.wait_begins()

    def batch_done(self, images: int, stepped: bool = True) -> None:
        """The batch in hand has been worked through.

        Args:
            images: its rows.
            stepped: whether the optimizer stepped, which it does not while gradients accumulate.
        """
        end = self._mark()
        in_hand, asked, since = self._in_hand, self._asked, self._previous_end
        if in_hand is None:  # nobody said so: there is nothing to measure
            in_hand, self._spoiled = end, True
        if asked is None:  # without anything to count from either, no wait is known
            asked = since if since is not None else in_hand
        if since is None:
            since = asked
        self.images += images
        self.batches += 1
        measured = self.batches > self._warmup_batches and not self._spoiled
        self._pending.append((images, stepped, since if measured else None, asked, in_hand, end))
        self._asked = self._in_hand = None
        self._spoiled = False
        self._previous_end = end
        if len(self._pending) >= _SETTLE_AT:
            self.settle()

    def finish(self) -> Measured:
        """The sums over all batches, waiting for the clock to reach the last one: the end of a fit."""
        self._clock.finish()
        return self.settle()

    def settle(self) -> Measured:
        """The sums over all batches whose marks the clock has reached."""
        clock, before, step_so_far = self._clock, self._measured, self._step_so_far
        reached = bisect_left(self._pending, True, key=lambda batch: not clock.reached(batch[-1]))
        if not reached:
            return before
        batches, self._pending = self._pending[:reached], self._pending[reached:]
        images, steps, total, waited, host_waited, of_steps = 0, 0, 0.0, 0.0, 0.0, 0.0
        for rows, stepped, since, asked, in_hand, end in batches:
            if since is None:
                step_so_far = None
            else:
                seconds = clock.seconds(since, end)
                images, total = images + rows, total + seconds
                waited += clock.seconds(asked, in_hand)
                host_waited += clock.host_seconds(asked, in_hand)
                if step_so_far is not None:
                    step_so_far += seconds
            if stepped:
                if step_so_far is not None:
                    steps, of_steps = steps + 1, of_steps + step_so_far
                    self.step_ms.append(step_so_far * 1000.0)
                step_so_far = 0.0
        clock.forget_before(batches[-1][-1])  # from which the next batch's time may count
        self._step_so_far = step_so_far
        self._measured = Measured(
            before.images + images,
            before.steps + steps,
            before.seconds + total,
            before.wait_seconds + waited,
            before.host_wait_seconds + host_waited,
            before.step_seconds + of_steps,
        )
        return self._measured
