"""What callbacks that watch a run cost it: microseconds of the host a step, in turns with the same run without them.

    python -m benchmarks.callbacks

The loop is bound by the host (a tiny model on a tiny batch that is there already), so whatever a callback does between
two steps makes the step longer by just that; what Lightning takes to call any callback is the cost of an empty one.
On a GPU the same is done with a step that keeps the GPU busy for 5 ms, timed by CUDA events: what the callback costs a
step whose host is ahead, as it is in training.

A machine is now faster, now slower, by more than what is asked for. So the callback is taken out of a fit and put in
again every 100 steps, and each step is compared with the one 100 before; the first 50 of them, in which caches get used
to the change, do not count. How far the first row is from 0 is what to think of the others. The log in the midst of the
other 50, to a logger that drops it, is told by itself, and its share of a step is part of the cost. (What a callback
does in a thread of its own goes on all the time, and is not seen.) "hooks alone" is what a step calls, Lightning's part
of it included, called again and again: less than in a fit, where caches are cold, but the same in every run. Peers are
Lightning's `ThroughputMonitor`, which waits for the device at every step, and on a GPU `DeviceStatsMonitor`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.trainer import call

import lightning_gpuaug as gpuaug
from benchmarks.report import publish

STEP_MS = 5.0
"""Of the short step that costs are a share of."""
LOG_EVERY = 50
TURN = 2 * LOG_EVERY


class Tiny(pl.LightningModule):
    """A step of some kernel launches, behind one that takes the GPU so many cycles."""

    def __init__(self, gpu_cycles: int = 0) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.gpu_cycles = gpu_cycles

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.gpu_cycles:
            torch.cuda._sleep(self.gpu_cycles)  # type: ignore[no-untyped-call]
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


class Turns(pl.Callback):
    """Stands last among the callbacks; takes those before it out for a turn of steps, puts them in again, and so on.

    Args:
        of_gpu: whether steps end when the GPU has done them, or when the host has launched them.
    """

    def __init__(self, of_gpu: bool = False) -> None:
        self._of_gpu = of_gpu
        self._ends: list[Any] = []
        self._callbacks: list[pl.Callback] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if self._of_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._ends.append(event)
        else:
            self._ends.append(time.perf_counter())
        if len(self._ends) % TURN == LOG_EVERY // 2:  # half way between logs
            out = trainer.callbacks[:-1]  # type: ignore[attr-defined]
            trainer.callbacks, self._callbacks = [*self._callbacks, self], out  # type: ignore[attr-defined]

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        trainer.callbacks = [*trainer.callbacks[:-1], *self._callbacks, self]  # type: ignore[attr-defined]

    def microseconds(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """From the end of each step to that of the next."""
        if not self._of_gpu:
            return np.diff(self._ends) * 1e6
        torch.cuda.synchronize()
        return np.array([begin.elapsed_time(end) * 1e3 for begin, end in itertools.pairwise(self._ends)])


class HooksAlone(pl.Callback):
    """Before the last step, calls all that the loop calls for a step, with the callbacks before it and without them.

    Attributes:
        microseconds: the difference, a step.
    """

    BLOCKS, CALLS = 20, 100

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step < trainer.max_steps - 1:
            return
        those = [callback for callback in trainer.callbacks if callback is not self]  # type: ignore[attr-defined]
        kept = trainer.callbacks  # type: ignore[attr-defined]
        taken: dict[bool, list[float]] = {False: [], True: []}
        try:
            for _, present in itertools.product(range(self.BLOCKS), taken):
                trainer.callbacks = those if present else []  # type: ignore[attr-defined]
                begin = time.perf_counter()
                for _ in range(self.CALLS):
                    self._step(trainer, module, outputs, batch, watched=present)
                taken[present].append((time.perf_counter() - begin) / self.CALLS * 1e6)
        finally:
            trainer.callbacks = kept  # type: ignore[attr-defined]
        self.microseconds = statistics.median(taken[True]) - statistics.median(taken[False])

    @staticmethod
    def _step(trainer: Any, module: Any, outputs: Any, batch: Any, watched: bool) -> None:
        loop = trainer.fit_loop.epoch_loop
        if watched:  # what `watch_fetches` stands in for
            loop._on_before_fetch()
            loop._on_after_fetch()
        else:
            type(loop)._on_before_fetch(loop)
            type(loop)._on_after_fetch(loop)
        call._call_callback_hooks(trainer, "on_train_batch_start", batch, 0)
        call._call_callback_hooks(trainer, "on_before_zero_grad", None)
        call._call_callback_hooks(trainer, "on_before_backward", None)
        call._call_callback_hooks(trainer, "on_after_backward")
        call._call_callback_hooks(trainer, "on_before_optimizer_step", None)
        call._call_callback_hooks(trainer, "on_train_batch_end", outputs, batch, 0)


def alone(callbacks: list[pl.Callback], device: torch.device) -> float:
    """What callbacks add to the calls of a step, µs."""
    hooks = HooksAlone()
    fit([*callbacks, hooks], 50, device)
    return hooks.microseconds


def cycles_of(milliseconds: float) -> int:
    """What `torch.cuda._sleep` wants to take so long."""
    cycles = 10**7
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):  # the first wakes the GPU up
        begin.record()
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        end.record()
        torch.cuda.synchronize()
    return round(cycles * milliseconds / begin.elapsed_time(end))


def fit(callbacks: list[pl.Callback], steps: int, device: torch.device, gpu_cycles: int = 0) -> None:
    """Train for a number of steps."""
    trainer = pl.Trainer(
        max_steps=steps, accelerator="gpu" if device.type == "cuda" else "cpu", devices=1,
        logger=DummyLogger(), callbacks=callbacks, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=LOG_EVERY, max_epochs=-1,
    )  # fmt: skip
    batch = (torch.ones(8, 4, device=device), torch.ones(8, device=device))
    trainer.fit(Tiny(gpu_cycles), train_dataloaders=Repeated(batch, steps + 1))


def microseconds(
    callbacks: list[pl.Callback], turns: int, device: torch.device, gpu_cycles: int = 0
) -> tuple[float, float, float]:
    """Of a fit: a step without these callbacks, what they add to it, logs included, and what to one that logs."""
    stopwatch, steps = Turns(of_gpu=gpu_cycles > 0), TURN * (2 * turns + 3)
    fit([*callbacks, stopwatch], steps, device, gpu_cycles)
    begin = LOG_EVERY // 2 + 2 * TURN - 1  # of the second turn without them
    times = stopwatch.microseconds()[begin : begin + TURN * 2 * turns].reshape(turns, 2, TURN)[..., LOG_EVERY:]
    without = times[:, 0]
    added = np.median(times[:, 1] - without, axis=0)
    ordinary = np.median(added)
    log = (added[LOG_EVERY // 2 - 2 : LOG_EVERY // 2 + 2] - ordinary).sum()  # and what it still costs the steps after
    return float(np.median(without)), float(ordinary + log / LOG_EVERY), float(ordinary + log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help=f"of {TURN} steps with and {TURN} without, a fit")
    parser.add_argument("--rounds", type=int, default=5, help="fits of each kind")
    parser.add_argument("--only", nargs="+", help="callbacks whose names hold one of these")
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    kinds: dict[str, Callable[[], list[pl.Callback]]] = {
        "none, to see the noise": list,
        "an empty callback": lambda: [pl.Callback()],
        "Throughput": lambda: [gpuaug.Throughput(flops_per_image=None)],
        "ThroughputMonitor (Lightning)": lambda: [pl.callbacks.ThroughputMonitor(lambda batch: len(batch[0]))],
    }
    if device.type == "cuda":
        kinds["DeviceStatsMonitor (Lightning)"] = lambda: [pl.callbacks.DeviceStatsMonitor()]
        kinds["GpuUtilization"] = lambda: [gpuaug.GpuUtilization()]
        kinds["InputDoctor, between check-ups"] = lambda: [gpuaug.InputDoctor(10**6)]
    if args.only:
        kinds = {name: make for name, make in kinds.items() if any(part in name for part in args.only)}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in kinds}
    gpu_cycles = cycles_of(STEP_MS) if device.type == "cuda" else 0
    for _ in range(args.rounds):
        for name, make in kinds.items():
            with contextlib.redirect_stderr(io.StringIO()):
                figures = (*microseconds(make(), args.turns, device), alone(make(), device))
                if gpu_cycles:
                    figures += microseconds(make(), args.turns, device, gpu_cycles)[:2]
                found[name].append(figures)
    heading = ["step without µs", "cost µs", f"of a {STEP_MS:g} ms step", "a step with a log µs", "hooks alone µs"]
    if gpu_cycles:
        heading += ["GPU-bound step without µs", "cost of that µs", "of that step"]
    rows = []
    for name, fits in found.items():
        step, cost, log, calls, *of_gpu = (statistics.median(column) for column in zip(*fits, strict=True))
        row = [name, step, cost, f"{cost / STEP_MS / 10:.2f} %", log, calls]
        if of_gpu:
            row += [*of_gpu, f"{100 * of_gpu[1] / of_gpu[0]:.3f} %"]
        rows.append(row)
    publish(f"Callbacks, microseconds of the host a step, {device.type}", ["callback", *heading], rows, args.json)


if __name__ == "__main__":
    main()
