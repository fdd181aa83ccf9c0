"""What a training batch's time went into, phase by phase, on any clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from lightning_gpuaug.callbacks.throughput_counter import Clock

Mark = TypeVar("Mark")


@dataclass(frozen=True)
class Phases:
    """Seconds of some batches, from the end of the batch before to the end of the last.

    Attributes:
        batches: how many.
        images: rows in them.
        seconds: all of their time.
        wait: waiting for the loader.
        transfer: from the loader to the device, batch transfer hooks included.
    """

    batches: int = 0
    images: int = 0
    seconds: float = 0.0
    wait: float = 0.0
    transfer: float = 0.0


class _Batch(NamedTuple, Generic[Mark]):
    number: int
    images: int
    before: Mark
    asked: Mark
    got: Mark
    in_hand: Mark
    end: Mark


class PhaseClock(Generic[Mark]):
    """Keeps the marks of the latest batches.

    A batch that was interrupted, or whose beginning is not known, is left out.

    Args:
        clock: gives marks.
        keep: batches to remember.
    """

    def __init__(self, clock: Clock[Mark], keep: int) -> None:
        """Nothing remembered."""
        self._clock = clock
        self._batches: deque[_Batch[Mark]] = deque(maxlen=keep)
        self._before: Mark | None = None
        self._asked: Mark | None = None
        self._got: Mark | None = None
        self._in_hand: Mark | None = None

    def asks(self) -> None:
        """The loop asks for a batch."""
        if self._asked is None:
            self._asked = self._clock.mark()

    def got(self) -> None:
        """The loader has given it."""
        self._got = self._clock.mark()

    def in_hand(self) -> None:
        """It is on the device, and the step begins."""
        self._in_hand = self._clock.mark()

    def done(self, number: int, images: int) -> None:
        """The step is over."""
        end = self._clock.mark()
        marks = (self._before, self._asked, self._got, self._in_hand)
        if all(mark is not None for mark in marks):
            self._batches.append(_Batch(number, images, *marks, end))  # type: ignore[arg-type]
        self.interrupted()
        self._before = end

    def interrupted(self) -> None:
        """Something else than training: the batch that is under way, or begins after it, is no measure."""
        self._before = self._asked = self._got = self._in_hand = None

    def forget(self) -> None:
        """Begin anew."""
        self._batches.clear()
        self.interrupted()
        self._clock.forget_before(self._clock.mark())

    def read(self, numbers: Iterable[int] | None = None) -> Phases:
        """Sums over the remembered batches, or those of the given numbers; waits until the device has done them."""
        self._clock.finish()
        wanted = None if numbers is None else set(numbers)
        batches, images, seconds, wait, transfer = 0, 0, 0.0, 0.0, 0.0
        for batch in self._batches:
            if wanted is not None and batch.number not in wanted:
                continue
            batches += 1
            images += batch.images
            seconds += self._clock.seconds(batch.before, batch.end)
            wait += self._clock.seconds(batch.asked, batch.got)
            transfer += self._clock.seconds(batch.got, batch.in_hand)
        return Phases(batches, images, seconds, wait, transfer)
