"""Sums over all ranks whose result is read later, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist


class RankSum:
    """The element-wise sum of `values` over all ranks, on its way.

    Starting one is a collective: every rank must start the same sums in the same order. With NCCL nothing waits: the
    values travel through pinned memory on the current stream, and `ready()` asks an event. With gloo on CPU tensors
    the sum is there when the constructor returns. Without a process group the sum is the values themselves.

    Args:
        values: numbers, float64 on the wire; as many on each rank.
        device: where the process group's backend wants its tensors.
    """

    def __init__(self, values: Sequence[float], device: torch.device) -> None:
        """Start the sum."""
        self._event: torch.cuda.Event | None = None
        self._alone = None if dist.is_available() and dist.is_initialized() else [float(value) for value in values]
        if self._alone is not None:
            return
        self._sums = torch.tensor(values, dtype=torch.float64)
        if device.type != "cuda":
            dist.all_reduce(self._sums)
            return
        on_device = self._sums.pin_memory().to(device, non_blocking=True)
        dist.all_reduce(on_device)
        self._sums = torch.empty_like(self._sums, pin_memory=True)
        self._sums.copy_(on_device, non_blocking=True)
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def ready(self) -> bool:
        """Whether `values()` would not wait."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def values(self) -> list[float]:
        """The sums; waits for them when they are not ready."""
        if self._alone is not None:
            return self._alone
        if self._event is not None:
            self._event.synchronize()
        return [float(value) for value in self._sums.tolist()]
