"""How long a call takes: CUDA events on a GPU, the clock on the CPU; always after a warm-up, always a median."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS, CALLS, CALLS_AHEAD = 30, 200, 20
BUFFERS = 4
"""Inputs and outputs rotate through so many buffers, which at benchmark sizes are larger than the L2 cache together."""


@dataclass(frozen=True)
class Timing:
    """Times of one call, µs.

    Attributes:
        median_us: middle of all calls.
        p10_us: a tenth of the calls took less.
        p90_us: a tenth of the calls took more.
        host_us: what the call keeps the Python thread for; on the CPU that is all of it.
    """

    median_us: float
    p10_us: float
    p90_us: float
    host_us: float


def time_calls(call: Callable[[int], object], device: torch.device | None = None, seconds: float = 1.0) -> Timing:
    """Time `call(i)` for i = 0, 1, …, by CUDA events on a GPU and by the clock on the CPU.

    Args:
        call: what to time; its results are kept for BUFFERS calls, so that outputs rotate through memory too.
        device: where it runs; the current CUDA device if None.
        seconds: about how long to measure on the CPU, at least three calls. A GPU is measured for 200 calls.
    """
    if device is not None and device.type == "cpu":
        return clock(call, seconds=seconds)
    kept: deque[object] = deque(maxlen=BUFFERS)
    for i in range(WARM_UPS):
        kept.append(call(i))
    torch.cuda.synchronize()
    spans, host = [], []
    for start in range(0, CALLS, CALLS_AHEAD):
        events = [(_event(), _event()) for _ in range(CALLS_AHEAD)]
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]  # about 10 ms: all calls are queued before the first runs
        began = time.perf_counter()
        for i, (before, after) in enumerate(events):
            before.record()
            kept.append(call(start + i))
            after.record()
        host.append((time.perf_counter() - began) / CALLS_AHEAD * 1e6)
        torch.cuda.synchronize()
        spans += [before.elapsed_time(after) * 1e3 for before, after in events]
    return _summary(spans, statistics.median(host))


def clock(call: Callable[[int], object], calls: int | None = None, seconds: float = 1.0) -> Timing:
    """Time `call(i)` by the clock, the end of the device's work included.

    Args:
        call: what to time.
        calls: how many; None for as many as fit, at least 3 and at most 200.
        seconds: how long, if `calls` is None.
    """
    call(0)
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < (calls or 3) or (calls is None and len(times) < CALLS and time.perf_counter() - began < seconds):
        synchronize()
        start = time.perf_counter()
        call(len(times))
        synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return _summary(times, statistics.median(times))


def copy_timing(traffic: int, device: torch.device | None = None, seconds: float = 1.0) -> Timing:
    """A copy within the device's memory that reads and writes `traffic` bytes in all: the floor of any op."""
    on = device if device is not None else torch.device("cuda")
    sources = [torch.ones(traffic // 2, dtype=torch.uint8, device=on) for _ in range(BUFFERS)]
    targets = [torch.empty_like(source) for source in sources]
    return time_calls(lambda i: targets[i % BUFFERS].copy_(sources[i % BUFFERS]), on, seconds)


def synchronize() -> None:
    """Wait for the GPU, if there is one in use."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def images_per_second(
    step: Callable[[], object], batch_size: int, seconds: float, warm_up: int = 12, at_once: int = 4
) -> float:
    """Rate of a source of batches over about `seconds`, after `warm_up` batches.

    Args:
        step: makes the next batch.
        batch_size: images in it.
        seconds: how long to measure.
        warm_up: batches before that.
        at_once: batches between two looks at the clock.
    """
    for _ in range(warm_up):
        step()
    synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(at_once):
            step()
        count += at_once
    synchronize()
    return count * batch_size / (time.perf_counter() - begin)


def _summary(spans: list[float], host: float) -> Timing:
    deciles = statistics.quantiles(spans, n=10, method="inclusive")
    return Timing(statistics.median(spans), deciles[0], deciles[-1], host)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
