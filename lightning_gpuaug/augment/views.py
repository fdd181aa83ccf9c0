"""Several views of each sample of a batch, and several splits: their programs, from one decoded window a sample."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from lightning_gpuaug.augment.keys import Keys, keys_of
from lightning_gpuaug.augment.params import Params, sample_params
from lightning_gpuaug.augment.window import Sizes
from lightning_gpuaug.ops.record import Flag, Word
from lightning_gpuaug.recipe import TrainRecipe

_FLIPS = int(Flag.FLIP_HORIZONTAL | Flag.FLIP_VERTICAL)


@dataclass(frozen=True)
class ViewParams:
    """What was drawn for the views of one kind, of a batch of N samples.

    Attributes:
        count: views of this kind.
        image_size: of their images, pixels.
        params: of count × N rows, the N samples of the first view first; the records' crop windows lie in the
            decoded window of each sample.
    """

    count: int
    image_size: int
    params: Params


def view_params(
    recipe: TrainRecipe, indices: Keys, repeats: Keys | int, epoch: int, seed: int, image_size: int, sizes: Sizes
) -> tuple[Sizes, Sizes, tuple[ViewParams, ...]]:
    """Draw all views of a batch.

    Args:
        recipe: with views.
        indices: (N,) sample indices.
        repeats: (N,) which of its repeats each row is.
        epoch: number of the epoch.
        seed: 0..2**32-1.
        image_size: of views without one of their own.
        sizes: (N, 2) height and width of the images, at least 1.

    Returns:
        (top, left) and (height, width), (N, 2) each, of the smallest window of each image that holds all its views;
        and the views' draws.
    """
    kinds: list[ViewParams] = []
    first = 0
    for view in recipe.views:
        keys = np.concatenate([keys_of(indices, repeats, view=first + i) for i in range(view.count)])
        size = view.image_size or image_size
        alone = recipe.view_recipe(view)
        params = sample_params(alone, keys, epoch, seed, size, size, sizes=np.tile(sizes, (view.count, 1)))
        if alone.crop is None:  # a height of 0 says "the whole image", but the decoded window may be more than the view
            params.records[:, Word.CROP + 2 : Word.CROP + 4] = np.tile(sizes, (view.count, 1))
        kinds.append(ViewParams(view.count, size, params))
        first += view.count
    # (all views, N, 4): top, left, height, width
    windows = np.concatenate([_windows(kind).reshape(kind.count, len(indices), 4) for kind in kinds])
    start = windows[..., :2].min(axis=0)
    size = (windows[..., :2] + windows[..., 2:]).max(axis=0) - start
    for kind in kinds:
        _windows(kind)[:, :2] -= np.tile(start, (kind.count, 1))
    return start, size, tuple(kinds)


def _windows(kind: ViewParams) -> Sizes:
    """The crop windows of the records, (rows, 4): top, left, height, width. A view, not a copy."""
    return kind.params.records[:, Word.CROP : Word.CROP + 4]


def split_params(
    recipe: TrainRecipe, indices: Keys, repeats: Keys | int, epoch: int, seed: int, height: int, width: int
) -> Params:
    """Draw the augmentation splits of a batch of N samples.

    The first N rows are only flipped; each further N are flipped alike and have draws of their own for all other steps.

    Args:
        recipe: with `splits` above 1.
        indices: (N,) sample indices.
        repeats: (N,) which of its repeats each row is.
        epoch: number of the epoch.
        seed: 0..2**32-1.
        height: of the images.
        width: of the images.
    """
    plain = dataclasses.replace(
        recipe, auto=None, color_jitter=None, grayscale=0.0, blur=None, solarize=None, erasing=None
    )
    clean = sample_params(plain, keys_of(indices, repeats), epoch, seed, height, width)
    keys = np.concatenate([keys_of(indices, repeats, split=split) for split in range(1, recipe.splits)])
    rest = sample_params(recipe, keys, epoch, seed, height, width)
    flags = rest.records[:, Word.FLAGS]
    flags &= ~_FLIPS
    flags |= np.tile(clean.records[:, Word.FLAGS] & _FLIPS, recipe.splits - 1)
    return Params(np.concatenate([clean.records, rest.records]), max(clean.chains, rest.chains), None)
