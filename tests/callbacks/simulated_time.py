"""A clock that moves when a test says so, and a loader that moves it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


class HandClock:
    """A clock set by hand."""

    now = 0.0

    def mark(self) -> float:
        return self.now

    def reached(self, mark: float) -> bool:
        return True

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def host_seconds(self, start: float, end: float) -> float:
        return end - start

    def forget_before(self, mark: float) -> None:
        pass

    def finish(self) -> None:
        pass


class SimulatedTime(HandClock):
    """The host clock's stand-in: one time for all of them, which passes when a test says so."""

    now = 0.0


class Loader:
    """Batches of the given sizes; each `next` takes `wait` simulated seconds."""

    def __init__(self, sizes: list[int], wait: float = 0.0) -> None:
        self.sizes, self.wait = sizes, wait

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for size in self.sizes:
            SimulatedTime.now += self.wait
            yield {"x": torch.ones(size, 1)}
