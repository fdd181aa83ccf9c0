"""`gpuaug preview`: what the training recipe makes of some images, as one picture."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_gpuaug.cli.errors import OK, UsageError, run_command

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lightning_gpuaug.data import ImageDataModule
    from lightning_gpuaug.loader import Loader
    from lightning_gpuaug.prepare import Prepared
    from lightning_gpuaug.recipe import TrainRecipe
    from lightning_gpuaug.sources import Source

    Pixels = NDArray[np.uint8]

_DRAWS = 6
_READABLE = 112
"""Pixels that a tile should be wide at least, for its picture and its captions; smaller images are magnified."""


@dataclass(frozen=True)
class Tile:
    """One picture of the grid.

    Attributes:
        pixels: (H, W, 3) uint8.
        caption: lines of text.
    """

    pixels: Pixels
    caption: str


@dataclass(frozen=True)
class Preview:
    """What training makes of some samples.

    Attributes:
        headings: one a column.
        rows: one a sample: the image, then its tiles of the first epochs, several an epoch where the recipe has
            views or splits.
    """

    headings: list[str]
    rows: list[list[Tile]]


def training_preview(data: ImageDataModule, indices: list[int], draws: int) -> Preview:
    """What training makes of some samples in its first epochs: the draws that training itself will use.

    Only the partners of MixUp and CutMix differ: here they are the other samples of `indices`. Of repeated augmentation
    the first repeat is shown.

    Args:
        data: a data module set up on the CPU.
        indices: samples of its training data.
        draws: epochs.
    """
    from lightning_gpuaug.prepare import Preparer
    from lightning_gpuaug.recipe import TrainRecipe

    train = data.train_dataloader()
    source, recipe, size = train.source, data.train_recipe, train.decoding.image_size
    plain = TrainRecipe(crop=None, hflip=0.0, normalize=None, exif_orientation=recipe.exif_orientation)
    chosen = np.array(indices, dtype=np.int64)
    with closing(Preparer(source, plain, size)) as whole_images:
        prepared = whole_images(chosen, 0, 0)
    wholes = prepared.request.size
    targets = prepared.targets if prepared.targets is not None else source.targets[chosen]
    [[originals]] = _epochs(train, plain, indices, 1)
    names = [f"{_label(source, target)}\n{source.sample_name(i)}" for target, i in zip(targets, indices, strict=True)]
    rows = [
        [Tile(_reshaped(p, *whole), name)] for p, whole, name in zip(originals, wholes.tolist(), names, strict=True)
    ]

    headings = ["image"]
    with closing(Preparer(source, recipe, size)) as preparer:
        for epoch, pictures in enumerate(_epochs(train, recipe, indices, draws)):
            captions = _captions(preparer(chosen, epoch, train.seed), wholes, [len(picture[0]) for picture in pictures])
            for number, (picture, texts) in enumerate(zip(pictures, captions, strict=True), start=1):
                kind = f", {'view' if recipe.views else 'split'} {number}" if len(pictures) > 1 else ""
                headings.append(f"epoch {epoch}{kind}")
                for i, row in enumerate(rows):
                    row.append(Tile(picture[i], texts[i]))
    return Preview(headings, rows)


def _epochs(train: Loader, recipe: TrainRecipe, indices: list[int], count: int) -> list[list[Pixels]]:
    """The samples as the loader hands them over in the first epochs: (N, H, W, 3) uint8, one a view or split."""
    import torch

    from lightning_gpuaug.loader import Loader
    from lightning_gpuaug.plan import Indices, Plan

    class Chosen(Plan):
        """One batch an epoch, always the same samples."""

        def order(self, epoch: int) -> Indices:
            return np.array(indices, dtype=np.int64)

    decoding = dataclasses.replace(train.decoding, recipe=recipe, batch_size=max(2, len(indices)))
    output = dataclasses.replace(train.output, dtype=torch.uint8)
    loader = Loader(train.source, Chosen(len(indices), len(indices)), decoding, output, seed=train.seed)
    try:
        batches = [next(iter(loader))[0] for _ in range(count)]
    finally:
        loader.close()
    parts = [b if isinstance(b, list) else torch.split(b, len(indices)) for b in batches]
    return [[part.permute(0, 2, 3, 1).numpy() for part in epoch] for epoch in parts]


def _captions(prepared: Prepared, wholes: NDArray[np.int32], sides: list[int]) -> list[list[str]]:
    """What happened to each sample, a step a line: a list for each view or split, whose images have these sides."""
    from lightning_gpuaug.augment.explain import steps_of
    from lightning_gpuaug.ops.record import Word

    n = len(wholes)
    if prepared.views:
        records: NDArray[np.int32] | None = np.concatenate([kind.params.records for kind in prepared.views])
        assert records is not None
        windows = records[:, Word.CROP + 2 : Word.CROP + 4]
    else:
        records = prepared.params.records if prepared.params is not None else None
        windows = np.tile(prepared.request.size, (len(sides), 1))
    captions = []
    for row, window in enumerate(windows):
        share = float(window.prod(dtype=np.float64)) / float(wholes[row % n].prod(dtype=np.float64))
        steps = [f"crop {share:.0%}"] if share < 1 else []
        if records is not None:
            steps += steps_of(records[row], sides[row // n], sides[row // n])
        elif prepared.flip is not None and prepared.flip[row % n]:
            steps.append("flip")
        captions.append("\n".join(steps) or "unchanged")
    return [captions[first : first + n] for first in range(0, len(captions), n)]


def _tiles_an_epoch(recipe: TrainRecipe) -> int:
    return sum(view.count for view in recipe.views) or recipe.splits


def _label(source: Source, target: np.generic | NDArray[np.generic]) -> str:
    chosen = np.flatnonzero(target).tolist() if target.ndim else [int(target)]
    return ", ".join(source.classes[label] if source.classes is not None else str(label) for label in chosen)


def _reshaped(pixels: Pixels, height: int, width: int) -> Pixels:
    """A square picture of a whole image, brought back to the image's own ratio; the longer side stays."""
    from PIL import Image

    side = len(pixels)
    longest = max(height, width)
    shape = max(1, round(side * width / longest)), max(1, round(side * height / longest))
    return np.asarray(Image.fromarray(pixels).resize(shape, Image.Resampling.BICUBIC))


def _chosen(indices: list[int] | None, images: int, size: int) -> list[int]:
    """The samples to draw: those asked for, or as many as asked for, spread over the data (and so over its classes)."""
    if indices is None:
        count = min(images, size)
        return [round(i) for i in np.linspace(0, size - 1, count)] if count > 1 else [0]
    for index in indices:
        if not 0 <= index < size:
            raise UsageError(f"--indices must be in 0..{size - 1} (the training data's samples), got {index}")
    return indices


def write_preview(data: ImageDataModule, indices: list[int], draws: int, path: Path) -> None:
    """Draw the grid of `training_preview` to a PNG.

    Args:
        data: a data module set up on the CPU.
        indices: samples of its training data, a row each.
        draws: epochs.
        path: the file to write; its folder is made.
    """
    from lightning_gpuaug.grid import draw_grid

    preview = training_preview(data, indices, draws)
    tiles = [tile for row in preview.rows for tile in row]
    widest = max(tile.pixels.shape[1] for tile in tiles)
    picture = draw_grid(
        [tile.pixels for tile in tiles],
        [tile.caption for tile in tiles],
        columns=len(preview.headings),
        scale=max(1, -(-_READABLE // widest)),
        headings=preview.headings,
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path, "PNG")
    except OSError as error:
        raise UsageError(f"--out: {path} cannot be written: {error.strerror or error}") from error


def main(args: list[str]) -> int:
    """Run `gpuaug preview` with `args` and return the exit code."""
    return run_command("preview", lambda: _run(args))


def _run(args: list[str]) -> int:
    from lightning_gpuaug.cli.data_config import data_parser, training_data

    parser = data_parser(
        "preview",
        "Draw training images beside what the recipe makes of them in the first epochs, with the steps' names. "
        "The draws are those that `gpuaug fit` with the same configuration will train on. Needs no GPU and no model.",
        "gpuaug preview --config configs/imagenet_resnet50.yaml --data.train /data/train -o grid.png",
    )
    parser.add_argument("-o", "--out", type=str, default="preview.png", help="the PNG to write")
    parser.add_argument("--images", type=int, default=4, help="images to show, spread over the data")
    parser.add_argument("--indices", type=list[int] | None, default=None, help="which samples instead: [0,17,400]")
    parser.add_argument(
        "--draws",
        type=int | None,
        default=None,
        help="draws of each image: the epochs 0, 1, … (default: 6, or fewer of several views or splits)",
    )
    config = parser.parse_args(args)
    for name in ("images", "draws"):
        if config[name] is not None and config[name] < 1:
            raise UsageError(f"--{name} must be at least 1, got {config[name]}")
    data = training_data(parser, config)
    draws = config.draws or max(1, _DRAWS // _tiles_an_epoch(data.train_recipe))
    data.setup_for("cpu")
    try:
        indices = _chosen(config.indices, config.images, len(data.train_dataloader().source))
        write_preview(data, indices, draws, Path(config.out))
    finally:
        data.teardown("fit")
    print(f"{len(indices)} images × {draws} draws written to {config.out}")
    return OK
