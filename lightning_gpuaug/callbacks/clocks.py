"""Two clocks for the throughput counter: the host's, and a CUDA stream's."""

from __future__ import annotations

import time

import torch


class HostClock:
    """Marks are host times in seconds; right where work is done when the call returns, as on a CPU."""

    def mark(self) -> float:
        """Now, in seconds."""
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        """Seconds between two marks."""
        return end - start

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

    def mark(self) -> torch.cuda.Event:
        """Record an event; returns at once."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def finish(self) -> None:
        """Wait until the GPU has passed every mark. For the end of a fit, never for a training step."""
        torch.cuda.synchronize(self._device)

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float | None:
        """Seconds between two marks, or None while the GPU has not reached them; asks, never waits."""
        if not (end.query() and start.query()):  # type: ignore[no-untyped-call]
            return None
        return float(start.elapsed_time(end)) / 1000.0
