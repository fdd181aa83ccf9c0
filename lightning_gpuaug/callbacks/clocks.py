"""Two clocks for the throughput counter: the host's, and a CUDA stream's."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import torch


class HostClock:
    """Marks are host times in seconds; right where work is done when the call returns, as on a CPU."""

    def mark(self) -> float:
        """Now, in seconds."""
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        """Seconds between two marks."""
        return end - start

    def look(self, newest_first: Iterable[float]) -> None:
        """Nothing to look for: a mark is passed when it is made."""

    def done_with(self, mark: float) -> None:
        """Nothing to keep."""

    def finish(self) -> None:
        """Nothing to wait for."""


class CudaClock:
    """Marks are events on a CUDA stream: the time the GPU gets there, whenever the host was there.

    The stream is the device's current one when the clock is made.

    A batch's wait measured so is the time the GPU sat idle for it: when the host runs ahead, the mark "asked for" and
    the mark "in hand" are both passed the moment the GPU finishes the step before, and their distance is zero however
    long the host itself waited.
    """

    def __init__(self, device: torch.device) -> None:
        """Mark the current stream of `device`."""
        self._stream = torch.cuda.current_stream(device)  # asking for it costs more than recording an event
        self._free: list[torch.cuda.Event] = []  # making and destroying an event costs more than recording it
        self._made = 0
        self._passed = -1

    def mark(self) -> _CudaMark:
        """Record an event; returns at once."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        self._made += 1
        return _CudaMark(event, self._made)

    def look(self, newest_first: Iterable[_CudaMark]) -> None:
        """See how far the GPU has come: few questions, for it is only a few steps behind."""
        for mark in newest_first:
            if mark.number <= self._passed or mark.event.query():  # type: ignore[no-untyped-call]
                self._passed = max(self._passed, mark.number)
                return

    def done_with(self, mark: _CudaMark) -> None:
        """Use the mark's event again."""
        self._free.append(mark.event)

    def finish(self) -> None:
        """Wait until the GPU has passed every mark. For the end of a fit, never for a training step."""
        self._stream.synchronize()
        self._passed = self._made

    def seconds(self, start: _CudaMark, end: _CudaMark) -> float | None:
        """Seconds between two marks, or None while the GPU, when last looked at, had not reached them."""
        if end.number > self._passed:
            return None
        return float(start.event.elapsed_time(end.event)) / 1000.0


class _CudaMark(NamedTuple):
    event: torch.cuda.Event
    number: int
