"""Proof by counting that a plan delivers every sample as promised, on any number of ranks and across resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.plan import Indices, Plan

#: (rank, world) to the plan of that rank.
Plans = Callable[[int, int], Plan]
_TELLING_SIZE = 20
"""So many samples are never shuffled to the same order twice by chance."""


@dataclass(frozen=True)
class Coverage:
    """What a stage's plan delivers on some number of ranks.

    Attributes:
        stage: "train", "val", "test" or "predict".
        worlds: numbers of ranks: one, or those that follow each other when an epoch is resumed.
        batch_size: samples per rank and step.
        epochs: how many were walked.
        steps: of an epoch (a resumed one: all that were made).
        per_rank: fewest and most samples a rank gets in an epoch.
        samples: in the data set.
        missing: samples that do not come in an epoch though they should; the most of all epochs.
        twice: samples that come more than once in an epoch; the most of all epochs.
        left_out: samples that do not fill the last global batch and are left out of a training epoch, as asked.
        problems: what is wrong, one line each; none if the promise holds.
    """

    stage: str
    worlds: tuple[int, ...]
    batch_size: int = 0
    epochs: int = 0
    steps: int = 0
    per_rank: tuple[int, int] = (0, 0)
    samples: int = 0
    missing: int = 0
    twice: int = 0
    left_out: int = 0
    problems: tuple[str, ...] = ()
    refused: bool = False
    """Whether there are too few samples for so many ranks, which set-up would refuse (the problem says why)."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **vars(self),
            "worlds": list(self.worlds),
            "per_rank": list(self.per_rank),
            "problems": [*self.problems],
        }


@dataclass
class _Tally:
    """What was delivered in one epoch."""

    expected: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64] = field(init=False)
    strangers: int = 0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = np.zeros_like(self.expected)

    def add(self, batch: Indices, most: int, where: str) -> None:
        if not len(batch):
            self.problems.append(f"empty batch: {where}")
        if len(batch) > most:
            self.problems.append(f"batch of {len(batch)}, more than {most}: {where}")
        known = batch[(batch >= 0) & (batch < len(self.expected))]
        self.strangers += len(batch) - len(known)
        np.add.at(self.counts, known, 1)

    @property
    def absent(self) -> int:
        """Deliveries that did not take place."""
        return int(np.maximum(self.expected - self.counts, 0).sum())

    @property
    def twice(self) -> int:
        """Samples that came more often than they should."""
        return int((self.counts > self.expected).sum())

    def judge(self, may_leave_out: int, epoch: int) -> Iterator[str]:
        yield from (f"epoch {epoch}: {problem}" for problem in self.problems[:3])
        if self.strangers:
            yield f"epoch {epoch}: {self.strangers} indices outside 0..{len(self.expected) - 1}"
        if self.twice:
            first = int(np.argmax(self.counts > self.expected))
            yield f"epoch {epoch}: {self.twice} samples twice, the first is {first}"
        if self.absent > may_leave_out:
            first = int(np.argmax(self.counts < self.expected))
            yield f"epoch {epoch}: {self.absent} samples missing ({may_leave_out} may be), the first is {first}"


def _expected(plan: Plan, epoch: int) -> npt.NDArray[np.int64]:
    """How often each sample should come in an epoch: once, unless a sampler or repeated augmentation says otherwise."""
    if getattr(plan, "sampler", None) is None and getattr(plan, "repeats", 1) == 1:
        return np.ones(plan.size, dtype=np.int64)
    return np.bincount(plan.order(epoch))


def audit_epochs(stage: str, plans: Plans, world: int, epochs: int) -> Coverage:
    """Walk whole epochs with every rank.

    Checked: all ranks make the same number of steps; no batch is empty or too large; no sample comes twice, none is
    missing but for those that do not fill a global batch where `drop_last` is on; a shuffled order differs from one
    epoch to the next.

    Args:
        stage: its name, for the report.
        plans: makes the plan of a rank.
        world: number of ranks.
        epochs: how many to walk, at least 1.
    """
    try:
        ranks = [plans(rank, world) for rank in range(world)]
    except ValueError as error:
        return Coverage(stage, (world,), problems=(str(error),), refused=True)
    first = ranks[0]
    problems: list[str] = []
    lengths = sorted({len(plan) for plan in ranks})
    if len(lengths) > 1:
        problems.append(f"ranks make between {lengths[0]} and {lengths[-1]} steps")
    may_leave_out = first.batch_size * world - 1 if first.drop_last else 0
    most = max(2, first.batch_size) if not first.drop_last else first.batch_size
    absent, twice, per_rank = 0, 0, np.zeros(world, dtype=np.int64)
    former: Indices | None = None
    for epoch in range(epochs):
        tally, per_rank = _Tally(_expected(first, epoch)), np.zeros(world, dtype=np.int64)
        order: list[Indices] = []
        for rank, plan in enumerate(ranks):
            for step in range(len(plan)):
                batch = plan.batch(epoch, step)
                tally.add(batch, most, f"rank {rank}, step {step}")
                per_rank[rank] += len(batch)
                order.append(batch)
        problems += tally.judge(may_leave_out, epoch)
        absent, twice = max(absent, tally.absent), max(twice, tally.twice)
        walked = np.concatenate(order)
        if first.shuffle and first.size >= _TELLING_SIZE and former is not None and np.array_equal(walked, former):
            problems.append(f"epoch {epoch} has the order of the one before")
        former = walked
    return Coverage(
        stage=stage,
        worlds=(world,),
        batch_size=first.batch_size,
        epochs=epochs,
        steps=len(first),
        per_rank=(int(per_rank.min()), int(per_rank.max())),
        samples=first.size,
        missing=max(0, absent - may_leave_out),
        twice=twice,
        left_out=min(absent, may_leave_out),
        problems=tuple(problems),
    )


def audit_resume(stage: str, plans: Plans, worlds: tuple[int, int], epoch: int = 0) -> Coverage | None:
    """Walk an epoch that is interrupted twice: begun by `worlds[0]` ranks, continued by `worlds[1]`, ended as begun.

    Three such epochs are walked, interrupted for the first time after one step, at a third, and before the last step,
    and for the second time half-way through the rest. In each, all ranks together must get every sample once, but for
    those that do not fill the last global batch.

    Args:
        stage: its name, for the report.
        plans: makes the plan of a rank.
        worlds: two numbers of ranks.
        epoch: number of the epoch to walk.

    Returns:
        What was counted; None for an epoch of one step, which cannot be interrupted.
    """
    chain = (worlds[0], worlds[1], worlds[0])
    try:
        before, after = ([plans(rank, world) for rank in range(world)] for world in worlds)
    except ValueError as error:
        return Coverage(stage, chain, problems=(str(error),), refused=True)
    steps, first = len(before[0]), before[0]
    if steps < 2:
        return None
    problems: list[str] = []
    absent = twice = made = 0
    # What the last ranks cannot share is left out even where drop_last is off: they must make equal steps.
    may_leave_out = (first.batch_size if first.drop_last else 1) * worlds[0] - 1
    for stop in sorted({1, steps // 3, steps - 1} & set(range(1, steps))):
        tally, consumed, made = _Tally(_expected(first, epoch)), 0, 0
        for ranks, share in ((before, stop), (after, 0.5), (before, 1.0)):
            begin = ranks[0].first_step(consumed)
            end = stop if isinstance(share, int) else begin + round((len(ranks[0]) - begin) * share)
            for rank, plan in enumerate(ranks):
                for step in range(begin, end):
                    batch = plan.batch(epoch, step, consumed)
                    tally.add(batch, max(2, plan.batch_size), f"rank {rank} of {len(ranks)}, step {step}")
            consumed = ranks[0].consumed(end, consumed)
            made += end - begin
        problems += (f"interrupted after step {stop}: {problem}" for problem in tally.judge(may_leave_out, epoch))
        absent, twice = max(absent, tally.absent), max(twice, tally.twice)
    return Coverage(
        stage=stage,
        worlds=chain,
        batch_size=first.batch_size,
        epochs=1,
        steps=made,
        samples=first.size,
        missing=max(0, absent - may_leave_out),
        twice=twice,
        left_out=min(absent, may_leave_out),
        problems=tuple(problems),
    )
