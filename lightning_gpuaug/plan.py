"""Which sample comes when: integers only, no I/O, no state.

An epoch is one global order of the samples, cut into *global batches*; each global batch is dealt to the ranks like
cards. Everything a loader promises about order follows from that: ranks are disjoint, every rank makes the same
number of steps, and what has been consumed is always a prefix of the order, so that an epoch can be continued by any
number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.recipe import MOST_REPEATS
from lightning_gpuaug.sources.base import Sampler

Indices = NDArray[np.int64]

_ROUND = 256
"""Of the length of an epoch with repeats; timm's `selected_round`."""


class _Cuts:
    """Where a run of `size` samples is cut into global batches."""

    def __init__(self, size: int, batch_size: int, world: int, drop_last: bool) -> None:
        full, rest = divmod(size, batch_size * world)
        self.size, self.batch = size, batch_size * world
        if drop_last or rest == 0:
            self.steps, self.tail = full, None
        elif rest >= world:
            self.steps, self.tail = full + 1, full * self.batch
        elif full and batch_size > 1:
            # Fewer samples left than ranks: the step before gives some up, so that no rank gets an empty batch.
            self.steps, self.tail = full + 1, size - world
        elif full:
            # Batches of one have nothing to give up, so the last step takes the rest in (two rows on some ranks).
            self.steps, self.tail = full, (full - 1) * self.batch
        else:
            self.steps, self.tail = 0, None  # cannot be dealt: fewer samples than ranks

    def bounds(self, step: int) -> tuple[int, int]:
        """First and last + 1 position of a global batch in the order."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step must be in 0..{self.steps - 1}, got {step}")
        begin, end = step * self.batch, (step + 1) * self.batch
        if self.tail is not None:
            if step == self.steps - 1:
                return self.tail, self.size
            end = min(end, self.tail)
        return begin, end


@lru_cache(maxsize=4)
def permutation(size: int, seed: int, epoch: int) -> Indices:
    """The shuffled order of an epoch, (size,) int64, read-only.

    Built from the raw stream of NumPy's Philox generator, which NumPy keeps stable across versions (its
    `Generator.permutation` is not), so that a checkpoint continues the same order years later.
    """
    keys = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(size)
    order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
    order.flags.writeable = False
    return order


@dataclass(frozen=True)
class Plan:
    """The samples of every step of every epoch for one rank.

    Attributes:
        size: number of samples in the data set, over all ranks.
        batch_size: samples per rank and step.
        rank: this process, 0..world-1.
        world: number of processes that share the data set.
        shuffle: a new global permutation each epoch; otherwise the data set's own order.
        drop_last: leave out the samples that do not fill a global batch. Otherwise every sample comes exactly once
            an epoch, the last batches are smaller, and no rank ever gets an empty one.
        seed: of the permutations, 0..2**32-1.
        repeats: repeated augmentation, as timm's `RepeatAugSampler` and DeiT have it: each sample comes so many times
            in a row of the order, so that its neighbours are on different ranks. The epoch keeps about its length: it
            ends after `size` positions, cut down to a multiple of 256 (if there are so many) and of `world`.
        sampler: gives the order of each epoch in place of a permutation; `size` is then the sampler's.
    """

    size: int
    batch_size: int
    rank: int = 0
    world: int = 1
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    repeats: int = 1
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be dealt."""
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be in 0..world-1, got rank {self.rank} of world {self.world}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in 0..2**32-1, got {self.seed}")
        if self.repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.repeats}")
        if self.size < self.world:
            raise ValueError(f"every rank needs a sample: {self.size} samples < {self.world} ranks")
        if len(self) == 0:
            need = self.batch_size * self.world
            raise ValueError(
                f"0 steps: {self.positions} samples do not fill one batch of batch_size {self.batch_size} × "
                f"{self.world} rank(s) = {need} and drop_last is on; lower batch_size or set drop_last=False"
            )

    def __len__(self) -> int:
        """Steps an epoch, equal on every rank."""
        return self._cuts(0).steps

    @property
    def positions(self) -> int:
        """Length of an epoch's order, over all ranks."""
        if self.repeats == 1:
            return self.size
        if self.size < _ROUND:
            return -(-self.size // self.world) * self.world
        return self.size // _ROUND * _ROUND // self.world * self.world

    def order(self, epoch: int) -> Indices:
        """All samples in the order of this epoch, over all ranks: (positions,), repeats included."""
        seed = self.seed if self.shuffle or self.sampler is not None else None
        return _order(self.size, seed, epoch, self.repeats, self.positions, self.sampler)

    def first_step(self, consumed: int) -> int:
        """The step at which an epoch continues after `consumed` of its samples were taken (by any topology)."""
        return len(self) - self._cuts(consumed).steps

    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        """Sample indices of this rank's batch.

        Args:
            epoch: number of the epoch.
            step: number of the step in the epoch, 0..len-1.
            consumed: samples of this epoch that an earlier run, of whatever world and batch size, had taken before
                step `first_step(consumed)`; the rest is dealt anew.
        """
        return self.order(epoch)[self._positions(step, consumed)]

    def repeat_numbers(self, epoch: int, step: int, consumed: int = 0) -> Indices | int:
        """Which showing of its sample in the epoch each row of `batch` is, (N,), or 0 for all where each comes once.

        The numbers go up to `MOST_REPEATS` - 1 and begin again: a sampler may show a sample any number of times.
        """
        if self.repeats == 1 and self.sampler is None:
            return 0
        span = self._positions(step, consumed)
        if self.sampler is None:
            return np.arange(span.start, span.stop, span.step, dtype=np.int64) % self.repeats
        return _showings(self.size, self.seed, epoch, self.repeats, self.positions, self.sampler)[span]

    def _positions(self, step: int, consumed: int) -> slice:
        """Where in the order this rank's batch is."""
        begin, end = self._cuts(consumed).bounds(step - self.first_step(consumed))
        return slice(consumed + begin + self.rank, consumed + end, self.world)

    def consumed(self, steps: int, consumed: int = 0) -> int:
        """Samples of the epoch taken by all ranks once `steps` of its steps are done, `consumed` as in `batch`."""
        done = steps - self.first_step(consumed)
        return consumed if done <= 0 else consumed + self._cuts(consumed).bounds(done - 1)[1]

    def _cuts(self, consumed: int) -> _Cuts:
        return _cuts(max(0, self.positions - consumed), self.batch_size, self.world, self.drop_last)


@lru_cache(maxsize=64)
def _cuts(size: int, batch_size: int, world: int, drop_last: bool) -> _Cuts:
    return _Cuts(size, batch_size, world, drop_last)


@lru_cache(maxsize=4)
def _order(size: int, seed: int | None, epoch: int, repeats: int, positions: int, sampler: Sampler | None) -> Indices:
    """The order of an epoch; without a seed, the data set's own."""
    if seed is None:
        order = _identity(size)
    elif sampler is not None:
        order = np.array(sampler.order(seed, epoch), dtype=np.int64)
    else:
        order = permutation(size, seed, epoch)
    if repeats > 1:
        order = order[np.arange(positions) // repeats]
    order.flags.writeable = False
    return order


@lru_cache(maxsize=4)
def _showings(size: int, seed: int, epoch: int, repeats: int, positions: int, sampler: Sampler) -> Indices:
    """How often the sample at each position of an order has come before, modulo `MOST_REPEATS`."""
    order = _order(size, seed, epoch, repeats, positions, sampler)
    by_sample = np.argsort(order, kind="stable")
    grouped = order[by_sample]
    place = np.arange(len(order))
    first = np.maximum.accumulate(np.where(np.diff(grouped, prepend=-1) != 0, place, 0))
    showings = np.empty_like(order)
    showings[by_sample] = (place - first) % MOST_REPEATS
    return showings


@lru_cache(maxsize=4)
def _identity(size: int) -> Indices:
    order = np.arange(size, dtype=np.int64)
    order.flags.writeable = False
    return order
