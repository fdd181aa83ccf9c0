"""The plan's promises, as properties over sizes, batch sizes, worlds and histories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lightning_gpuaug.plan import Plan, permutation

sizes, batches, worlds = st.integers(1, 64), st.integers(1, 9), st.integers(1, 4)


def plans(size: int, batch_size: int, world: int, **options: object) -> list[Plan]:
    return [Plan(size, batch_size, rank, world, **options) for rank in range(world)]  # type: ignore[arg-type]


@given(sizes, batches, worlds, st.booleans(), st.integers(0, 5))
def test_evaluation_is_exact(size: int, batch_size: int, world: int, shuffle: bool, epoch: int) -> None:
    assume(size >= world)
    ranks = plans(size, batch_size, world, shuffle=shuffle)
    assert len({len(plan) for plan in ranks}) == 1
    rows = [plan.batch(epoch, step) for plan in ranks for step in range(len(plan))]
    assert sorted(np.concatenate(rows)) == list(range(size))
    assert min(map(len, rows)) >= 1
    assert max(map(len, rows)) <= max(batch_size, 2 if world > 1 else 1)


@given(sizes, batches, worlds)
def test_evaluation_deals_like_a_distributed_sampler(size: int, batch_size: int, world: int) -> None:
    assume(size >= world)
    for rank, plan in enumerate(plans(size, batch_size, world)):
        rows = np.concatenate([plan.batch(0, step) for step in range(len(plan))])
        full = (size // (batch_size * world)) * batch_size * world
        assert rows[rows < min(full, size - world)].tolist() == list(range(rank, min(full, size - world), world))


@given(sizes, batches, worlds, st.integers(0, 5), st.integers(0, 3))
def test_training_drops_only_the_remainder(size: int, batch_size: int, world: int, epoch: int, seed: int) -> None:
    assume(size >= batch_size * world)
    ranks = plans(size, batch_size, world, shuffle=True, drop_last=True, seed=seed)
    rows = [plan.batch(epoch, step) for plan in ranks for step in range(len(plan))]
    assert {len(r) for r in rows} == {batch_size}
    seen = np.concatenate(rows)
    assert len(set(seen.tolist())) == len(seen) == size // (batch_size * world) * batch_size * world


@given(sizes, batches, worlds, batches, worlds, st.data())
def test_an_epoch_continues_under_another_topology(
    size: int, batch: int, world: int, batch2: int, world2: int, data: st.DataObject
) -> None:
    assume(size >= max(batch * world, batch2 * world2))
    before = plans(size, batch, world, shuffle=True, drop_last=True, seed=3)
    after = plans(size, batch2, world2, shuffle=True, drop_last=True, seed=3)
    done = data.draw(st.integers(0, len(before[0])))
    consumed = before[0].consumed(done)
    first = after[0].first_step(consumed)
    head = [plan.batch(1, step) for plan in before for step in range(done)]
    tail = [plan.batch(1, step, consumed) for plan in after for step in range(first, len(after[0]))]
    seen = np.concatenate([*head, *tail, np.empty(0, np.int64)])
    assert len(set(seen.tolist())) == len(seen)
    assert size - len(seen) < batch2 * world2
    assert after[0].consumed(len(after[0]), consumed) == len(seen)


@given(sizes, batches, worlds, st.data())
def test_the_same_topology_continues_as_if_nothing_had_happened(
    size: int, batch: int, world: int, data: st.DataObject
) -> None:
    drop_last = data.draw(st.booleans())
    assume(size >= (batch * world if drop_last else world))
    plan = Plan(size, batch, world - 1, world, shuffle=True, drop_last=drop_last)
    step = data.draw(st.integers(0, len(plan) - 1))
    consumed = plan.consumed(step)
    assert plan.first_step(consumed) == step
    assert plan.batch(2, step, consumed).tolist() == plan.batch(2, step).tolist()


def test_order_depends_on_seed_and_epoch_alone() -> None:
    a = permutation(100, 1, 0)
    assert a.tolist() == permutation(100, 1, 0).tolist()
    assert sorted(a.tolist()) == list(range(100))
    assert a.tolist() != permutation(100, 2, 0).tolist()
    assert a.tolist() != permutation(100, 1, 1).tolist()


def test_order_is_pinned() -> None:
    """A checkpoint of this version has to continue with later ones: these numbers never change."""
    assert permutation(10, 0, 0).tolist() == PINNED


PINNED = [0, 2, 9, 1, 8, 5, 4, 3, 6, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 2, "batch_size": 1, "world": 4}, "2 samples < 4 ranks"),
        ({"size": 3, "batch_size": 8, "drop_last": True}, "0 steps: 3 samples do not fill one batch of batch_size 8"),
        ({"size": 3, "batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"size": 3, "batch_size": 1, "rank": 2, "world": 2}, "rank 2 of world 2"),
        ({"size": 3, "batch_size": 1, "seed": -1}, "seed must be in"),
    ],
)
def test_what_cannot_be_dealt_is_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        Plan(**arguments)  # type: ignore[arg-type]


def test_small_evaluation_is_one_short_batch() -> None:
    assert Plan(3, 8).batch(0, 0).tolist() == [0, 1, 2]
