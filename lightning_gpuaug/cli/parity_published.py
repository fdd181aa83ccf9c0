"""Published recipes as a whole: the batches of our loader beside those of the pipeline that a recipe comes from.

Both sides draw for themselves. A draw is one batch that holds every picture once, in a random order, so that mixing
counts as what it is: one decision a batch. What is compared are finished images, brought back to levels of 0..255.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from lightning_gpuaug.augment.explain import name_of, program_of
from lightning_gpuaug.cli.origins import Heard, Origin, make, note_crop
from lightning_gpuaug.cli.parity_statistics import (
    MOST_DISTRIBUTION_APART,
    STANDARD_ERRORS,
    distribution_apart,
    distribution_distance,
    histogram_distance,
    means_apart,
)
from lightning_gpuaug.cli.peers import seeded
from lightning_gpuaug.data import ImageDataModule
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.ops.record import Flag, Opcode, Word
from lightning_gpuaug.plan import Plan
from lightning_gpuaug.prepare import Prepared, Preparer
from lightning_gpuaug.recipe import IMAGENET_MEAN, IMAGENET_STD, TrainRecipe

Floats = NDArray[np.float64]

_LOWEST, _LEVELS = -384, 1024
"""Of histograms: erased noise and bicubic leave 0..255."""
_BIN = 16
"""Levels that are counted together for the shares that are compared in standard errors."""
_LEAST_SHARE = 0.01
"""Of a channel's values, of the bins that are compared: those of rarer ones come in a few draws alone."""
MOST_KNOWN = 3.0
"""Levels by which means, stds and histograms may differ, whatever chance makes, where an origin is known to resample
otherwise; what is drawn must agree all the same."""
_JITTER = (Opcode.BRIGHTNESS, Opcode.CONTRAST, Opcode.SATURATION, Opcode.HUE)


@dataclass(frozen=True)
class Distance:
    """How far two sides that draw for themselves lie apart.

    Attributes:
        found: between ours and the origin's, in levels or as a share.
        twice: the same between two independent runs of the origin: what chance makes.
        apart: `found` in standard errors, or for numbers in units of `parity_statistics.distribution_apart`.
    """

    found: float
    twice: float
    apart: float


@dataclass(frozen=True)
class PublishedParity:
    """How far the images of one kind of view of a recipe are from those of its origin.

    Attributes:
        peer: whose pipeline.
        recipe: name of its file.
        view: which views of the recipe, "" where there is one.
        size: height and width of the images, pixels.
        draws: batches on each side.
        images: images on each side.
        mean: of the pixels, the largest of the channels' distances, levels of 0..255.
        std: of the pixels of an image, averaged over the images; likewise.
        histogram: of all pixels, earth mover's, averaged over the channels; `apart` is the largest of the shares of
            16 levels that hold a hundredth of the values.
        frequency: of each step and op: ours, the origin's, and the difference in standard errors; applications an
            image, or a batch for mixing.
        numbers: of each value that is drawn (windows, factors, shares …): distances of the distributions, 0..1.
        known: as of `origins.Origin`.
    """

    peer: str
    recipe: str
    view: str
    size: int
    draws: int
    images: int
    mean: Distance
    std: Distance
    histogram: Distance
    frequency: dict[str, tuple[float, float, float]]
    numbers: dict[str, Distance]
    known: str

    @property
    def frequency_apart(self) -> tuple[str, float]:
        """The op whose frequencies lie furthest apart, and how many standard errors."""
        return max(((name, apart) for name, (*_, apart) in self.frequency.items()), key=lambda x: x[1], default=("", 0))

    @property
    def number_apart(self) -> tuple[str, Distance]:
        """The drawn value whose distributions lie furthest apart."""
        return max(self.numbers.items(), key=lambda x: x[1].apart, default=("", Distance(0.0, 0.0, 0.0)))

    @property
    def agrees(self) -> bool:
        """Whether every difference is within what chance makes, or is small and its cause known."""
        drawn = self.frequency_apart[1] <= STANDARD_ERRORS and self.number_apart[1].apart <= MOST_DISTRIBUTION_APART
        pixels = (self.mean, self.std, self.histogram)
        return drawn and all(
            distance.apart <= STANDARD_ERRORS or (bool(self.known) and distance.found <= MOST_KNOWN)
            for distance in pixels
        )


class _Side:
    """What one side made of one kind of view."""

    def __init__(self) -> None:
        self.means: list[Floats] = []
        self.stds: list[Floats] = []
        self.histograms: list[NDArray[np.int64]] = []
        self.applied: list[Counter[str]] = []
        self.numbers: dict[str, list[float]] = {}
        self.images = self.size = 0

    def add(self, batch: torch.Tensor, heard: Heard) -> None:
        """Count a batch: (N, 3, S, S) float, normalised."""
        mean, std = (np.array(values)[:, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
        pixels = batch.double().numpy().reshape(len(batch), 3, -1)
        levels = (pixels * std + mean) * 255.0
        self.means.append(levels.mean(axis=(0, 2)))
        self.stds.append(levels.std(axis=2).mean(axis=0))
        whole = np.rint(levels).astype(np.int64) - _LOWEST
        np.clip(whole, 0, _LEVELS - 1, out=whole)
        self.histograms.append(np.stack([np.bincount(whole[:, c].ravel(), minlength=_LEVELS) for c in range(3)]))
        self.applied.append(Counter(heard.applied))
        for name, values in heard.numbers.items():
            self.numbers.setdefault(name, []).extend(values)
        self.images, self.size = self.images + len(batch), batch.shape[-1]

    @property
    def histogram(self) -> NDArray[np.int64]:
        """(3, levels) of all batches."""
        total: NDArray[np.int64] = np.sum(self.histograms, axis=0)
        return total

    def shares(self) -> Floats:
        """(draws, 3 · bins): the share of each channel's values in each bin of levels."""
        binned = np.stack(self.histograms).reshape(len(self.histograms), 3, -1, _BIN).sum(axis=3)
        shares: Floats = (binned / binned.sum(axis=2, keepdims=True)).reshape(len(binned), -1)
        return shares

    def often(self, name: str) -> Floats:
        """(draws, 1): how often an op came in each batch; of mixing in the batch, else in one of its images."""
        times = 1 if name in ("mixup", "cutmix") else self.images / len(self.applied)
        return np.array([[counter[name] / times] for counter in self.applied])


def compare_published(
    name: str,
    recipe: TrainRecipe,
    origin: Origin,
    pictures: list[Image.Image],
    size: int,
    draws: int,
    seed: int,
    device: torch.device,
) -> list[PublishedParity]:
    """Compare a recipe with its origin, a result for each kind of view.

    Args:
        name: of the recipe.
        recipe: ours.
        origin: the pipeline it comes from, for images of the same size.
        pictures: whole images; of an odd number the first comes twice, since mixing takes pairs.
        size: of the images that are made, of the large views; smaller views keep their share of the recipe's.
        draws: batches on each side.
        seed: of all draws.
        device: where our loader hands over.

    Raises:
        ValueError: the recipe and the origin differ in their views.
    """
    pictures = [*pictures, *pictures[: len(pictures) % 2]]
    counts = [view.count for view in recipe.views] or [1]
    if counts != [count for count, _ in origin.views]:
        raise ValueError(f"recipe {name} has {counts} views of each kind, its origin {[c for c, _ in origin.views]}")
    ours = [_Side() for _ in counts]
    for batches in our_batches(recipe, pictures, size, draws, seed, device):
        for side, (batch, heard) in zip(ours, batches, strict=True):
            side.add(batch, heard)
    runs = []
    with seeded(seed):
        for _ in range(2):
            run = [_Side() for _ in counts]
            for _ in range(draws):
                for side, (batch, heard) in zip(run, make(origin, pictures), strict=True):
                    side.add(batch, heard)
            runs.append(run)
    first = np.cumsum([1, *counts]).tolist()
    names = [str(at) if count == 1 else f"{at}–{at + count - 1}" for at, count in zip(first, counts, strict=False)]
    return [
        _compare(origin, name, view if recipe.views else "", *sides)
        for view, *sides in zip(names, ours, *runs, strict=True)
    ]


def _compare(origin: Origin, recipe: str, view: str, ours: _Side, theirs: _Side, again: _Side) -> PublishedParity:
    def distance(a: Floats, b: Floats, c: Floats) -> Distance:
        apart = [float(np.abs(x.mean(axis=0) - b.mean(axis=0)).max()) for x in (a, c)]
        return Distance(apart[0], apart[1], means_apart(a, b))

    shares = ours.shares(), theirs.shares()
    filled = (shares[0].mean(axis=0) + shares[1].mean(axis=0)) / 2 >= _LEAST_SHARE
    frequency = {}
    for op in sorted({op for side in (ours, theirs) for counter in side.applied for op in counter}):
        a, b = ours.often(op), theirs.often(op)
        frequency[op] = (float(a.mean()), float(b.mean()), means_apart(a, b))
    numbers = {}
    for drawn in sorted(ours.numbers.keys() | theirs.numbers.keys()):
        a, b, c = (np.array(side.numbers.get(drawn, [np.inf])) for side in (ours, theirs, again))
        numbers[drawn] = Distance(distribution_distance(a, b), distribution_distance(c, b), distribution_apart(a, b))
    return PublishedParity(
        origin.peer, recipe, view, ours.size, len(ours.applied), ours.images,
        mean=distance(*(np.stack(side.means) for side in (ours, theirs, again))),
        std=distance(*(np.stack(side.stds) for side in (ours, theirs, again))),
        histogram=Distance(
            histogram_distance(ours.histogram, theirs.histogram),
            histogram_distance(again.histogram, theirs.histogram),
            means_apart(shares[0][:, filled], shares[1][:, filled]),
        ),
        frequency=frequency, numbers=numbers, known=origin.known,
    )  # fmt: skip


# ---- ours ----------------------------------------------------------------------------------------------------------


def resized(recipe: TrainRecipe, size: int, published: int) -> TrainRecipe:
    """A recipe for images of another size than the published one; smaller views keep their share of it."""
    scaled = [
        dataclasses.replace(view, image_size=max(1, round(size * view.image_size / published)))
        if view.image_size
        else view
        for view in recipe.views
    ]
    return dataclasses.replace(recipe, image_size=size, views=tuple(scaled), repeats=1)


def our_batches(
    recipe: TrainRecipe, pictures: list[Image.Image], size: int, draws: int, seed: int, device: torch.device
) -> Iterator[list[tuple[torch.Tensor, Heard]]]:
    """Batches of the loader, one an epoch, and what was drawn for them: of each kind of view.

    Args:
        recipe: what happens.
        pictures: N of them.
        size: of views without a size of their own.
        draws: batches.
        seed: of all draws.
        device: where the loader hands over.
    """
    n = len(pictures)
    with tempfile.TemporaryDirectory(prefix="gpuaug-parity-") as folder:
        for i, picture in enumerate(pictures):
            path = Path(folder) / f"class_{i:05d}" / "0.png"
            path.parent.mkdir()
            picture.save(path, compress_level=1)
        data = ImageDataModule(train=folder, batch_size=n, image_size=size, train_recipe=recipe, seed=seed)
        data.setup_for(device)
        try:
            train = data.train_dataloader()
            # `drop_last` and the module's own plan do not matter here: every epoch is one batch of all pictures.
            plan = Plan(n, n, shuffle=True, seed=seed)
            loader = Loader(train.source, plan, train.decoding, train.output, seed=seed)
            with closing(Preparer(train.source, recipe, size)) as preparer, closing(loader):
                for epoch in range(draws):
                    images, _ = next(iter(loader))
                    prepared = preparer(plan.batch(epoch, 0), epoch, seed)
                    yield _with_what_was_drawn(recipe, images, prepared, pictures, plan.batch(epoch, 0))
        finally:
            data.teardown("fit")


def _with_what_was_drawn(
    recipe: TrainRecipe,
    images: torch.Tensor | list[torch.Tensor],
    prepared: Prepared,
    pictures: list[Image.Image],
    order: NDArray[np.int64],
) -> list[tuple[torch.Tensor, Heard]]:
    sizes = [pictures[i].size for i in order]
    if not recipe.views:
        assert isinstance(images, torch.Tensor)
        windows = np.concatenate([prepared.request.start, prepared.request.size], axis=1)
        heard = Heard()
        records = prepared.params.records if prepared.params is not None else None
        for row, window in enumerate(windows.tolist()):
            record = records[row] if records is not None else None
            _note(heard, record, window, sizes[row], images.shape[-1], recipe.color_jitter is not None)
        if records is None and prepared.flip is not None:
            heard.applied += ["flip"] * int(prepared.flip.sum())
        if records is not None and recipe.mix is not None:
            _note_mixed(heard, records[0])
        return [(images.cpu(), heard)]
    result, first = [], 0
    for view, kind in zip(recipe.views, prepared.views, strict=True):
        heard = Heard()
        for row, record in enumerate(kind.params.records):
            top, left, height, width = record[Word.CROP : Word.CROP + 4].tolist()
            start = prepared.request.start[row % len(order)]  # of the decoded window, which holds all views
            window = [top + int(start[0]), left + int(start[1]), height, width]
            _note(heard, record, window, sizes[row % len(order)], kind.image_size, view.color_jitter is not None)
        result.append((torch.cat([batch.cpu() for batch in images[first : first + kind.count]]), heard))
        first += kind.count
    return result


def _note(
    heard: Heard,
    record: NDArray[np.int32] | None,
    window: list[int],
    picture: tuple[int, int],
    size: int,
    jitters: bool,
) -> None:
    """Note what a record says about its image, in the words of `origins`."""
    top, left, height, width = window
    note_crop(heard, (top, left, height, width), *picture)
    if record is None:
        return
    flags = Flag(int(record[Word.FLAGS]))
    if Flag.FLIP_HORIZONTAL in flags:
        heard.applied.append("flip")
    jittered: list[int] = []
    for op in program_of(record):
        if op.opcode != Opcode.NONE:
            heard.applied.append(name_of(op))
        if op.opcode in _JITTER and jitters:
            jittered.append(_JITTER.index(op.opcode))
            heard.number(name_of(op), op.parameters[0])
        if op.opcode == Opcode.BLUR:
            heard.number("blur sigma", op.parameters[0])
    if len(jittered) == len(_JITTER):
        heard.number("first of the jitter", jittered[0])
    if flags & (Flag.ERASE_CONSTANT | Flag.ERASE_NOISE):
        heard.applied.append("erase")
        heard.number("erased area", float(record[Word.ERASE + 2] * record[Word.ERASE + 3]) / size**2)


def _note_mixed(heard: Heard, record: NDArray[np.int32]) -> None:
    """Note the mix of a batch, which is that of each of its rows."""
    flags, share = Flag(int(record[Word.FLAGS])), float(record.view(np.float32)[Word.LAMBDA])
    for flag, name in ((Flag.MIXUP, "mixup"), (Flag.CUTMIX, "cutmix")):
        if flag in flags:
            heard.applied.append(name)
            heard.number(f"{name} share", share)
