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

_NAME = "num_batches_tracked"


class BatchCounters:
    """Counts a training batch for all batch norms of a network in one launch, where each has a launch of its own.

    That is a fifth of what the host launches for a ResNet's forward pass, for numbers that only a checkpoint gets.
    Where a small network is launched kernel by kernel, its training waits for the host.

    A norm that runs twice in a pass, or not at all, is counted once.

    Args:
        network: as it will be trained; None for one whose norms are left alone. Norms of other types, without a
            momentum or in eval mode count for themselves, or not at all, as always.
    """

    def __init__(self, network: nn.Module | None) -> None:
        modules = () if network is None else network.modules()
        self._norms: list[Any] = [module for module in modules if type(module) in _KNOWN]
        self._hidden: list[tuple[dict[str, Tensor | None], Tensor]] = []

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """Around a forward pass, in which the norms have no counters; a batch that fails is not counted."""
        # Asked for each batch: stochastic weight averaging takes the momentum away for its last epoch.
        # By the modules' tables of buffers: setting an attribute of a module takes 3 us, as much as a launch.
        self._hidden = [
            (norm._buffers, counter)
            for norm in self._norms
            if norm.training
            and norm.track_running_stats
            and norm.momentum is not None
            and (counter := norm._buffers[_NAME]) is not None
        ]
        counters = [counter for _, counter in self._hidden]
        for buffers, _ in self._hidden:
            buffers[_NAME] = None
        try:
            yield
        finally:
            for buffers, counter in self._hidden:
                buffers[_NAME] = counter
            self._hidden = []
        if counters:
            torch._foreach_add_(counters, 1)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Around what reads the counters, perhaps in mid-pass: SLURM's signal saves a checkpoint wherever Python is."""
        hidden = [(buffers, counter) for buffers, counter in self._hidden if buffers[_NAME] is None]
        for buffers, counter in hidden:
            buffers[_NAME] = counter
        try:
            yield
        finally:
            for buffers, _ in hidden:
                buffers[_NAME] = None
