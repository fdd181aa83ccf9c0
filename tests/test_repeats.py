"""Repeated augmentation: the order is timm's `RepeatAugSampler`'s, resuming is exact, repeats draw apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.data.distributed_sampler import RepeatAugSampler

from lightning_gpuaug import Examples, ImageDataModule, TrainRecipe
from lightning_gpuaug.plan import Plan, permutation
from tests.delivered import assert_alike
from tests.images import numbered


@pytest.mark.parametrize("size", [5, 255, 256, 300, 1000])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_each_rank_gets_what_timms_sampler_gives_it(
    size: int, world: int, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = torch.from_numpy(permutation(size, 5, 2).copy())
    monkeypatch.setattr(torch, "randperm", lambda n, generator: order)
    for rank in range(world):
        sampler = RepeatAugSampler(range(size), num_replicas=world, rank=rank, num_repeats=repeats)
        sampler.set_epoch(2)
        theirs = list(sampler)
        plan = Plan(size, 4, rank, world, shuffle=True, drop_last=False, seed=5, repeats=repeats)
        ours = np.concatenate([plan.batch(2, step) for step in range(len(plan))])
        assert ours.tolist() == theirs
        numbers = np.concatenate([plan.repeat_numbers(2, step) for step in range(len(plan))])
        assert np.array_equal(numbers, (np.arange(len(theirs)) * world + rank) % repeats)


def test_a_samples_repeats_are_on_different_ranks_and_have_different_numbers() -> None:
    plans = [Plan(600, 8, rank, 3, shuffle=True, drop_last=True, repeats=3) for rank in range(3)]
    for step in range(len(plans[0])):
        rows = [plan.batch(0, step) for plan in plans]
        assert np.array_equal(rows[0], rows[1])
        assert np.array_equal(rows[1], rows[2])
        for rank in range(3):
            assert (plans[rank].repeat_numbers(0, step) == rank).all()
    assert len(plans[0]) == 600 // 256 * 256 // 24


@pytest.mark.parametrize("world_after", [1, 2, 3])
def test_an_epoch_continues_where_it_was(world_after: int) -> None:
    before = [Plan(300, 4, rank, 2, shuffle=True, drop_last=True, repeats=3) for rank in range(2)]
    consumed = before[0].consumed(10)
    order = before[0].order(4)
    after = [Plan(300, 4, rank, world_after, shuffle=True, drop_last=True, repeats=3) for rank in range(world_after)]
    first = after[0].first_step(consumed)
    position = consumed
    for step in range(first, len(after[0])):
        got = np.stack([plan.batch(4, step, consumed) for plan in after], axis=1).ravel()
        numbers = np.stack([plan.repeat_numbers(4, step, consumed) for plan in after], axis=1).ravel()
        assert np.array_equal(got, order[position : position + len(got)])
        assert np.array_equal(numbers, np.arange(position, position + len(got)) % 3)
        position += len(got)
    assert len(order) - position < 4 * world_after


def test_an_epoch_that_ended_on_another_world_goes_on_with_the_next() -> None:
    two, three = (Plan(600, 2, 0, world, shuffle=True, repeats=2) for world in (2, 3))
    assert two.positions > three.positions
    assert three.first_step(two.positions) == len(three)


def test_repeats_must_be_positive() -> None:
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        Plan(5, 1, repeats=0)
    with pytest.raises(ValueError, match=r"TrainRecipe.repeats must be a whole number in 1\.\.64, got 0"):
        TrainRecipe(repeats=0)


def module(root: Path, **recipe: object) -> ImageDataModule:
    return ImageDataModule(
        train=numbered(root, 24), batch_size=6, image_size=16, num_threads=1, seed=3,
        train_recipe=TrainRecipe(**recipe),  # type: ignore[arg-type]
    ).setup_for("cpu")  # fmt: skip


@pytest.mark.parametrize("recipe", [{}, {"auto": "rand-m9-inc1"}], ids=["plain", "program"])
def test_repeats_of_a_sample_look_different_and_an_epoch_resumes_to_the_bit(
    tmp_path: Path, recipe: dict[str, object]
) -> None:
    dm = module(tmp_path, repeats=3, **recipe)
    batches = list(dm.train_dataloader())
    labels = torch.cat([targets for _, targets in batches])
    assert labels.tolist() == np.repeat(permutation(24, 3, 0), 3)[:24].tolist()
    images = torch.cat([images for images, _ in batches])
    for label in labels.unique():
        same = images[labels == label]
        assert len(same) == 3
        assert not torch.equal(same[0], same[1])
        assert not torch.equal(same[1], same[2])

    begun = module(tmp_path, repeats=3, **recipe)
    passing = iter(begun.train_dataloader())
    next(passing), next(passing)
    state = begun.state_dict()
    resumed = module(tmp_path, repeats=3, **recipe)
    resumed.load_state_dict(state)
    rest = list(resumed.train_dataloader())
    assert len(rest) == 2
    assert_alike(rest, batches[2:])
    other = module(tmp_path, repeats=2, **recipe)
    with pytest.raises(ValueError, match=r"train_recipe.repeats is 2 now, 3 in the checkpoint"):
        other.load_state_dict(state)
    for each in (dm, begun, resumed):
        each.teardown("test")


@dataclass(frozen=True)
class Given:
    """A sampler with a fixed order."""

    indices: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.indices)

    def order(self, seed: int, epoch: int) -> np.ndarray:
        return np.array(self.indices)


def test_showings_of_a_samplers_samples_are_counted_over_all_ranks() -> None:
    sampler = Given((3, 1, 3, 3, 0, 1, 3, *[7] * 70))
    plans = [Plan(sampler.size, 4, rank, 2, drop_last=False, sampler=sampler) for rank in range(2)]
    numbers = np.zeros(sampler.size, dtype=np.int64)
    for rank, plan in enumerate(plans):
        numbers[rank::2] = np.concatenate([plan.repeat_numbers(0, step) for step in range(len(plan))])
    assert numbers.tolist() == [0, 0, 1, 2, 0, 1, 3, *range(64), *range(6)]
    assert Plan(9, 4, shuffle=True).repeat_numbers(0, 0) == 0  # every sample once: nothing to count


def test_a_sample_drawn_again_is_augmented_anew(tmp_path: Path) -> None:
    files = numbered(tmp_path, 4).paths
    source = Examples([(path, i) for i, path in enumerate(files)], order=lambda seed, epoch: [2] * 8)
    data = ImageDataModule(train=source, batch_size=8, image_size=8, seed=1).setup_for("cpu")
    images, labels = next(iter(data.train_dataloader()))
    data.teardown("fit")
    assert labels.tolist() == [2] * 8
    assert len({tuple(image.flatten().tolist()) for image in images}) == 8
