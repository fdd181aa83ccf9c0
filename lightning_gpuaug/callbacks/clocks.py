"""Two clocks for the throughput counter: the host's, and a CUDA stream's."""

from __future__ import annotations

import time
from collections import deque

import torch


class HostClock:
    """Marks are host times in seconds; right where work is done when the call returns, as on a CPU."""

    mark = staticmethod(time.perf_counter)

    def reached(self, mark: float) -> bool:
        """Always: a mark is reached when it is made."""
        return True

    def seconds(self, start: float, end: float) -> float:
        """Seconds between two marks."""
        return end - start

    host_seconds = seconds

    def forget_before(self, mark: float) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        """Nothing to wait for."""


_CudaMark = tuple[torch.cuda.Event, float]
"""An event, and the host's time when it was recorded."""


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
        self._made: deque[torch.cuda.Event] = deque()  # that somebody may ask for, oldest first
        self._free: list[torch.cuda.Event] = []  # making and destroying an event costs more than recording it

    def mark(self) -> _CudaMark:
        """Record an event; returns at once."""
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._stream)
        self._made.append(event)
        return event, time.perf_counter()

    def reached(self, mark: _CudaMark) -> bool:
        """Whether the GPU has passed a mark, and so all earlier ones."""
        return bool(mark[0].query())  # type: ignore[no-untyped-call]

    def seconds(self, start: _CudaMark, end: _CudaMark) -> float:
        """The GPU's seconds between two marks that it has passed."""
        return float(start[0].elapsed_time(end[0])) / 1000.0

    def host_seconds(self, start: _CudaMark, end: _CudaMark) -> float:
        """The host's seconds between making one and making the other."""
        return end[1] - start[1]

    def forget_before(self, mark: _CudaMark) -> None:
        """Use the events of all marks made before this one again."""
        while self._made[0] is not mark[0]:
            self._free.append(self._made.popleft())

    def finish(self) -> None:
        """Wait until the GPU has passed every mark. For the end of a fit, never for a training step."""
        self._stream.synchronize()
