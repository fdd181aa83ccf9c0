"""An exponential moving average of a network's weights, kept in a second network."""

from __future__ import annotations

import copy

import torch
from torch import nn


def make_average(network: nn.Module) -> nn.Module:
    """A copy of `network` (weights, buffers, memory format) that asks for no gradient."""
    return copy.deepcopy(network).requires_grad_(False)


class AverageUpdater:
    """Moves `average` towards `network`: `average = decay · average + (1 - decay) · network`.

    Parameters and persistent floating-point buffers (BatchNorm's running mean and variance) are averaged with the
    same decay, so that statistics and weights are equally old. All other buffers are copied: counters cannot be
    averaged, and constants may hold infinities, which an average would turn into NaN.

    Args:
        network: the network being trained.
        average: its `make_average` copy, on the same device.
        decay: share of the average kept at each update, in (0, 1).

    Raises:
        ValueError: the weights are half precision, whose rounding would swallow updates of size `1 - decay`.
    """

    def __init__(self, network: nn.Module, average: nn.Module, decay: float) -> None:
        """Pair the tensors once, so that an update is two multi-tensor calls."""
        self._weight = 1.0 - decay
        self._average: list[torch.Tensor] = []
        self._live: list[torch.Tensor] = []
        self._copy_to: list[torch.Tensor] = []
        self._copy_from: list[torch.Tensor] = []
        buffer_names = {name for name, _ in network.named_buffers()}
        persistent = network.state_dict().keys()
        live_tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        average_tensors = {**dict(average.named_parameters()), **dict(average.named_buffers())}
        for name, live in live_tensors.items():
            averaged = live.is_floating_point() and name in persistent
            if averaged and live.dtype in (torch.bfloat16, torch.float16):
                raise ValueError(
                    f"ema_decay needs float32 weights (trainer.precision='bf16-mixed' or '16-mixed'), "
                    f"got {'buffer' if name in buffer_names else 'weight'} {name!r} in {live.dtype}"
                )
            (self._average if averaged else self._copy_to).append(average_tensors[name].detach())
            (self._live if averaged else self._copy_from).append(live.detach())

    @torch.no_grad()
    def start(self) -> None:
        """Make the average equal to the network, bit for bit."""
        for to, source in zip(self._average + self._copy_to, self._live + self._copy_from, strict=True):
            to.copy_(source)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the network as it is now: call once after each optimizer step."""
        torch._foreach_lerp_(self._average, self._live, self._weight)
        for to, source in zip(self._copy_to, self._copy_from, strict=True):
            to.copy_(source)
