"""Short measurements of a torch DataLoader: what a sample costs, and what more workers would give.

All of it happens in worker processes of DataLoaders of its own over the same dataset, started as the user's are. The
dataset object of this process, the run's loader and every random state are left alone.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_gpuaug.callbacks.verdict import CheckUp, Knob, Probe

_SAMPLES = 48
"""Samples whose cost is measured one by one."""
_BATCH_SECONDS = 0.12
"""What a worker should take for a batch: long against handing it over, short against the measurement."""
_READING = 0.5
"""Share of a sample's time spent waiting for storage from which more workers than cores make sense."""


def probe_workers(
    loader: DataLoader[Any], check: CheckUp, batch: int, cores: int, seconds: float, on_gpu: bool
) -> Probe:
    """Where a DataLoader's time goes and what `num_workers` would give.

    Args:
        loader: the run's.
        check: what the run lost.
        batch: rows of a batch.
        cores: that this process may use.
        seconds: about how long to measure each number of workers.
        on_gpu: whether the run trains on a CUDA device.
    """
    if isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__len__"):
        return Probe(advice=_advice(on_gpu), notes=("An iterable dataset: its stages were not measured.",))
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores, forks beside threads: meant, and short
        stages = _stages(loader, rng)
        if stages is None:
            return Probe(advice=_advice(on_gpu), notes=("The dataset could not be measured in a worker of its own.",))
        # A dataset may give whole batches.
        images = batch if loader.batch_size is None and loader.batch_sampler is None else 1
        cost = sum(stages.values()) / images
        workers = _workers_to_try(
            loader.num_workers, cost, stages["read"] / (cost * images) if cost else 0.0, check, cores
        )
        if workers is None:
            return Probe(stages, advice=_advice(on_gpu))
        rows = max(1, min(batch, round(_BATCH_SECONDS / max(cost, 1e-6)))) if images == 1 else None
        now = check.img_per_s / images
        if loader.num_workers:
            now = _rate(loader, loader.num_workers, rows, seconds, rng) or 0.0
        then = _rate(loader, workers, rows, seconds, rng) or 0.0
    knobs = [Knob("num_workers", str(loader.num_workers), str(workers), speed_up=then / now)] if now and then else []
    return Probe(stages, knobs, _advice(on_gpu))


def _advice(on_gpu: bool) -> dict[str, str]:
    switch = "switch to ImageDataModule, which decodes and augments " + ("on the GPU" if on_gpu else "in native code")
    storage = "keep the data on faster storage or in memory"
    return {"read": storage, "decode": switch, "augment": switch, "host": switch, "transfer": "set pin_memory=True"}


def _workers_to_try(now: int, cost: float, reading: float, check: CheckUp, cores: int) -> int | None:
    """A number of workers that should be enough, or the most that make sense; None when there is no more."""
    rate = check.img_per_s_without_input
    enough = math.ceil(1.25 * (rate * cost if now == 0 else now * rate / check.img_per_s))
    most = cores if reading < _READING else 4 * cores
    wanted = max(min(enough, most), now)
    return wanted if wanted > now else None


def _stages(loader: DataLoader[Any], rng: np.random.Generator) -> dict[str, float] | None:
    """Seconds an item of the dataset in one worker alone: waiting for storage, decoding, all else that it does."""
    count = min(_SAMPLES, len(loader.dataset))  # type: ignore[arg-type]
    indices = rng.choice(len(loader.dataset), count, replace=False).tolist()  # type: ignore[arg-type]
    probe = _probe_loader(loader, _Timed(loader.dataset), indices, 1, None, None)
    try:
        costs = [[float(value) for value in cost] for cost in probe][min(4, count - 1) :]  # imports, caches
    except Exception:
        return None
    wall, cpu, delayed, decoding = (sum(column) / len(costs) for column in zip(*costs, strict=True))
    decoding = min(decoding, cpu)
    return {
        "read": max(0.0, wall - cpu - delayed),
        "decode": decoding,
        "augment": max(0.0, cpu - decoding),
    }


def _rate(
    loader: DataLoader[Any], workers: int, rows: int | None, seconds: float, rng: np.random.Generator
) -> float | None:
    """Items per second of so many workers, in batches of `rows` (None: one by one, as they are); None if they fail."""
    size = rows or 1
    ahead = loader.prefetch_factor or 2
    rounds = 2 + math.ceil(seconds / _BATCH_SECONDS)
    indices = rng.integers(0, len(loader.dataset), workers * size * (rounds + ahead)).tolist()  # type: ignore[arg-type]
    probe = _probe_loader(loader, loader.dataset, indices, workers, rows, loader.collate_fn)
    batches = iter(probe)
    try:
        for _ in range(workers):  # all have started, and have sent one
            next(batches)
        begin, count = time.perf_counter(), 0
        # Workers deliver in turns, so whole rounds are counted.
        while count < workers * 2 or (time.perf_counter() - begin < seconds and count < workers * (rounds - 1)):
            for _ in range(workers):
                next(batches)
            count += workers
        return count * size / (time.perf_counter() - begin)
    except Exception:
        return None
    finally:
        with contextlib.suppress(Exception):
            batches._shutdown_workers()  # type: ignore[attr-defined]


def _probe_loader(
    loader: DataLoader[Any],
    dataset: Any,
    indices: list[int],
    workers: int,
    rows: int | None,
    collate: Callable[[list[Any]], Any] | None,
) -> DataLoader[Any]:
    """A loader of its own, with its own random numbers, whose workers start as the run's do."""
    return DataLoader(
        dataset,
        batch_size=rows,
        sampler=indices,
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor or 2,
        generator=torch.Generator().manual_seed(0),
        timeout=60,
    )


class _Timed(Dataset[list[float]]):
    """What a sample of a dataset costs, in place of the sample. For a worker process: it changes imported modules."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._decoding: _DecodingTime | None = None

    def __getitem__(self, index: int) -> list[float]:
        """Seconds: by the wall, of this thread's CPU, waiting for a core, decoding."""
        if self._decoding is None:
            self._decoding = _DecodingTime()
        decoded, delayed = self._decoding.seconds, _run_delay()
        wall, cpu = time.perf_counter(), time.thread_time()
        self._dataset[index]
        return [
            time.perf_counter() - wall,
            time.thread_time() - cpu,
            _run_delay() - delayed,
            self._decoding.seconds - decoded,
        ]


class _DecodingTime:
    """CPU seconds spent in the image decoders that people use. Wraps them, in this process, for good."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False
        for owner, names in _decoders():
            for name in names:
                if hasattr(owner, name):
                    setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return function(*args, **kwargs)
            self._inside, begin = True, time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._inside = False
                self.seconds += time.thread_time() - begin

        return timed


def _decoders() -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Classes and modules whose functions decode images, of those that are in use."""
    pillow = sys.modules.get("PIL.ImageFile")
    if pillow is not None:
        yield pillow.ImageFile, ("load",)
    for name, functions in (
        ("cv2", ("imread", "imdecode")),
        ("torchvision.io", ("read_image", "decode_image", "decode_jpeg", "decode_png")),
        ("torchvision.io.image", ("read_image", "decode_image", "decode_jpeg", "decode_png")),
    ):
        if name in sys.modules:
            yield sys.modules[name], functions


def _run_delay() -> float:
    """Seconds that this thread has waited for a core, where Linux tells."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
