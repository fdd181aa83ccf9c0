"""Laying in a stock of batches, so that the next training steps wait for none.

The batches are the run's own, in their own order, each trained on once: nothing is replayed and nothing is skipped.
That is only so where getting a batch early changes neither it nor anything else, and `stocker_of` says where that is.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.distributed import DistributedSamplerWrapper
from lightning.pytorch.loops.fetchers import _PrefetchDataFetcher
from torch.utils._pytree import tree_leaves
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

if TYPE_CHECKING:  # someone with another loader need not have DALI or the native library
    from lightning_gpuaug.loader import Loader

# These look at nothing but their own generator, or draw a whole pass when it begins.
_SAMPLERS = (
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    DistributedSamplerWrapper,
)
_LONGEST_REST = 2.0
"""Seconds that a pipeline may take to fill its own queues before the stock is used."""


class Stocker(Protocol):
    """Gets batches before they are asked for.

    Attributes:
        on_device: whether the batches lie on the training's device.
        ahead: batches that the pipeline makes ahead by itself.
    """

    on_device: bool
    ahead: int

    def stock(self, count: int, batch_seconds: float) -> int:
        """Lay in up to `count` batches, then let the pipeline come to rest.

        Args:
            count: batches.
            batch_seconds: how long the pipeline takes for one, about.

        Returns:
            How many lie ready.
        """


class LoaderStocker:
    """For this package's loader, which has a place for finished batches."""

    on_device = True

    def __init__(self, loader: Loader) -> None:
        """Stock in `loader`."""
        self._loader = loader
        self.ahead = loader.decoding.prefetch + 1

    def stock(self, count: int, batch_seconds: float) -> int:
        """See `Stocker`."""
        return self._loader.stock(count)


class WorkerStocker:
    """For a torch DataLoader with worker processes: its iterator is put behind a queue until that is empty."""

    on_device = False

    def __init__(self, loader: DataLoader[Any], iterators: list[Iterator[Any]]) -> None:
        """Stock what the first of the training loop's `iterators`, of `loader`, gives."""
        self._iterators = iterators
        self.ahead = (loader.prefetch_factor or 2) * loader.num_workers

    def stock(self, count: int, batch_seconds: float) -> int:
        """See `Stocker`."""
        first = self._iterators[0]
        queue = first if isinstance(first, _Queue) else _Queue(self._iterators)
        found = queue.fill(count)
        time.sleep(min(_LONGEST_REST, batch_seconds * self.ahead))
        return found


class _Queue:
    """An iterator with some of its items taken already, in the iterator's own place until they are used up."""

    def __init__(self, iterators: list[Iterator[Any]]) -> None:
        self._iterators, self._behind = iterators, iterators[0]
        self._items: deque[Any] = deque()
        self._error: Exception | None = None
        iterators[0] = self

    def fill(self, count: int) -> int:
        while len(self._items) < count and self._error is None:
            try:
                self._items.append(next(self._behind))
            except Exception as error:  # also StopIteration; raised when its turn comes
                self._error = error
        return len(self._items)

    def __iter__(self) -> _Queue:
        return self

    def __next__(self) -> Any:
        item = self._items.popleft() if self._items else None
        if not self._items and self._error is None and self._iterators[0] is self:
            self._iterators[0] = self._behind
        if item is not None:
            return item
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return next(self._behind)


def stocker_of(trainer: pl.Trainer) -> Stocker | str:
    """How to stock the batches of a fit without changing it, or why that cannot be promised."""
    loop = trainer.fit_loop
    combined, fetcher = loop._combined_loader, loop._data_fetcher
    if combined is None or not isinstance(fetcher, _PrefetchDataFetcher):
        return "the training step fetches its own batches"
    if len(combined.flattened) != 1:
        return f"there are {len(combined.flattened)} training loaders"
    loader = combined.flattened[0]
    if is_own(loader):
        return LoaderStocker(loader)
    if not isinstance(loader, DataLoader):
        return f"a {type(loader).__name__} may notice when its batches are taken"
    if loader.num_workers == 0:
        return "num_workers is 0, so that batches are made between the steps"
    data = trainer.datamodule  # type: ignore[attr-defined]
    keeps_state = data is not None and type(data).state_dict is not pl.LightningDataModule.state_dict
    if hasattr(loader, "state_dict") or keeps_state:
        return "the data keeps a state in checkpoints, which must not run ahead of the training"
    if loader.batch_sampler is not None and not _is_plain(loader.batch_sampler):
        return "its sampler may look at the training"
    iterators = getattr(combined._iterator, "iterators", None)
    if not isinstance(iterators, list) or not isinstance(iterators[0], _MultiProcessingDataLoaderIter | _Queue):
        return "the training loop holds its iterator in an unknown way"
    return WorkerStocker(loader, iterators)


def is_own(loader: object) -> TypeGuard[Loader]:
    """Whether this is the loader of this package, which is not imported to find out."""
    own = sys.modules.get("lightning_gpuaug.loader")
    return own is not None and isinstance(loader, own.Loader)


def _is_plain(batch_sampler: Any) -> bool:
    return type(batch_sampler) is BatchSampler and type(batch_sampler.sampler) in _SAMPLERS


def fitting(batch: Any, device: torch.device) -> float:
    """How many batches like this one may lie on the device: what a quarter of its free memory holds."""
    if device.type != "cuda":
        return math.inf
    size = sum(leaf.nbytes for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.is_cuda)
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return 0.25 * (free + unused) // size if size else math.inf
