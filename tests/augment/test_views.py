"""Keys of samples that are shown more than once; the draws of views and splits."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.augment.draw import uniforms
from lightning_gpuaug.augment.keys import keys_of
from lightning_gpuaug.augment.params import sample_params
from lightning_gpuaug.augment.views import split_params, view_params
from lightning_gpuaug.ops.record import Flag, Opcode, Word
from lightning_gpuaug.recipe import (
    MOST_REPEATS,
    MOST_SPLITS,
    MOST_VIEWS,
    ColorJitter,
    GaussianBlur,
    RandomErasing,
    RandomResizedCrop,
    Solarize,
    TrainRecipe,
    View,
)
from tests.crops import random_crops

INDICES = np.array([3, 0, 7, 2**40, 11])
SIZES = np.array([[60, 80], [33, 20], [100, 100], [7, 200], [64, 48]], dtype=np.int32)
DINO = TrainRecipe(
    views=(
        View(crop=RandomResizedCrop((0.4, 1.0)), blur=GaussianBlur(probability=1.0), color_jitter=ColorJitter()),
        View(crop=RandomResizedCrop((0.4, 1.0)), blur=GaussianBlur(probability=0.1), solarize=Solarize(128, 1.0)),
        View(3, 24, RandomResizedCrop((0.05, 0.4), interpolation="bicubic"), grayscale=0.5),
        View(crop=None, hflip=0.0),
    )
)  # fmt: skip


def test_keys_are_all_different_and_a_single_showing_keeps_the_index():
    assert np.array_equal(keys_of(INDICES), INDICES)
    extremes = itertools.product(
        (0, 1, MOST_REPEATS - 1), (0, 1, MOST_SPLITS - 1), (0, 1, MOST_VIEWS - 1), (0, 2**48 - 1)
    )
    keys = {int(keys_of(np.array([i]), r, s, v)[0]) for r, s, v, i in extremes}
    assert len(keys) == 3 * 3 * 3 * 2
    assert min(keys) >= 0
    drawn = [uniforms(keys_of(np.arange(4), view=view), 0, 0, 2) for view in range(3)]
    assert len(np.unique(np.concatenate(drawn))) == 3 * 4 * 2 * 4


def test_each_view_is_the_crop_and_program_of_its_own_recipe():
    start, size, kinds = view_params(DINO, INDICES, 0, 5, 9, 32, SIZES)
    assert [(kind.count, kind.image_size, len(kind.params.records)) for kind in kinds] == [
        (1, 32, 5), (1, 32, 5), (3, 24, 15), (1, 32, 5),
    ]  # fmt: skip
    first = 0
    for view, kind in zip(DINO.views, kinds, strict=True):
        for i in range(kind.count):
            keys = keys_of(INDICES, view=first + i)
            rows = kind.params.records[5 * i : 5 * (i + 1)]
            alone = DINO.view_recipe(view)
            expected = sample_params(alone, keys, 5, 9, kind.image_size, kind.image_size, sizes=SIZES).records
            other = np.delete(np.arange(64), np.arange(Word.CROP, Word.CROP + 4))
            assert np.array_equal(rows[:, other], expected[:, other])
            if alone.crop is None:
                top_left, extent = np.zeros_like(SIZES), SIZES
            else:
                top_left, extent = random_crops(alone.crop, keys, 5, 9, SIZES)
            assert np.array_equal(rows[:, Word.CROP : Word.CROP + 2] + start, top_left)
            assert np.array_equal(rows[:, Word.CROP + 2 : Word.CROP + 4], extent)
            assert (rows[:, Word.CROP : Word.CROP + 2] >= 0).all()
            assert (rows[:, Word.CROP : Word.CROP + 2] + extent <= size).all()
        first += kind.count
    assert np.array_equal(size, SIZES)  # the last view is the whole image


def test_the_decoded_window_is_no_larger_than_the_views_need():
    recipe = TrainRecipe(views=(View(2, crop=RandomResizedCrop((0.05, 0.1))),))
    start, size, (kind,) = view_params(recipe, INDICES, 0, 0, 0, 32, SIZES)
    windows = kind.params.records[:, Word.CROP : Word.CROP + 4].reshape(2, 5, 4)
    assert (windows[..., :2].min(axis=0) == 0).all()
    assert np.array_equal((windows[..., :2] + windows[..., 2:]).max(axis=0), size)
    assert (start + size <= SIZES).all()
    assert (size < SIZES).any()


def test_views_and_repeats_draw_apart():
    recipe = TrainRecipe(views=(View(2), View(1)))
    windows = []
    for repeats in (0, np.arange(5) % 2 + 1):
        start, _, kinds = view_params(recipe, INDICES, repeats, 0, 0, 32, SIZES)
        for kind in kinds:
            corners = kind.params.records[:, Word.CROP : Word.CROP + 4].reshape(-1, 5, 4)
            windows += list(corners + np.concatenate([start, np.zeros_like(start)], axis=1))
    for one, other in itertools.combinations(windows, 2):
        assert not (one == other).all(axis=1).all()


def test_solarize_comes_last_with_its_probability_and_threshold():
    recipe = TrainRecipe(grayscale=0.3, blur=GaussianBlur(9), solarize=Solarize(100, 0.2))
    many = np.arange(20000)
    records = sample_params(recipe, many, 0, 0, 32, 32).records
    head = records[:, Word.PROGRAM + 6] & 0xFF
    assert set(np.unique(head)) == {0, Opcode.SOLARIZE}
    chosen = head == Opcode.SOLARIZE
    assert abs(chosen.mean() - 0.2) < 0.012
    assert (records.view(np.float32)[chosen, Word.PROGRAM + 7] == 100).all()
    grey = (records[:, Word.PROGRAM] & 0xFF) == Opcode.GRAYSCALE
    assert abs((grey & chosen).mean() - 0.06) < 0.008  # independent
    x = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).repeat(1, 1, 1, 3)
    alone = sample_params(TrainRecipe(hflip=0.0, solarize=Solarize(100, 1.0)), many[:1], 0, 0, 16, 16)
    result = ops.augment(x, torch.from_numpy(alone.records), dtype=torch.uint8)[0, 0].flatten()
    levels = torch.arange(256)
    assert torch.equal(result.long(), torch.where(levels >= 100, 255 - levels, levels))


def test_splits_share_crop_and_flips_and_the_first_is_clean():
    recipe = TrainRecipe(auto="augmix-m3", vflip=0.5, erasing=RandomErasing(1.0), splits=3)
    many = np.arange(64)
    params = split_params(recipe, many, 0, 1, 2, 32, 32)
    assert params.share is None
    records = params.records.reshape(3, 64, 64)
    flips = records[..., Word.FLAGS] & (Flag.FLIP_HORIZONTAL | Flag.FLIP_VERTICAL)
    plain = sample_params(TrainRecipe(vflip=0.5), many, 1, 2, 32, 32).records
    assert np.array_equal(records[0], plain)
    assert set(np.unique(flips)) == {0, 1, 2, 3}
    assert (flips == flips[0]).all()
    assert (records[1:, :, Word.FLAGS] & Flag.ERASE_CONSTANT).astype(bool).mean() > 0.9
    assert (records[1:, :, Word.CHAINS] == 3).all()
    assert not np.array_equal(records[1, :, Word.PROGRAM :], records[2, :, Word.PROGRAM :])
    ops.check_records(torch.from_numpy(params.records), 32, 32, params.chains)
