"""What callbacks that watch a run cost it: microseconds of the host a step, in turns with a run without any.

    python -m benchmarks.callbacks

The loop is bound by the host (a tiny model on a tiny batch that is there already), so whatever a callback does between
two steps makes the step longer by just that; what Lightning takes to call any callback is the cost of an empty one.
Logs every 50 steps are included, to a logger that drops them. Peers are Lightning's `ThroughputMonitor`, which waits
for the device at every step, and on a GPU `DeviceStatsMonitor`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers.logger import DummyLogger

import lightning_gpuaug as gpuaug
from benchmarks.report import publish
from lightning_gpuaug.bench.stopwatch import Stopwatch

STEP_MS = 5.0
"""Of the short step that costs are a share of."""


class Tiny(pl.LightningModule):
    """A step of some kernel launches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch[0]).sum()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Repeated:
    """The same batch, a number of times; a plain list would be several loaders to Lightning."""

    def __init__(self, batch: tuple[torch.Tensor, ...], count: int) -> None:
        self._batch, self._count = batch, count

    def __len__(self) -> int:
        """Batches."""
        return self._count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """All of them."""
        return itertools.repeat(self._batch, self._count)


def microseconds(callbacks: list[pl.Callback], steps: int, device: torch.device) -> float:
    """A step of a fit with these callbacks."""
    warm_up = steps // 4
    watch = Stopwatch(warm_up, warm_up + steps)
    trainer = pl.Trainer(
        max_steps=warm_up + steps, accelerator="gpu" if device.type == "cuda" else "cpu", devices=1,
        logger=DummyLogger(), callbacks=[*callbacks, watch], enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=50, max_epochs=-1,
    )  # fmt: skip
    batch = (torch.ones(8, 4, device=device), torch.ones(8, device=device))
    trainer.fit(Tiny(), train_dataloaders=Repeated(batch, warm_up + steps + 1))
    return watch.seconds / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    kinds: dict[str, Callable[[], list[pl.Callback]]] = {
        "none": list,
        "an empty callback": lambda: [pl.Callback()],
        "Throughput": lambda: [gpuaug.Throughput(flops_per_image=None)],
        "ThroughputMonitor (Lightning)": lambda: [pl.callbacks.ThroughputMonitor(lambda batch: len(batch[0]))],
    }
    if device.type == "cuda":
        kinds["DeviceStatsMonitor (Lightning)"] = lambda: [pl.callbacks.DeviceStatsMonitor()]
        kinds["GpuUtilization"] = lambda: [gpuaug.GpuUtilization()]
        kinds["InputDoctor, between check-ups"] = lambda: [gpuaug.InputDoctor(10**6)]
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, make in kinds.items():
            with contextlib.redirect_stderr(io.StringIO()):
                found[name].append(microseconds(make(), args.steps, device))
    steps = {name: statistics.median(times) for name, times in found.items()}
    # Against the run without any in the same round, for the machine is now faster, now slower.
    costs = {
        name: statistics.median(a - b for a, b in zip(times, found["none"], strict=True))
        for name, times in found.items()
    }
    publish(
        f"Callbacks, microseconds of the host a step, {device.type}",
        ["callback", "step µs", "cost µs", f"of a {STEP_MS:g} ms step"],
        [[name, steps[name], costs[name], f"{costs[name] / STEP_MS / 10:.2f} %"] for name in kinds],
        args.json,
    )


if __name__ == "__main__":
    main()
