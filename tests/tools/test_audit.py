"""The audit counts right: it passes what is right, and every kind of wrong plan is caught."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuaug.plan import Indices, Plan
from lightning_gpuaug.tools.audit import Plans, audit_epochs, audit_resume


def plans(size: int, batch: int, kind: type[Plan] = Plan, *, shuffle: bool = True, drop: bool = True) -> Plans:
    return lambda rank, world: kind(size, batch, rank, world, shuffle=shuffle, drop_last=drop)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_the_plan_keeps_its_promise(size: int, batch: int, world: int, drop: bool) -> None:
    row = audit_epochs("train", plans(size, batch, drop=drop), world, 2)
    if size < world or (drop and size < batch * world):
        assert row.refused
        assert row.problems
        return
    assert not row.problems
    assert row.missing == row.twice == 0
    assert row.left_out == (size % (batch * world) if drop else 0)
    assert row.steps == (size // (batch * world) if drop else row.steps)


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 90), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_resumed_epoch_keeps_it_too(size: int, batch: int, one: int, other: int, drop: bool) -> None:
    if drop and size < batch * max(one, other):
        return
    row = audit_resume("train", plans(size, batch, drop=drop), (one, other), epoch=3)
    assert row is None or not row.problems
    assert row is None or row.worlds == (one, other, one)


def test_evaluation_leaves_nothing_out() -> None:
    row = audit_epochs("val", plans(21, 2, shuffle=False, drop=False), 4, 1)
    assert (row.samples, row.steps, row.per_rank, row.left_out, row.problems) == (21, 3, (5, 6), 0, ())


@dataclass(frozen=True)
class Repeats(Plan):
    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        return np.maximum(super().batch(epoch, step, consumed), 1)


@dataclass(frozen=True)
class LeavesOne(Plan):
    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        rows = super().batch(epoch, step, consumed)
        return rows[rows != 5]


@dataclass(frozen=True)
class SameForAll(Plan):
    """Every rank reads the first one's share."""

    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        return Plan(self.size, self.batch_size, 0, self.world, self.shuffle, self.drop_last).batch(
            epoch, step, consumed
        )


@dataclass(frozen=True)
class Uneven(Plan):
    def __len__(self) -> int:
        return super().__len__() - (self.rank == 1)


@dataclass(frozen=True)
class Empties(Plan):
    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        return super().batch(epoch, step, consumed)[: 0 if (self.rank, step) == (1, 2) else None]


@dataclass(frozen=True)
class NeverShuffles(Plan):
    def order(self, epoch: int) -> Indices:
        return super().order(0)


@dataclass(frozen=True)
class Strangers(Plan):
    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        return super().batch(epoch, step, consumed) + (step == 1) * 1000


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Repeats, "samples twice, the first is 1"),
        (LeavesOne, "1 samples missing (0 may be), the first is 5"),
        (SameForAll, "samples twice"),
        (Uneven, "ranks make between 9 and 10 steps"),
        (Empties, "empty batch: rank 1, step 2"),
        (NeverShuffles, "epoch 1 has the order of the one before"),
        (Strangers, "indices outside 0..39"),
    ],
)
def test_every_broken_promise_is_caught(kind: type[Plan], complaint: str) -> None:
    row = audit_epochs("train", plans(40, 2, kind, drop=False), 2, 2)
    assert any(complaint in problem for problem in row.problems), row.problems


@dataclass(frozen=True)
class ForgetsWhatWasTaken(Plan):
    """What happens when a resume counts steps instead of samples."""

    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        return super().batch(epoch, step, 0)

    def first_step(self, consumed: int) -> int:
        return consumed // (self.batch_size * 2)


def test_a_resume_that_counts_steps_is_caught() -> None:
    row = audit_resume("train", plans(64, 2, ForgetsWhatWasTaken), (2, 4))
    assert row is not None
    assert any("twice" in problem or "missing" in problem for problem in row.problems)


def test_an_epoch_of_one_step_cannot_be_resumed() -> None:
    assert audit_resume("train", plans(8, 4), (2, 1)) is None


def test_too_few_samples_are_told_as_setup_tells_them() -> None:
    row = audit_epochs("train", plans(5, 4), 2, 1)
    assert row.refused
    assert "drop_last" in row.problems[0]
    assert audit_resume("train", plans(5, 4), (1, 2)).problems  # type: ignore[union-attr]
