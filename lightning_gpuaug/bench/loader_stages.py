"""The stages of the configured pipeline, each measured without what comes after it, or alone.

`read`, `read, decode` and `read, decode, resize` are the pipeline cut off behind that stage: none should be slower than
the whole, and the first that is no faster is what bounds it. `prepare` (order, draws, windows: the host) and `finish`
(the native op on a batch that is decoded already) are measured by themselves.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch

from lightning_gpuaug.bench.timing import images_per_second
from lightning_gpuaug.finish import Finisher
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.pipeline import Decoded, DecodePipeline, Decoding, path_bytes, reading_pipeline
from lightning_gpuaug.prepare import Prepared, Preparer
from lightning_gpuaug.sources import Source
from lightning_gpuaug.sources.encoded import fixed_paths

READ, DECODE, RESIZE = "read", "read, decode", "read, decode, resize"
PREPARE, FINISH = "prepare, alone (host)", "finish, alone"
STAGES = (PREPARE, READ, DECODE, RESIZE, FINISH)

_BATCHES = 16
"""Batches of the data that the stages go round and round."""


def stage_rates(
    loader: Loader, seconds: float, doing: Callable[[str], None] = lambda stage: None
) -> Iterator[tuple[str, float | str]]:
    """(stage, images per second) of a training loader; a stage that cannot be measured by itself says why instead.

    Args:
        loader: its source, plan, decoding and output say what the stages do; it is not run itself.
        seconds: of each stage.
        doing: told which stage comes next.
    """
    bench = _Stages(loader, seconds)
    for name, measure in (
        (PREPARE, bench.prepare), (READ, bench.read), (DECODE, bench.decode), (RESIZE, bench.resize),
        (FINISH, bench.finish),
    ):  # fmt: skip
        doing(name)
        try:
            yield name, measure()
        except (RuntimeError, ValueError) as error:  # a bad image, a recipe whose steps cannot be told apart
            yield name, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


class _Stages:
    def __init__(self, loader: Loader, seconds: float) -> None:
        self._loader, self._seconds, self._decoding = loader, seconds, loader.decoding
        self._preparer = Preparer(loader.source, self._decoding.recipe, self._decoding.image_size)
        plan = loader.plan
        self._indices = [plan.batch(0, step) for step in range(min(_BATCHES, len(plan)))]
        self._batches = [self._preparer(indices, 0, loader.seed) for indices in self._indices]

    def _rate(self, step: Callable[[], object], warm_up: int = 8) -> float:
        with _on(self._loader.output.device):
            return images_per_second(step, self._loader.plan.batch_size, self._seconds, warm_up, at_once=1)

    def prepare(self) -> float:
        turns = itertools.count()

        def step() -> None:
            epoch, number = divmod(next(turns), len(self._indices))
            indices = self._loader.plan.batch(0, number)
            self._preparer(indices, epoch, self._loader.seed)  # the sizes of these are known

        return self._rate(step)

    def read(self) -> float:
        if not reads_files(self._loader.source):
            raise ValueError("records are read by a reader of their own")
        decoding = self._decoding
        pipe = reading_pipeline(decoding.batch_size, decoding.num_threads, decoding.prefetch)
        names = fixed_paths(self._loader.source.paths)
        paths = itertools.cycle([path_bytes(names[indices]) for indices in self._indices])

        def start() -> None:
            pipe.feed_input("paths", next(paths))
            pipe.schedule_run()

        for _ in range(self._decoding.prefetch):
            pipe.feed_input("paths", next(paths))
        pipe.schedule_run()

        def step() -> None:
            pipe.outputs()
            start()

        return self._rate(step)

    def decode(self) -> float:
        return self._pipeline_rate(dataclasses.replace(self._decoding, packed=True), lambda decoded, batch: None)

    def resize(self) -> float:
        """Of a packed pipeline the native resize, to plain pixels; else DALI's."""
        if not self._decoding.packed:
            return self._pipeline_rate(self._decoding, lambda decoded, batch: None)
        finisher = Finisher(self._loader.source, self._decoding, self._loader.output)
        try:
            return self._pipeline_rate(self._decoding, finisher.resized)
        finally:
            finisher.close()

    def finish(self) -> float:
        """The same decoded batch again and again."""
        finisher = Finisher(self._loader.source, self._decoding, self._loader.output)
        pipe = DecodePipeline(self._decoding)
        try:
            with _on(self._loader.output.device):
                for _ in range(self._decoding.prefetch):
                    pipe.start(self._batches[0].request)
                decoded = pipe.pop()
                return self._rate(lambda: finisher(self._indices[0], decoded, self._batches[0]))
        finally:
            finisher.close()
            pipe.close()

    def _pipeline_rate(self, decoding: Decoding, then: Callable[[Decoded, Prepared], object]) -> float:
        pipe = DecodePipeline(decoding)
        coming, inside = itertools.cycle(self._batches), list[Prepared]()

        def fill() -> None:
            while len(pipe) < decoding.prefetch:
                inside.append(next(coming))
                pipe.start(inside[-1].request)

        def step() -> None:
            fill()
            decoded = pipe.pop()
            then(decoded, inside.pop(0))

        try:
            return self._rate(step)
        finally:
            pipe.close()


def reads_files(source: Source) -> bool:
    """Whether the images of a source are files of their own."""
    return getattr(source, "feed", "paths") == "paths"


def _on(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def bounded_by(whole: float, stages: dict[str, float]) -> str:
    """The stage that bounds the loader, in words.

    Args:
        whole: images per second of the loader.
        stages: of the stages, by name.
    """
    near = 1.15  # of a stage that is no more than so much faster than the whole
    for name, why in (
        (READ, "reading the files"), (DECODE, "decoding"), (RESIZE, "resizing"),
        (PREPARE, "the host's part: order, draws and windows"), (FINISH, "the finishing op"),
    ):  # fmt: skip
        if name in stages and stages[name] <= near * whole:
            return f"bound by {why}: `{name}` makes {stages[name]:,.0f} img/s, the whole loader {whole:,.0f}"
    slowest = min(stages, key=lambda name: stages[name])
    return (
        f"no stage alone is the bound: the slowest, `{slowest}`, makes {stages[slowest]:,.0f} img/s, the whole loader "
        f"{whole:,.0f}; they share the same cores"
    )
