"""Timing: what is counted, under a clock of our own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lightning_gpuaug.bench import timing


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=found.perf_counter))
    return found


def test_median_and_deciles_without_the_first_call(clock: Clock) -> None:
    takes = iter([100.0, 1.0, 2.0, 3.0, 4.0, 50.0])  # the first is the warm-up, the last an outlier

    def call(i: int) -> None:
        clock.now += next(takes)

    found = timing.clock(call, calls=5)
    assert found.median_us == found.host_us == pytest.approx(3e6)
    assert found.p10_us < found.median_us < found.p90_us


def test_as_many_calls_as_fit_and_three_at_least(clock: Clock) -> None:
    made = []

    def call(i: int) -> None:
        made.append(i)
        clock.now += 0.25

    timing.clock(call, seconds=2.0)
    assert len(made) == 1 + 8
    made.clear()
    timing.time_calls(call, torch.device("cpu"), seconds=0.0)
    assert len(made) == 1 + 3


def test_images_per_second_without_the_warm_up(clock: Clock) -> None:
    made = 0

    def step() -> None:
        nonlocal made
        made += 1
        clock.now += 60.0 if made <= 12 else 0.5

    assert timing.images_per_second(step, batch_size=64, seconds=10.0) == pytest.approx(128)
    assert made == 12 + 20


def test_a_copy_moves_half_of_the_traffic_each_way() -> None:
    found = timing.copy_timing(1 << 12, torch.device("cpu"), seconds=0.0)
    assert 0 < found.p10_us <= found.median_us <= found.p90_us
