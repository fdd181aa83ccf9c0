"""How many batches a network's batch norms have seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

_KNOWN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNormAct2d)
"""Types that add 1 to `num_batches_tracked` in a training forward pass, and read it only without a `momentum`."""


class BatchCounters:
    """Counts a training batch for all batch norms of a network in one launch, where each has a launch of its own.

    That is a fifth of what the host launches for a ResNet's forward pass, for numbers that only a checkpoint gets.
    Where a small network is launched kernel by kernel, its training waits for the host.

    A norm that runs twice in a pass, or not at all, is counted once.

    Args:
        network: as it will be trained. Norms of other types, without a momentum or in eval mode count for themselves,
            or not at all, as always.
    """

    def __init__(self, network: nn.Module) -> None:
        self._norms: list[Any] = [module for module in network.modules() if type(module) in _KNOWN]
        self._hidden: list[tuple[Any, Tensor]] = []

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """Around a forward pass, in which the norms have no counters; a batch that fails is not counted."""
        # Asked for each batch: stochastic weight averaging takes the momentum away for its last epoch.
        self._hidden = [
            (norm, norm.num_batches_tracked)
            for norm in self._norms
            if norm.training
            and norm.track_running_stats
            and norm.momentum is not None
            and norm.num_batches_tracked is not None
        ]
        counters = [counter for _, counter in self._hidden]
        for norm, _ in self._hidden:
            norm.num_batches_tracked = None
        try:
            yield
        finally:
            for norm, counter in self._hidden:
                norm.num_batches_tracked = counter
            self._hidden = []
        if counters:
            torch._foreach_add_(counters, 1)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Around what reads the counters, perhaps in mid-pass: SLURM's signal saves a checkpoint wherever Python is."""
        hidden = [(norm, counter) for norm, counter in self._hidden if norm.num_batches_tracked is None]
        for norm, counter in hidden:
            norm.num_batches_tracked = counter
        try:
            yield
        finally:
            for norm, _ in hidden:
                norm.num_batches_tracked = None
