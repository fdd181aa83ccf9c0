"""The counter on fake clocks: sums, exclusions, late marks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_gpuaug.callbacks.batch_rows import batch_rows
from lightning_gpuaug.callbacks.throughput_counter import Measured, ThroughputCounter
from tests.callbacks.simulated_time import HandClock


class LateClock(HandClock):
    """A GPU's clock: a mark is reached when the queue before it is done, which the host learns later."""

    def __init__(self) -> None:
        self.host = 0.0
        self.busy_until = 0.0
        self.questions = 0

    def launch(self, seconds: float) -> None:
        self.busy_until = max(self.busy_until, self.host) + seconds

    def mark(self) -> float:
        self.busy_until = max(self.busy_until, self.host)
        return self.busy_until

    def reached(self, mark: float) -> bool:
        self.questions += 1
        return mark <= self.host

    def seconds(self, start: float, end: float) -> float:
        assert end <= self.host
        return end - start

    def finish(self) -> None:
        self.host = max(self.host, self.busy_until)


def batch(counter: ThroughputCounter[float], clock: HandClock, wait: float, work: float, rows: int = 1) -> None:
    counter.wait_begins()
    clock.now += wait
    counter.batch_in_hand()
    clock.now += work
    counter.batch_done(rows)


def test_time_runs_from_end_to_end_and_the_wait_from_the_asking() -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=0)
    batch(counter, clock, wait=1.0, work=2.0, rows=4)
    clock.now += 0.5  # callbacks and loggers: training time, not data wait
    batch(counter, clock, wait=0.25, work=2.0, rows=3)
    assert counter.settle() == Measured(images=7, steps=2, seconds=5.75, wait_seconds=1.25)
    assert counter.settle() == counter.settle().since(Measured())


def test_without_asking_the_wait_runs_from_the_end_of_the_batch_before() -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=0)
    for wait in (9.0, 0.5):
        clock.now += wait
        counter.batch_in_hand()
        clock.now += 2.0
        counter.batch_done(4)
    assert counter.settle() == Measured(images=8, steps=2, seconds=4.5, wait_seconds=0.5)


def test_what_is_not_training_does_not_count() -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=0)
    batch(counter, clock, wait=0.0, work=1.0)
    counter.interrupted()
    clock.now += 100.0  # validation, between batches: the next batch counts from its asking
    batch(counter, clock, wait=0.5, work=1.0)
    assert counter.settle() == Measured(images=2, steps=2, seconds=2.5, wait_seconds=0.5)
    clock.now += 50.0  # epoch-end hooks
    counter.epoch_begins()
    clock.now += 0.25  # making the iterator
    batch(counter, clock, wait=0.25, work=1.0)
    assert counter.settle() == Measured(images=3, steps=3, seconds=4.0, wait_seconds=1.0)
    counter.wait_begins()
    counter.batch_in_hand()
    counter.interrupted()  # a checkpoint in the middle of a batch: that batch is no measure of anything
    clock.now += 7.0
    counter.batch_done(1)
    batch(counter, clock, wait=0.0, work=1.0)
    assert counter.settle() == Measured(images=4, steps=4, seconds=5.0, wait_seconds=1.0)
    assert (counter.images, counter.batches) == (5, 5)


def test_warm_up_counts_images_but_no_time() -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=2)
    for work in (60.0, 30.0, 1.0):
        batch(counter, clock, wait=0.0, work=work, rows=4)
    assert counter.images == 12
    assert counter.settle() == Measured(images=4, steps=1, seconds=1.0, wait_seconds=0.0)


def test_accumulated_batches_make_one_step() -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=0)
    for index in range(6):
        counter.wait_begins()
        counter.batch_in_hand()
        clock.now += 1.0
        counter.batch_done(2, stepped=index % 3 == 2)
    assert counter.settle() == Measured(images=12, steps=2, seconds=6.0, wait_seconds=0.0)


@pytest.mark.parametrize("begun", ["warm-up", "spoiled"])
def test_the_time_of_steps_is_that_of_whole_ones(begun: str) -> None:
    """Batches of a step that began unmeasured are images and time, and no part of a step."""
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=2 if begun == "warm-up" else 0)
    for index in range(12):
        counter.wait_begins()
        clock.now += 0.5
        counter.batch_in_hand()
        if begun == "spoiled" and index < 2:
            counter.interrupted()
        clock.now += 1.5
        counter.batch_done(2, stepped=index % 4 == 3)
        if index == 4:  # in the middle of a step
            assert counter.settle().step_seconds == 0.0
    measured = counter.settle()
    assert measured == Measured(images=20, steps=2, seconds=20.0, wait_seconds=5.0)
    assert measured.step_seconds == 16.0
    assert list(counter.step_ms) == [8000.0, 8000.0]


def run_on_a_gpu(load: float, work: float, steps: int) -> tuple[Measured, Measured]:
    clock = LateClock()
    counter = ThroughputCounter(clock, warmup_batches=1)
    for _ in range(steps):
        counter.wait_begins()
        clock.host += load
        counter.batch_in_hand()
        clock.launch(work)
        counter.batch_done(8)
    early = counter.settle()
    clock.host = clock.busy_until
    return early, counter.settle()


def test_the_hosts_wait_is_no_starvation_while_the_gpu_is_busy() -> None:
    early, late = run_on_a_gpu(load=0.3, work=1.0, steps=11)
    assert late == Measured(80, 10, pytest.approx(10.0), pytest.approx(0.0))
    assert 0 < early.steps < 10  # what the GPU has not reached is not read, and not waited for


def test_the_end_of_a_fit_waits_for_the_gpu() -> None:
    """A short fit whose host ran ahead all the way is measured all the same."""
    clock = LateClock()
    counter = ThroughputCounter(clock, warmup_batches=1)
    for _ in range(11):
        counter.wait_begins()
        counter.batch_in_hand()
        clock.launch(1.0)
        counter.batch_done(8)
    assert counter.settle() == Measured()
    assert counter.finish() == Measured(80, 10, pytest.approx(10.0), pytest.approx(0.0))


def test_starvation_is_the_time_the_gpu_was_idle() -> None:
    _, late = run_on_a_gpu(load=1.0, work=0.4, steps=11)
    assert late == Measured(80, 10, pytest.approx(10.0), pytest.approx(6.0))


@dataclass(frozen=True)
class Event:
    kind: str
    wait: int
    work: int
    rows: int


events = st.builds(
    Event,
    st.sampled_from(["batch"] * 4 + ["validate", "epoch"]),
    st.integers(0, 9),
    st.integers(1, 9),
    st.integers(0, 9),
)


@given(st.lists(events, max_size=40), st.integers(0, 5))
def test_totals_are_what_was_delivered(history: list[Event], warmup: int) -> None:
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup)
    for event in history:
        if event.kind == "batch":
            batch(counter, clock, event.wait, event.work, event.rows)
        elif event.kind == "validate":
            counter.interrupted()
            clock.now += 1000
        else:
            clock.now += 1000
            counter.epoch_begins()
    delivered = [event for event in history if event.kind == "batch"]
    measured = delivered[warmup:]
    assert counter.images == sum(event.rows for event in delivered)
    assert counter.batches == len(delivered)
    assert counter.settle() == Measured(
        images=sum(event.rows for event in measured),
        steps=len(measured),
        seconds=sum(event.wait + event.work for event in measured),
        wait_seconds=sum(event.wait for event in measured),
    )


@dataclass
class Sample:
    name: str
    pixels: torch.Tensor


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (torch.zeros(5, 3, 2, 2), 5),
        ((torch.zeros(4, 3, 2, 2), torch.zeros(4)), 4),
        ([torch.zeros(4, 8, 8), torch.zeros(4)], 4),
        ({"name": ["a", "b"], "image": torch.zeros(2, 3, 2, 2), "scale": torch.tensor(1.0)}, 2),
        (((torch.zeros(3, 3, 2, 2), torch.zeros(3, 2, 2)), torch.zeros(3)), 3),
        (([torch.zeros(3, 3, 9, 9), torch.zeros(3, 3, 5, 5)], torch.zeros(3)), 3),  # views of three samples
        (([torch.zeros(3, 9, 7), torch.zeros(3, 5, 6)], [{}, {}]), 2),
        (Sample("a", torch.zeros(6, 3, 2, 2)), 6),
        (torch.zeros(0, 3), 0),
        (torch.tensor(1.0), None),
        (["a", "b"], None),
        ([], None),
        (None, None),
    ],
)
def test_rows_of_any_batch(value: object, rows: int | None) -> None:
    assert batch_rows(value) == rows


def test_marks_do_not_pile_up_when_nobody_asks() -> None:
    """A run that logs nothing: what the clock has reached is read on the way, what it has not is kept."""
    clock = HandClock()
    counter = ThroughputCounter(clock, warmup_batches=0)
    for _ in range(5000):
        batch(counter, clock, wait=0.25, work=0.75, rows=2)
        assert len(counter._pending) < 256
    assert counter.settle() == Measured(images=10000, steps=5000, seconds=5000.0, wait_seconds=1250.0)

    late = LateClock()
    counter = ThroughputCounter(late, warmup_batches=0)
    for _ in range(300):  # the host runs ahead
        counter.wait_begins()
        counter.batch_in_hand()
        late.launch(1.0)
        counter.batch_done(1)
    late.questions = 0
    assert counter.settle().images == 0
    assert late.questions < 12  # however far behind the GPU is
    late.host = 300.0
    assert counter.settle().images == 300


class StrictClock(HandClock):
    """Marks are used again once they are forgotten, so a question about one of those would be answered wrongly."""

    def __init__(self) -> None:
        self.known_from = 0.0
        self.horizon = 0.0

    def mark(self) -> float:
        self.now += 1.0
        return self.now

    def reached(self, mark: float) -> bool:
        assert mark >= self.known_from
        return mark <= self.horizon

    def seconds(self, start: float, end: float) -> float:
        assert self.known_from <= start <= end <= self.horizon
        return end - start

    def forget_before(self, mark: float) -> None:
        assert self.known_from <= mark <= self.horizon
        self.known_from = mark

    def finish(self) -> None:
        self.horizon = self.now


@given(st.lists(st.sampled_from(["batch", "unasked", "interrupt", "spoil", "epoch", "settle"]), max_size=60))
def test_no_mark_is_asked_about_after_it_was_forgotten(events: list[str]) -> None:
    clock = StrictClock()
    counter = ThroughputCounter(clock, warmup_batches=1)
    for event in events:
        if event in ("batch", "unasked", "spoil"):
            if event != "unasked":
                counter.wait_begins()
            counter.batch_in_hand()
            if event == "spoil":
                counter.interrupted()
            counter.batch_done(1)
        elif event == "interrupt":
            counter.interrupted()
        elif event == "epoch":
            counter.epoch_begins()
        else:
            clock.horizon = clock.now - 3.0
            counter.settle()
    measured = counter.finish()
    assert measured.images <= events.count("batch") + events.count("unasked")
    assert 0 <= measured.wait_seconds <= measured.seconds
    if events and events[-1] in ("batch", "unasked", "spoil"):
        assert clock.known_from == clock.now  # all but the last is forgotten
