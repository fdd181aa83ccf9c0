"""`gpuaug bench loader --tune`: search, compare with what was there in turns, write the overlay."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gpuaug.cli.bench_output import Lines
from lightning_gpuaug.cli.errors import UsageError
from lightning_gpuaug.cli.progress import Progress, step_bar

if TYPE_CHECKING:
    import torch
    from jsonargparse import Namespace

    from lightning_gpuaug.bench.environment import Environment
    from lightning_gpuaug.bench.tune import Settings, Values
    from lightning_gpuaug.data import ImageDataModule

_TITLE = "Overlay: the fastest loading that `gpuaug bench loader --tune` found"
_FOR_THE_SEARCH = 0.75
"""Of the budget; the rest compares the result with the start."""
_TURNS = 3


def tuned(
    data: ImageDataModule, device: torch.device, config: Namespace, facts: Environment, say: Lines
) -> dict[str, Any]:
    """Search better settings for the training loader of `data` and write them to `config.overlay`.

    Args:
        data: set up; its attributes are changed.
        device: where its batches go.
        config: `seconds`, `budget`, `overlay`.
        facts: the environment.
        say: where lines go.

    Returns:
        The document.

    Raises:
        UsageError: the overlay's file is something else.
    """
    import torch

    from lightning_gpuaug.bench import tune
    from lightning_gpuaug.bench.loader import described
    from lightning_gpuaug.bench.report import document
    from lightning_gpuaug.devices import has_jpeg_decoder

    path = Path(config.overlay)
    if path.exists() and not path.read_text(errors="replace").startswith(f"# {_TITLE}"):
        raise UsageError(f"--overlay {path} is there and is no such overlay; give another name or remove it")
    began = time.monotonic()
    _, settings = described(data)
    decoding = data.train_dataloader().decoding
    start = tune.Settings(decoding.device, decoding.hw_decoder_load, decoding.num_threads, decoding.prefetch)
    hardware = device.type == "cuda" and has_jpeg_decoder(torch.cuda.get_device_capability(device))
    values = tune.axes(start, device.type == "cuda", hardware, len(os.sched_getaffinity(0)))
    seconds = min(config.seconds, config.budget / 20)
    with step_bar(sum(map(len, values.values())) + 2 * _TURNS) as doing:

        def measure(tried: Settings) -> float:
            doing(_words(tried, values))
            rate = _rate(data, tried, seconds)
            say(f"{_words(tried, values):64} {rate:10,.0f} img/s")
            return rate

        found = tune.search(measure, start, values, _FOR_THE_SEARCH * config.budget)
        known = {trial.settings: trial.img_per_s for trial in found.trials}
        before, after = known[start], known[found.best]
        if found.best != start:
            before, after = _in_turns(data, start, found.best, seconds, began + config.budget, values, doing)
    best = found.best
    if after < tune.ALIKE * before:  # the search was deceived
        best, after = start, before
    note = "" if found.complete else f"; the budget of {config.budget:g} s ended the search"
    verdict = f"{before:,.0f} img/s before, {after:,.0f} after ({after / before:.2f} x){note}"
    heading = [
        _TITLE,
        f"on {facts['gpu'] or facts['cpu']}, {facts['cpus']} CPUs: {verdict}.",
        f"Loading alone, without training: batch {data.batch_size}, image size {data.image_size}, "
        f"{settings['images']:,} images.",
        "",
        f"  gpuaug fit --config base.yaml --config {path}",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(tune.overlay(best, list(values), heading))
    say(f"\n{verdict}\nbest: {_words(best, values)}\nwrote {path}: gpuaug fit --config base.yaml --config {path}")
    rows = [
        {
            "what": _words(trial.settings, values),
            "kind": "trial",
            "img_per_s": trial.img_per_s,
            **{name: getattr(trial.settings, name) for name in values},
        }
        for trial in found.trials
    ]
    title = f"Tuning of the loader, batch {data.batch_size}, to {device.type}"
    return document(title, facts, settings, rows) | {
        "best": {name: getattr(best, name) for name in values},
        "before_img_per_s": before,
        "after_img_per_s": after,
        "complete": found.complete,
        "overlay": str(path),
    }


def _rate(data: ImageDataModule, tried: Settings, seconds: float) -> float:
    from lightning_gpuaug.bench.loader import ours
    from lightning_gpuaug.bench.timing import images_per_second

    data.decode, data.hw_decoder_load = tried.decode, tried.hw_decoder_load
    data.num_threads, data.prefetch = tried.num_threads, tried.prefetch
    with ours(data) as step:
        return images_per_second(step, data.batch_size, seconds, warm_up=4 + 2 * tried.prefetch, at_once=1)


def _in_turns(
    data: ImageDataModule, start: Settings, best: Settings, seconds: float, deadline: float, values: dict[str, Values],
    doing: Progress,
) -> tuple[float, float]:  # fmt: skip
    """Medians of both, measured in turns, which the search was not: once at least, and as often as time allows."""
    rates: dict[Settings, list[float]] = {start: [], best: []}
    for turn in range(_TURNS):
        if turn and time.monotonic() > deadline:
            break
        for tried, found in rates.items():
            doing(f"once more: {_words(tried, values)}")
            found.append(_rate(data, tried, seconds))
    return statistics.median(rates[start]), statistics.median(rates[best])


def _words(settings: Settings, values: dict[str, Values]) -> str:
    names = [name for name in values if name != "hw_decoder_load" or settings.decode == "gpu"]
    return ", ".join(f"{name} {getattr(settings, name)}" for name in names)
