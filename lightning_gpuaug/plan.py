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

from lightning_gpuaug.sources.base import Sampler

Indices = NDArray[np.int64]


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
        sampler: gives the order of each epoch in place of a permutation; `size` is then the sampler's.
    """

    size: int
    batch_size: int
    rank: int = 0
    world: int = 1
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    sampler: Sampler | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be dealt."""
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.batch_size}")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be in 0..world-1, got rank {self.rank} of world {self.world}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be in 0..2**32-1, got {self.seed}")
        if self.size < self.world:
            raise ValueError(f"every rank needs a sample: {self.size} samples < {self.world} ranks")
        if len(self) == 0:
            need = self.batch_size * self.world
            raise ValueError(
                f"0 steps: {self.size} samples do not fill one batch of batch_size {self.batch_size} × "
                f"{self.world} rank(s) = {need} and drop_last is on; lower batch_size or set drop_last=False"
            )

    def __len__(self) -> int:
        """Steps an epoch, equal on every rank."""
        return self._cuts(0).steps

    def order(self, epoch: int) -> Indices:
        """All samples in the order of this epoch, over all ranks."""
        if self.sampler is not None:
            return _sampled(self.sampler, self.seed, epoch)
        return permutation(self.size, self.seed, epoch) if self.shuffle else _identity(self.size)

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
        begin, end = self._cuts(consumed).bounds(step - self.first_step(consumed))
        return self.order(epoch)[consumed + begin : consumed + end][self.rank :: self.world]

    def consumed(self, steps: int, consumed: int = 0) -> int:
        """Samples of the epoch taken by all ranks once `steps` of its steps are done, `consumed` as in `batch`."""
        done = steps - self.first_step(consumed)
        return consumed if done <= 0 else consumed + self._cuts(consumed).bounds(done - 1)[1]

    def _cuts(self, consumed: int) -> _Cuts:
        return _cuts(self.size - consumed, self.batch_size, self.world, self.drop_last)


@lru_cache(maxsize=64)
def _cuts(size: int, batch_size: int, world: int, drop_last: bool) -> _Cuts:
    return _Cuts(size, batch_size, world, drop_last)


@lru_cache(maxsize=4)
def _sampled(sampler: Sampler, seed: int, epoch: int) -> Indices:
    order = np.array(sampler.order(seed, epoch), dtype=np.int64)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=4)
def _identity(size: int) -> Indices:
    order = np.arange(size, dtype=np.int64)
    order.flags.writeable = False
    return order
