"""Images per second of the configured training loader, beside other loaders, in turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gpuaug.bench.loader_peers import PEERS, Step, Work, cycle
from lightning_gpuaug.bench.loader_stages import reads_files
from lightning_gpuaug.bench.timing import images_per_second
from lightning_gpuaug.data import ImageDataModule
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.recipe import TrainRecipe

OURS = "ours"
_WARM_UP = 12
"""Batches before the clock starts: more than any loader keeps ahead by itself."""


@dataclass(frozen=True)
class Rate:
    """Images per second of one loader over several rounds.

    Attributes:
        rounds: of each round, in order.
    """

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rounds)


def work_of(loader: Loader, workers: int) -> Work:
    """What the others have to do to do what `loader` does.

    Args:
        loader: a training loader over files.
        workers: processes of the Python loaders.
    """
    decoding, recipe = loader.decoding, loader.decoding.recipe
    assert isinstance(recipe, TrainRecipe)
    return Work(
        paths=np.array([os.fsencode(path) for path in loader.source.paths]),
        targets=loader.source.targets,
        batch_size=loader.plan.batch_size,
        image_size=decoding.image_size,
        crop=recipe.resample,
        hflip=recipe.hflip,
        device=loader.output.device,
        workers=workers,
        threads=decoding.num_threads,
        hw_decoder_load=decoding.hw_decoder_load,
        decode_on_gpu=decoding.device == "gpu",
    )


@contextmanager
def ours(data: ImageDataModule) -> Iterator[Step]:
    """The training batches of a data module that is set up; it stays so."""
    batches = cycle(data.train_dataloader())
    yield lambda: next(batches)


def compare(
    data: ImageDataModule,
    peers: list[str],
    *,
    workers: int,
    seconds: float,
    rounds: int,
    doing: Callable[[str], None] = lambda what: None,
    told: Callable[[str, float], None] = lambda what, rate: None,
) -> tuple[dict[str, Rate], dict[str, str]]:
    """Measure ours and the others in turns: what disturbs the machine for a while disturbs all of them.

    Args:
        data: set up; its training loader is measured.
        peers: names in `loader_peers.PEERS`.
        workers: processes of the Python loaders.
        seconds: of each measurement.
        rounds: how often each is measured.
        doing: told what comes next.
        told: told each rate as it comes.

    Returns:
        The rates by name, `OURS` first, and for each peer that has none the reason.
    """
    loader = data.train_dataloader()
    found: dict[str, list[float]] = {name: [] for name in (OURS, *peers)}
    missing: dict[str, str] = {}
    if not reads_files(loader.source):
        missing = dict.fromkeys(peers, "reads files, and this data comes in records")
        peers = []
    work = work_of(loader, workers) if peers else None
    for number in range(rounds):
        for name in found:
            doing(f"{name}, round {number + 1} of {rounds}")
            if name in missing:
                continue
            try:
                with ours(data) if name == OURS or work is None else PEERS[name](work) as step:
                    warm_up = _WARM_UP if name in (OURS, "dali") else max(4, 2 * workers)
                    found[name].append(images_per_second(step, loader.plan.batch_size, seconds, warm_up))
                    told(name, found[name][-1])
            except ImportError as error:
                missing[name] = f"not installed ({error})"
            except Exception as error:  # another library's failure must not lose our figures
                if name == OURS:
                    raise
                missing[name] = f"failed: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
    return {name: Rate(tuple(rates)) for name, rates in found.items() if rates and name not in missing}, missing


def described(data: ImageDataModule) -> tuple[str, dict[str, Any]]:
    """A data module that is set up, in a line and as the `settings` of a document."""
    loader = data.train_dataloader()
    decoding = loader.decoding
    settings: dict[str, Any] = {
        "device": str(loader.output.device),
        "images": len(loader.source),
        "batch_size": loader.plan.batch_size,
        "image_size": decoding.image_size,
        "dtype": data.dtype,
        "decode": decoding.device,
        "num_threads": decoding.num_threads,
        "prefetch": decoding.prefetch,
        "hw_decoder_load": decoding.hw_decoder_load if decoding.device == "gpu" else None,
        "train_recipe": repr(decoding.recipe),
    }
    share = f", hardware share {decoding.hw_decoder_load:g}" if decoding.device == "gpu" else ""
    return f"ours as configured, {decoding.num_threads} threads, decode={decoding.device}{share}", settings


def device_of(name: str) -> torch.device:
    """The device that "auto", "cuda" or "cpu" means here."""
    from lightning_gpuaug.devices import torch_device

    there = "cuda" if torch.cuda.is_available() else "cpu"
    return torch_device(there if name == "auto" else name)
