"""Orders of training epochs that are not a shuffle of all samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.encoded import Indices

#: Sample indices of an epoch, over all ranks, from its seed and number.
Order = Callable[[int, int], Sequence[int] | npt.NDArray[np.integer]]


@dataclass(frozen=True, eq=False)
class ExampleOrder:
    """The order of epochs by a user's function, checked.

    Attributes:
        function: gives dataset indices from (seed, epoch).
        count: length of the dataset.
        kept: dataset indices of the samples, if some are excluded: the others are left out of no order.
    """

    function: Order
    count: int
    kept: Indices | None = None

    @cached_property
    def size(self) -> int:
        """Samples of an epoch."""
        return len(self._checked(0, 0))

    def order(self, seed: int, epoch: int) -> Indices:
        """Sample indices (size,) of an epoch.

        Raises:
            ValueError: they are no indices of the dataset, are of excluded samples, or not as many as in other epochs.
        """
        order = self._checked(seed, epoch)
        if len(order) != self.size:
            raise ValueError(
                f"Examples.order must give equally many samples every epoch, got {len(order)} in epoch {epoch} and "
                f"{self.size} in epoch 0"
            )
        return order

    def _checked(self, seed: int, epoch: int) -> Indices:
        order = np.asarray(self.function(seed, epoch))
        if order.ndim != 1 or (order.dtype.kind not in "iu" and len(order)):
            raise ValueError(f"Examples.order must give a vector of indices, got {order.dtype} {order.shape}")
        order = order.astype(np.int64)
        if not len(order) or order.min() < 0 or order.max() >= self.count:
            got = f"{order.min()}..{order.max()}" if len(order) else "none"
            raise ValueError(f"Examples.order must give indices in 0..{self.count - 1}, got {got} in epoch {epoch}")
        if self.kept is None:
            return order
        place = np.full(self.count, -1, dtype=np.int64)
        place[self.kept] = np.arange(len(self.kept))
        if (place[order] < 0).any():
            index = int(order[np.argmax(place[order] < 0)])
            raise ValueError(f"Examples.order must not give excluded samples, got {index} in epoch {epoch}")
        own: Indices = place[order]
        return own


@dataclass(frozen=True, eq=False)
class weighted_order:
    """An order that draws samples with replacement, each with a probability in proportion to its weight.

    For `Examples.order`; as torch's `WeightedRandomSampler`, but a function of seed and epoch, so that all ranks and
    all resumed runs agree.

    Attributes:
        weights: of all samples, not negative, not all zero.
        num_samples: samples of an epoch; as many as there are weights by default.
    """

    weights: Sequence[float] | npt.NDArray[np.floating]
    num_samples: int | None = None

    def __post_init__(self) -> None:
        """Validate the weights."""
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not len(weights) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise ValueError("weighted_order.weights must be a vector of numbers from 0, not all 0")
        object.__setattr__(self, "weights", weights)
        if self.num_samples is not None and self.num_samples < 1:
            raise ValueError(f"weighted_order.num_samples must be at least 1, got {self.num_samples}")

    def __call__(self, seed: int, epoch: int) -> Indices:
        """Sample indices of an epoch."""
        count = len(self.weights) if self.num_samples is None else self.num_samples
        # Of Philox's raw stream, which NumPy keeps the same from version to version, as the plan's permutations are.
        raw = np.random.Philox(key=np.array([seed, epoch], dtype=np.uint64)).random_raw(count)
        uniform = (raw >> np.uint64(11)) * 2.0**-53
        bounds = np.cumsum(self.weights)
        order = np.searchsorted(bounds, uniform * bounds[-1], side="right")
        # Rounding may lead behind the last weight that is not 0.
        own: Indices = np.minimum(order, np.flatnonzero(self.weights)[-1]).astype(np.int64)
        return own
