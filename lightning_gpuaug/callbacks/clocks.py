"""Two clocks for the throughput counter: the host's, and a CUDA stream's."""

from __future__ import annotations

import time
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

    def done_with(self, mark: float) -> None:
        """Nothing to keep."""

    def finish(self) -> None:
        """Nothing to wait for: a mark is passed when it is made."""


class CudaClock:
    """Marks are events on the device's current stream: the time the GPU gets there, whenever the host was there.

    A batch's wait measured so is the time the GPU sat idle for it: when the host runs ahead, the mark "asked for" and
    the mark "in hand" are both passed the moment the GPU finishes the step before, and their distance is zero however
    long the host itself waited.
    """

    def __init__(self, device: torch.device) -> None:
        """Mark the current stream of `device`."""
        self._device = device
        self._free: list[torch.cuda.Event] = []  # making and destroying an event costs more than recording it
        self._made = 0
        self._passed = -1

    def mark(self) -> _CudaMark:
        """Record an event; returns at once."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        self._made += 1
        return _CudaMark(event, self._made)

    def done_with(self, mark: _CudaMark) -> None:
        """Use the mark's event again."""
        self._free.append(mark.event)

    def finish(self) -> None:
        """Wait until the GPU has passed every mark. For the end of a fit, never for a training step."""
        torch.cuda.synchronize(self._device)

    def seconds(self, start: _CudaMark, end: _CudaMark) -> float | None:
        """Seconds between two marks, or None while the GPU has not reached them; asks, never waits."""
        # What is behind a mark of the same stream is passed too; marks of other streams are few, and say so below.
        if end.number > self._passed:
            if not (end.event.query() and start.event.query()):  # type: ignore[no-untyped-call]
                return None
            self._passed = end.number
        try:
            return float(start.event.elapsed_time(end.event)) / 1000.0
        except RuntimeError:  # of another stream, and not there yet
            return None


class _CudaMark(NamedTuple):
    event: torch.cuda.Event
    number: int
