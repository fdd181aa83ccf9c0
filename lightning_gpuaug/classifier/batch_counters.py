"""How many batches a network's batch norms have seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import nn

_KNOWN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNormAct2d)
"""Types that add 1 to `num_batches_tracked` in a training forward pass, and read it only without a `momentum`."""


class BatchCounters:
    """Counts a training batch for all batch norms of a network in one launch, where each has a launch of its own.

    That is a fifth of what the host launches for a ResNet's forward pass, for numbers that only a checkpoint gets.
    Where a small network is launched kernel by kernel, its training waits for the host.

    Args:
        network: as it will be trained. Norms of other types, without a momentum or in eval mode count for themselves,
            or not at all, as always.
    """

    def __init__(self, network: nn.Module) -> None:
        self._norms: list[Any] = [
            module for module in network.modules() if type(module) in _KNOWN and module.num_batches_tracked is not None
        ]

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """Around a forward pass; a batch that fails is not counted."""
        # Without a momentum the counter is part of the statistics; a callback may take it away (weight averaging does).
        norms = [norm for norm in self._norms if norm.training and norm.momentum is not None]
        counters = [norm.num_batches_tracked for norm in norms]
        for norm in norms:
            norm.num_batches_tracked = None
        try:
            yield
        finally:
            for norm, counter in zip(norms, counters, strict=True):
                norm.num_batches_tracked = counter
        if counters:
            torch._foreach_add_(counters, 1)
