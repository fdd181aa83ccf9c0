"""Draws: the generator's known answers, what they depend on, and how they are distributed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_gpuaug import RandomResizedCrop, TrainRecipe, ops
from lightning_gpuaug.augment.draw import draw, uniforms
from lightning_gpuaug.augment.window import random_window
from lightning_gpuaug.ops._uniforms import plain_uniforms
from tests.philox import philox4x32


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        ((0, 0), [0, 0, 0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ((0xFFFFFFFF, 0xFFFFFFFF), [0xFFFFFFFF] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            (0xA4093822, 0x299F31D0),
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_known_answers(key: tuple[int, int], counter: list[int], expected: list[int]) -> None:
    """The vectors of the paper's own library, Random123."""
    assert philox4x32(key, np.array(counter, dtype=np.uint32)).tolist() == expected


@pytest.mark.parametrize("plain", [False, True], ids=["native", "plain"])
def test_uniforms_are_philoxs_upper_bits(plain: bool) -> None:
    keys = np.array([0, 1, 2**32 - 1, 2**32, 2**62 + 12345, -1])
    slots = np.array([0, 7, 2**32 - 1])
    for seed, epoch in ((0, 0), (2**32 - 1, 3), (5, 2**31)):
        tensors = torch.from_numpy(keys), torch.from_numpy(slots)
        got = plain_uniforms(*tensors, epoch, seed) if plain else ops.uniforms(*tensors, epoch=epoch, seed=seed)
        wide = keys.astype(np.uint64)
        parts = np.broadcast_arrays((wide & np.uint64(2**32 - 1))[:, None], (wide >> np.uint64(32))[:, None], slots, 0)
        words = philox4x32((seed, epoch), np.stack(parts, -1).astype(np.uint32))
        assert got.dtype == torch.float64
        assert (got.numpy() * 2.0**24).tolist() == (words >> 8).tolist()


def test_uniforms_takes_int64_in_rows() -> None:
    row = torch.arange(3)
    torch.library.opcheck(torch.ops.lightning_gpuaug.uniforms.default, (row, row, 1, 2))
    assert ops.uniforms(row[:0], row, epoch=0, seed=0).shape == (0, 3, 4)
    assert torch.equal(
        ops.uniforms(row, torch.arange(6)[::2], epoch=0, seed=0), ops.uniforms(row, 2 * row, epoch=0, seed=0)
    )
    with pytest.raises(ValueError, match=r"slots must be int64 on the CPU, got torch\.int32"):
        ops.uniforms(row, row.int(), epoch=0, seed=0)
    with pytest.raises(RuntimeError, match="keys must have one dimension"):
        ops.uniforms(row[None], row, epoch=0, seed=0)


def test_draws_depend_on_the_key_alone() -> None:
    recipe = TrainRecipe()
    whole = draw(recipe, np.arange(64), 3, 7)
    part = draw(recipe, np.array([40, 2]), 3, 7)
    assert whole.crop is not None
    assert part.crop is not None
    assert (part.crop == whole.crop[[40, 2]]).all()
    for other in (draw(recipe, np.arange(64), 4, 7), draw(recipe, np.arange(64), 3, 8)):
        assert other.crop is not None
        assert (other.crop != whole.crop).any(axis=(1, 2)).all()


def test_uniforms_are_uniform() -> None:
    u = uniforms(np.arange(20_000), 0, 0, 3)
    assert ((u >= 0) & (u < 1)).all()
    counts, _ = np.histogram(u, bins=64, range=(0, 1))
    expected = u.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees of freedom, p < 1e-5


def test_crops_follow_the_recipe() -> None:
    crop = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2.0))
    draws = draw(TrainRecipe(crop=crop, hflip=0.25), np.arange(20_000), 0, 1)
    assert draws.crop is not None
    assert draws.flip is not None
    assert abs(draws.flip.mean() - 0.25) < 0.015
    sizes = np.full((20_000, 2), 1000, dtype=np.int32)
    start, size = random_window(sizes, draws.crop, crop)
    assert (start >= 0).all()
    assert (start + size <= 1000).all()
    share = size.prod(axis=1) / 1e6
    assert share.min() >= 0.199
    assert share.max() <= 0.501
    assert abs(share.mean() - 0.35) < 0.01
    ratio = size[:, 1] / size[:, 0]
    assert abs(np.log(ratio).mean()) < 0.02
    free = start / np.maximum(1000 - size, 1)
    assert abs(free.mean() - 0.5) < 0.01


def test_steps_switched_off_draw_nothing() -> None:
    draws = draw(TrainRecipe(crop=None, hflip=0.0), np.arange(4), 0, 0)
    assert draws.crop is None
    assert draws.flip is None
