"""The CUDA clock on a GPU that is made up: which driver calls a step takes, and that events are used again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from lightning_gpuaug.callbacks.clocks import CudaClock
from lightning_gpuaug.callbacks.throughput_counter import Measured, ThroughputCounter


class Gpu:
    """Works through what is launched, one after the other; the host looks at it at the time `host`."""

    def __init__(self) -> None:
        self.host = 0.0
        self.busy_until = 0.0
        self.calls: Counter[str] = Counter()

    def launch(self, seconds: float) -> None:
        self.busy_until = max(self.busy_until, self.host) + seconds


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made_up = Gpu()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing
            made_up.calls["create"] += 1
            self.at = float("inf")

        def record(self, stream: object) -> None:
            assert stream is current
            made_up.calls["record"] += 1
            made_up.launch(0.0)
            self.at = made_up.busy_until

        def query(self) -> bool:
            made_up.calls["query"] += 1
            return self.at <= made_up.host

        def elapsed_time(self, end: Event) -> float:
            made_up.calls["elapsed_time"] += 1
            assert max(self.at, end.at) <= made_up.host, "asking too early is an error of CUDA"
            return (end.at - self.at) * 1000.0

    def synchronize() -> None:
        made_up.calls["synchronize"] += 1
        made_up.host = max(made_up.host, made_up.busy_until)

    current = SimpleNamespace(synchronize=synchronize)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    return made_up


def train(gpu: Gpu, counter: ThroughputCounter[tuple[torch.cuda.Event, float]], steps: int, log_every: int) -> None:
    """Steps of 1 s of work for a GPU that the host runs 3 steps ahead of; batches are there at once."""
    for step in range(steps):
        counter.wait_begins()
        counter.batch_in_hand()
        gpu.launch(1.0)
        counter.batch_done(8)
        gpu.host = max(gpu.host, gpu.busy_until - 3.5)
        if step % log_every == log_every - 1:
            counter.settle()


def test_what_a_step_asks_of_the_driver(gpu: Gpu) -> None:
    counter = ThroughputCounter(CudaClock(torch.device("cuda")), warmup_batches=0)
    train(gpu, counter, 100, log_every=50)
    gpu.calls.clear()
    train(gpu, counter, 1000, log_every=50)
    assert gpu.calls["record"] == 3 * 1000
    assert gpu.calls["elapsed_time"] == 2 * 1000
    assert gpu.calls["query"] <= 8 * 20  # a log
    assert gpu.calls["create"] == gpu.calls["synchronize"] == 0
    assert counter.finish() == Measured(8 * 1100, 1100, pytest.approx(1100.0), pytest.approx(0.0))
    assert gpu.calls["synchronize"] == 1


def test_the_gpus_wait_is_not_the_hosts(gpu: Gpu) -> None:
    clock = CudaClock(torch.device("cuda"))
    start = clock.mark()
    gpu.launch(2.0)
    asked, in_hand = clock.mark(), clock.mark()
    assert [clock.reached(mark) for mark in (start, asked, in_hand)] == [True, False, False]
    gpu.host = 5.0
    late = clock.mark()
    assert clock.seconds(start, asked) == pytest.approx(2.0)
    assert clock.seconds(asked, in_hand) == 0.0
    assert clock.seconds(asked, late) == pytest.approx(3.0)
    assert 0.0 <= clock.host_seconds(start, late) < 5.0
