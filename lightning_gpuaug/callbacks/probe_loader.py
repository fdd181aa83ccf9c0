"""Short measurements of this package's loader: what its stages cost, and what other settings would give.

Loaders of their own, with pipelines of their own, run while the training rests. The run's loader is only read.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from lightning_gpuaug.callbacks.verdict import CheckUp, Knob, Probe
from lightning_gpuaug.finish import resizes_natively
from lightning_gpuaug.hw_decoder import SHARES, has_jpeg_engines
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import Decoding, release_memory
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.recipe import TrainRecipe
from lightning_gpuaug.sources import Source
from lightning_gpuaug.timings import Timings

_FILES = 256
"""Files read to measure the storage."""
_MOST_READERS = 4
"""More would measure Python."""
_CPU_ROWS = 64
"""Rows of a batch where the CPU decodes, whose rate does not depend on it."""


def probe_loader(loader: Loader, check: CheckUp, cores: int, seconds: float) -> Probe:
    """Where a loader's time goes and what its settings would give.

    Args:
        loader: the run's, at rest.
        check: what the run lost.
        cores: that this process may use.
        seconds: about how long to measure each setting.
    """
    if getattr(loader.source, "cached", False):
        return Probe(notes=("The data is one cached batch: there is no pipeline to look at.",))
    decoding = loader.decoding
    read = _read_seconds(loader)
    now = _measure(loader, decoding, seconds)
    if now is None:
        return Probe(advice=_ADVICE, notes=("A second pipeline could not be run beside the training's.",))
    knobs = []
    for knob, other in _candidates(decoding, loader, check, cores):
        then = _measure(loader, other, seconds)
        if then is not None:
            knobs.append(dataclasses.replace(knob, speed_up=then.rate / now.rate))
    notes = [f"The pipeline alone makes {now.rate:,.0f} img/s."]
    plain, recipe = now, decoding.recipe
    if isinstance(recipe, TrainRecipe) and recipe.needs_program:
        plain = _measure(loader, dataclasses.replace(decoding, recipe=_plain(recipe)), seconds) or now
        notes.append(f"Without its augmentation policy it makes {plain.rate:,.0f} img/s.")
    release_memory()
    return Probe(_stages(decoding, read, plain, now), knobs, _ADVICE, notes)


_ADVICE = {
    "read": "keep the data on faster storage or in memory",
    "decode": "store smaller images, or decode on another device",
    "augment": "use a lighter recipe",
    "host": "leave more CPU cores to this process, or raise prefetch",
}


def _candidates(decoding: Decoding, loader: Loader, check: CheckUp, cores: int) -> list[tuple[Knob, Decoding]]:
    """Other settings, the simplest first."""
    found: list[tuple[Knob, Decoding]] = []
    if decoding.device == "gpu":
        share = decoding.hw_decoder_load
        for other in SHARES:
            if other != share and has_jpeg_engines(decoding.device_id):
                knob = Knob("hw_decoder_load", f"{share:g}", f"{other:g}")
                found.append((knob, dataclasses.replace(decoding, hw_decoder_load=other)))
    threads = decoding.num_threads
    enough = math.ceil(1.25 * threads * check.img_per_s_without_input / check.img_per_s)
    more = min(cores, max(enough, 2 * threads))
    if more > threads:
        found.append((Knob("num_threads", str(threads), str(more)), dataclasses.replace(decoding, num_threads=more)))
    if decoding.device == "cpu" and loader.output.device.type == "cuda":
        packed = resizes_natively(decoding.recipe, "gpu", loader.output.device)
        on_gpu = dataclasses.replace(
            decoding, device="gpu", device_id=loader.output.device.index, hw_decoder_load=1.0, packed=packed
        )
        found.append((Knob("decode", "cpu", "gpu"), on_gpu))
    return found


def _plain(recipe: TrainRecipe) -> TrainRecipe:
    """The recipe without what needs a program for each sample."""
    return TrainRecipe(
        crop=recipe.crop,
        hflip=recipe.hflip,
        normalize=recipe.normalize,
        exif_orientation=recipe.exif_orientation,
    )


@dataclass(frozen=True)
class _Measured:
    """Images per second of a pipeline alone, and what its thread did in that time."""

    rate: float
    spent: Timings


def _stages(decoding: Decoding, read: float, plain: _Measured, whole: _Measured) -> dict[str, float]:
    """Seconds an image by stage, in the time that the pipeline takes for one.

    Args:
        decoding: as it is.
        read: seconds of one reader for a file.
        plain: the pipeline alone without augmentation.
        whole: the same with it.
    """
    image = min(1.0 / plain.rate, 1.0 / whole.rate)
    spent = plain.spent
    total = spent.prepare + spent.decode + spent.finish
    # Planning, and what every recipe has (flip, normalise, lay out, copy). Where the GPU decodes, its thread waits for
    # the GPU in there too, so that it tells nothing.
    own = spent.prepare + (spent.finish if decoding.device == "cpu" else 0.0)
    host = image * own / total if total > 0 else 0.0
    rest = image - host
    reading = min(rest, read / decoding.num_threads)
    return {"read": reading, "decode": rest - reading, "augment": 1.0 / whole.rate - image, "host": host}


def _measure(loader: Loader, decoding: Decoding, seconds: float) -> _Measured | None:
    """A loader with these settings, alone; None where they do not work here."""
    rows = decoding.batch_size if decoding.device == "gpu" else min(decoding.batch_size, _CPU_ROWS)
    rows -= rows % 2 if rows > 2 else 0  # mixing pairs them
    other = loader.variant(dataclasses.replace(decoding, batch_size=max(2, rows)), rows)
    batches = itertools.chain.from_iterable(itertools.repeat(other))
    try:
        for _ in range(decoding.prefetch + 3):
            next(batches)
        _synchronize(loader)
        before = other.timings
        begin, images, count = time.perf_counter(), 0, 0
        while count < 4 or time.perf_counter() - begin < seconds:
            images += len(next(batches)[1])
            count += 1
            if count % 8 == 0:
                _synchronize(loader)
        _synchronize(loader)
        return _Measured(images / (time.perf_counter() - begin), other.timings.since(before))
    except RuntimeError:  # a bad image, no memory for a second pipeline, a device that cannot decode
        return None
    finally:
        other.close()


def _synchronize(loader: Loader) -> None:
    if loader.output.device.type == "cuda":
        torch.cuda.synchronize(loader.output.device)


def _read_seconds(loader: Loader) -> float:
    """Seconds of one reader for a file, of files that this epoch has not come to yet."""
    place, plan = loader.place, loader.plan
    last = max(0, len(plan) - 1)
    order = [plan.batch(place.epoch, step, place.consumed) for step in range(min(last, place.step + 16), last + 1)[-8:]]
    indices = np.concatenate(order)[-_FILES:] if order else np.arange(0)
    if not len(indices):
        return 0.0
    if loader.decoding.feed != "paths":
        return _seconds_of_reader(loader.source, indices) * loader.decoding.num_threads
    paths = [loader.source.paths[index] for index in indices]
    with ThreadPoolExecutor(min(_MOST_READERS, loader.decoding.num_threads)) as readers:
        try:
            return sum(readers.map(_read, paths)) / len(paths)
        except OSError:
            return 0.0


def _seconds_of_reader(source: Source, indices: Indices) -> float:
    """Seconds a sample of a source that reads its data itself, with all its threads."""
    reader = source.reader()
    begin = time.perf_counter()
    try:
        reader.begin(indices, False).result()
        return (time.perf_counter() - begin) / len(indices)
    finally:
        reader.close()


def _read(path: str | os.PathLike[str]) -> float:
    """Seconds to read a file."""
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        file.read()
    return time.perf_counter() - begin
