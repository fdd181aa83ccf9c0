"""Draws: the generator's known answers, what they depend on, and how they are distributed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lightning_gpuaug import RandomResizedCrop, TrainRecipe, ops
from lightning_gpuaug.augment.draw import draw, uniforms
from lightning_gpuaug.ops import _random_crops
from lightning_gpuaug.ops._uniforms import plain_uniforms
from tests.crops import random_crops
from tests.crops import uniforms as uniforms_by_definition
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


SIZES = np.array([[375, 500], [500, 375], [1, 1], [1, 3000], [3000, 1], [7, 5], [0, 0], [40000, 20000]], dtype=np.int32)


@pytest.mark.parametrize("plain", [False, True], ids=["native", "plain"])
@pytest.mark.parametrize(
    ("scale", "ratio"),
    [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.2, 0.2), (1.0, 1.0)), ((0.5, 1.0), (3.0, 4.0)), ((1e-9, 1e-8), (0.1, 0.2))],
    ids=["usual", "fixed", "rarely_fits", "tiny"],
)
def test_random_crops_are_torchvisions(plain: bool, scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    keys = np.concatenate([np.arange(1200), 2**48 + np.arange(80)])
    sizes = np.tile(SIZES, (160, 1))
    call = _random_crops.plain_random_crops if plain else torch.ops.lightning_gpuaug.random_crops
    start, size, flip = call(torch.from_numpy(keys), torch.from_numpy(sizes), scale, ratio, 0.3, 5, 2**32 - 1)
    expected = random_crops(RandomResizedCrop(scale, ratio), keys, 5, 2**32 - 1, sizes)
    assert start.dtype == size.dtype == torch.int32
    assert np.array_equal(size.numpy(), expected[1])
    assert np.array_equal(start.numpy(), expected[0])
    assert np.array_equal(flip.numpy(), uniforms_by_definition(keys, 5, 2**32 - 1, 11)[:, 10, 0] < 0.3)
    assert (start.numpy() + size.numpy() <= np.maximum(sizes, 1)).all()


def test_random_crops_takes_what_it_says() -> None:
    keys, sizes = torch.arange(3), torch.full((3, 2), 9, dtype=torch.int32)
    options = {"scale": (0.1, 1.0), "ratio": (0.5, 2.0), "hflip": 0.5, "epoch": 1, "seed": 2}
    torch.library.opcheck(
        torch.ops.lightning_gpuaug.random_crops.default, (keys, sizes, (0.1, 1.0), (0.5, 2.0), 0.5, 1, 2)
    )
    assert [len(part) for part in ops.random_crops(keys[:0], sizes[:0], **options)] == [0, 0, 0]
    strided = torch.full((3, 4), 9, dtype=torch.int32)[:, ::2]
    for one, other in zip(
        ops.random_crops(keys, strided, **options), ops.random_crops(keys, sizes, **options), strict=True
    ):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match=r"random_crops: sizes must be torch\.int32 on the CPU, got torch\.int64"):
        ops.random_crops(keys, sizes.long(), **options)
    for name, value in (
        *(("scale", v) for v in (0.5, (0.5,), (0.5, 0.1), (-0.1, 1.0), (0.1, 1.1), ("a", 1.0), None, (math.nan, 1.0))),
        *(("ratio", v) for v in (1.0, (0.0, 1.0), (2.0, 0.5), (0.5, math.inf), (None, 1.0), "ab")),
        *(("hflip", v) for v in (-0.1, 1.1, math.nan, None, "0", True)),
        *((name, v) for name in ("epoch", "seed") for v in (None, 1.5, "1", True, 2**63)),
        *((name, v) for name in ("keys", "sizes") for v in (None, 3, [0], np.arange(3))),
    ):
        with pytest.raises(ValueError, match=rf"^random_crops: {name}.* must be .*, got .*$"):
            ops.random_crops(**{"keys": keys, "sizes": sizes, **options, name: value})
    for name, value in (("keys", [0]), ("slots", None), ("epoch", 0.5), ("seed", "1"), ("seed", True)):
        with pytest.raises(ValueError, match=f"^uniforms: {name} must be .*, got .*$"):
            ops.uniforms(**{"keys": keys, "slots": keys, "epoch": 0, "seed": 1, name: value})
    with pytest.raises(RuntimeError, match=r"random_crops: sizes must have shape \(3, 2\), got \(2, 2\)"):
        ops.random_crops(keys, sizes[:2], **options)
    schema = str(torch.ops.lightning_gpuaug.random_crops.default._schema)
    assert schema == f"lightning_gpuaug::{_random_crops.SCHEMAS['random_crops']}"


def test_draws_depend_on_the_key_alone() -> None:
    recipe, sizes = TrainRecipe(), np.full((64, 2), 500, dtype=np.int32)
    whole = draw(recipe, np.arange(64), 3, 7, sizes)
    part = draw(recipe, np.array([40, 2]), 3, 7, sizes[:2])
    assert (part.start == whole.start[[40, 2]]).all()
    assert (part.size == whole.size[[40, 2]]).all()
    assert part.flip is not None
    assert whole.flip is not None
    assert (part.flip == whole.flip[[40, 2]]).all()
    for other in (draw(recipe, np.arange(64), 4, 7, sizes), draw(recipe, np.arange(64), 3, 8, sizes)):
        assert (other.size != whole.size).any(axis=1).mean() > 0.9


def test_uniforms_are_uniform() -> None:
    u = uniforms(np.arange(20_000), 0, 0, 3)
    assert ((u >= 0) & (u < 1)).all()
    counts, _ = np.histogram(u, bins=64, range=(0, 1))
    expected = u.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square, 63 degrees of freedom, p < 1e-5


def test_crops_follow_the_recipe() -> None:
    crop = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2.0))
    sizes = np.full((20_000, 2), 1000, dtype=np.int32)
    draws = draw(TrainRecipe(crop=crop, hflip=0.25), np.arange(20_000), 0, 1, sizes)
    assert draws.flip is not None
    assert abs(draws.flip.mean() - 0.25) < 0.015
    start, size = draws.start, draws.size
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
    sizes = np.array([[3, 4], [0, 0]], dtype=np.int32)
    draws = draw(TrainRecipe(crop=None, hflip=0.0), np.arange(2), 0, 0, sizes)
    assert draws.start.tolist() == [[0, 0], [0, 0]]
    assert draws.size.tolist() == [[3, 4], [1, 1]]
    assert draws.flip is None
    assert draw(TrainRecipe(hflip=0.0), np.arange(2), 0, 0, sizes).flip is None


def test_flips_do_not_depend_on_whether_there_is_a_crop() -> None:
    keys, sizes = np.arange(500), np.full((500, 2), 30, dtype=np.int32)
    cropped, whole = (draw(TrainRecipe(crop=crop), keys, 1, 2, sizes).flip for crop in (RandomResizedCrop(), None))
    assert cropped is not None
    assert whole is not None
    assert np.array_equal(cropped, whole)
