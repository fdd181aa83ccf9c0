"""The search for the data module's settings that load fastest on this machine, within a time budget.

One setting after the other is varied while the others stay at the best values so far, and again from the start until
nothing changes. Of values that are as fast as each other the cheaper one wins: fewer threads, fewer batches ahead, more
of the decoding in the hardware that training has no use for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

ALIKE = 0.97
"""Of the best rate: a cheaper setting that reaches it is taken."""


@dataclass(frozen=True)
class Settings:
    """What is searched: arguments of `ImageDataModule`.

    Attributes:
        decode: where DALI decodes.
        hw_decoder_load: share of the JPEGs for the hardware decoder; without meaning for "cpu".
        num_threads: CPU threads of the pipeline.
        prefetch: batches decoded ahead.
    """

    decode: Literal["cpu", "gpu"]
    hw_decoder_load: float
    num_threads: int
    prefetch: int


Values = Sequence[str] | Sequence[float] | Sequence[int]


@dataclass(frozen=True)
class Trial:
    """One measurement."""

    settings: Settings
    img_per_s: float


@dataclass(frozen=True)
class Search:
    """What the search found.

    Attributes:
        best: the settings to use.
        trials: all that was measured, in order; the first is where it began.
        complete: whether it ended by itself rather than by the budget.
    """

    best: Settings
    trials: tuple[Trial, ...]
    complete: bool


def axes(start: Settings, cuda: bool, hardware: bool, cores: int) -> dict[str, Values]:
    """The values to try of each setting, cheapest first.

    Args:
        start: where the search begins; its values are among them.
        cuda: whether batches go to a CUDA device.
        hardware: whether that has a hardware JPEG decoder.
        cores: CPU cores of this process.
    """
    threads = {1, 2, 4, 8, 16, 32, cores, start.num_threads}
    found: dict[str, Values] = {}
    if cuda:
        found["decode"] = ("gpu", "cpu")
        if hardware:
            found["hw_decoder_load"] = sorted({1.0, 0.9, 0.75, 0.5, start.hw_decoder_load}, reverse=True)
    found["num_threads"] = sorted(n for n in threads if n <= max(cores, start.num_threads))
    found["prefetch"] = sorted({2, 3, 4, start.prefetch})
    return found


def search(
    measure: Callable[[Settings], float],
    start: Settings,
    values: dict[str, Values],
    budget: float,
    now: Callable[[], float] = time.monotonic,
) -> Search:
    """Find good settings.

    Args:
        measure: images per second with some settings.
        start: where to begin; measured whatever the budget.
        values: of each setting, cheapest first.
        budget: seconds; a trial that would probably end later is not begun.
        now: a clock, seconds.
    """
    began = now()
    rates: dict[Settings, float] = {}
    longest = 0.0

    def affordable() -> bool:
        return not rates or now() - began + longest <= budget

    def tried(settings: Settings) -> bool:
        """Whether the rate of `settings` is known, after measuring it if there is time."""
        nonlocal longest
        if settings not in rates:
            if not affordable():
                return False
            before = now()
            rates[settings] = measure(settings)
            longest = max(longest, now() - before)
        return True

    def outcome(complete: bool) -> Search:
        return Search(best, tuple(Trial(settings, rate) for settings, rate in rates.items()), complete)

    best = start
    tried(start)
    while True:
        before = best
        for name, candidates in values.items():
            if name == "hw_decoder_load" and best.decode != "gpu":
                continue
            known = []
            for value in candidates:
                settings = dataclasses.replace(best, **{name: value})  # type: ignore[arg-type]
                if not tried(settings):
                    break
                known.append(settings)
            out_of_time = len(known) < len(candidates)
            if best not in known:
                known.append(best)
            fastest = max(rates[settings] for settings in known)
            best = next(settings for settings in known if rates[settings] >= ALIKE * fastest)
            if out_of_time:
                return outcome(complete=False)
        if best == before:
            return outcome(complete=True)


def overlay(settings: Settings, searched: Sequence[str], heading: Sequence[str]) -> str:
    """A YAML file for `gpuaug fit --config base.yaml --config this.yaml`.

    Args:
        settings: what it sets.
        searched: names of the settings that were searched; the others are left to the base file.
        heading: lines of comment.
    """
    names = [name for name in searched if name != "hw_decoder_load" or settings.decode == "gpu"]
    lines = [f"# {line}".rstrip() for line in heading]
    return "\n".join([*lines, "data:", *(f"  {name}: {getattr(settings, name)}" for name in names)]) + "\n"
