"""Images of different sizes: crop windows and resize against Pillow, torchvision and resize_packed; bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F
from PIL import Image
from torchvision.transforms import InterpolationMode

from lightning_gpuaug import ops
from lightning_gpuaug.augment import sample_params
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops import reference_crop_resize
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word
from lightning_gpuaug.recipe import RandAugment, RandomErasing, RandomResizedCrop, TrainRecipe
from tests.crops import random_crops
from tests.ops.programs import random_records, records
from tests.ops.test_augment_ops import picture

SIZES = ((61, 83), (40, 40), (1, 9), (130, 7), (97, 151))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images() -> list[torch.Tensor]:
    return [picture(h, w, seed=h) for h, w in SIZES]


def packed(batch: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([image.numel() for image in batch])
    sizes = torch.tensor([image.shape[:2] for image in batch], dtype=torch.int32)
    return torch.cat([image.flatten() for image in batch]), lengths.cumsum(0) - lengths, sizes


def windows(seed: int = 0) -> torch.Tensor:
    g = np.random.default_rng(seed)
    boxes = []
    for h, w in SIZES:
        height, width = g.integers(1, h + 1), g.integers(1, w + 1)
        boxes.append([g.integers(0, h - height + 1), g.integers(0, w - width + 1), height, width])
    return torch.tensor(np.array(boxes), dtype=torch.int32)


def crop_records(boxes: torch.Tensor, interpolation: str = "bilinear", antialias: bool = True) -> torch.Tensor:
    flags = rec.INTERPOLATIONS.index(interpolation) << rec.CROP_FILTER_SHIFT | (Flag.ANTIALIAS if antialias else 0)
    params = records([[]] * len(boxes), flags=int(flags))
    params[:, Word.CROP : Word.CROP + 4] = boxes
    return params


METHODS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@pytest.mark.parametrize("size", [(32, 48), (9, 7), (200, 301)])
@pytest.mark.parametrize(("interpolation", "most"), [("bilinear", 1), ("bicubic", 2)])
def test_crop_then_resize_as_pillow_does(interpolation, most, size):
    for seed in range(3):
        boxes = windows(seed)
        ours = ops.augment_list(images(), crop_records(boxes, interpolation), size, dtype=torch.uint8)
        for image, (top, left, h, w), result in zip(images(), boxes.tolist(), ours, strict=True):
            window = Image.fromarray(image.numpy()).crop((left, top, left + w, top + h))
            # In two steps: which of the two passes comes first is the version's choice, and shows in bicubic.
            rows = window.resize((size[1], h), METHODS[interpolation])
            theirs = np.array(rows.resize(size[::-1], METHODS[interpolation])).astype(int)
            assert np.abs(result.permute(1, 2, 0).numpy() - theirs).max() <= most


@pytest.mark.parametrize("size", [(32, 48), (9, 7), (200, 301)])
def test_nearest_takes_the_pixel_under_the_centre(size):
    boxes = windows(3)
    ours = ops.augment_list(images(), crop_records(boxes, "nearest"), size, dtype=torch.uint8).permute(0, 2, 3, 1)
    for image, (top, left, h, w), result in zip(images(), boxes.tolist(), ours, strict=True):
        rows, columns = ((2 * np.arange(n) + 1) * length // (2 * n) for n, length in zip(size, (h, w), strict=True))
        assert torch.equal(result, image[top + rows][:, left + columns])


def test_without_antialias_as_torchvision_does():
    boxes = windows(4)
    ours = ops.augment_list(images(), crop_records(boxes, "bilinear", False), (32, 48), dtype=torch.uint8)
    for image, (top, left, h, w), result in zip(images(), boxes.tolist(), ours, strict=True):
        window = image.permute(2, 0, 1)[:, top : top + h, left : left + w]
        theirs = F.resize(window, [32, 48], InterpolationMode.BILINEAR, antialias=False)
        assert int((result.int() - theirs.int()).abs().max()) <= 1


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", rec.INTERPOLATIONS)
def test_whole_images_equal_resize_packed_bit_for_bit(interpolation, antialias):
    data, offsets, sizes = packed(images())
    params = crop_records(torch.zeros(5, 4, dtype=torch.int32), interpolation, antialias)
    for size in ((32, 48), (150, 11)):
        ours = ops.augment_packed(data, offsets, sizes, params, size, MEAN, STD)
        expected = ops.resize_packed(data, offsets, sizes, size, MEAN, STD, interpolation=interpolation,
                                     antialias=antialias)  # fmt: skip
        assert torch.equal(ours, expected)


def test_packed_and_list_are_the_same_and_run_the_program():
    params = random_records(4, 5, 24, 40, chains=2)
    params[:, Word.FLAGS] |= int(Flag.ANTIALIAS) | 1 << rec.CROP_FILTER_SHIFT
    params[:, Word.CROP : Word.CROP + 4] = windows(2)
    from_list = ops.augment_list(images(), params, (24, 40), MEAN, STD, chains=2)
    assert torch.equal(ops.augment_packed(*packed(images()), params, (24, 40), MEAN, STD, chains=2), from_list)
    cropped = ops.augment_list(images(), crop_records(windows(2)), (24, 40), dtype=torch.uint8).permute(0, 2, 3, 1)
    assert torch.equal(ops.augment(cropped, params, MEAN, STD, chains=2), from_list)


def test_a_window_shows_nothing_of_its_surroundings():
    image = torch.full((40, 50, 3), 255, dtype=torch.uint8)
    image[10:20, 10:30] = 7
    for interpolation in rec.INTERPOLATIONS:
        result = ops.resized_crop(image[None], torch.tensor([[10, 10, 10, 20]], dtype=torch.int32), (33, 31),
                                  interpolation=interpolation)  # fmt: skip
        assert result.unique().tolist() == [7]


def test_resized_crop_of_the_whole_image_at_its_size_is_the_image():
    x = torch.stack([picture(20, 30, seed) for seed in range(3)])
    for boxes in ([0, 0, 0, 0], [0, 0, 20, 30]):
        assert torch.equal(ops.resized_crop(x, torch.tensor([boxes] * 3, dtype=torch.int32), (20, 30)), x)


def test_the_reference_is_within_one_level():
    params = crop_records(windows(6))
    native = torch.ops.lightning_gpuaug.crop_resize_list(images(), params, 20, 30)
    reference = reference_crop_resize.crop_resize_list(images(), params, 20, 30)
    assert int((native.int() - reference.int()).abs().max()) <= 1
    again = reference_crop_resize.crop_resize_packed(*packed(images()), params, 20, 30)
    assert torch.equal(again, reference)


def test_windows_of_nonsense_stay_inside():
    data, offsets, sizes = packed(images())
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        params = torch.randint(-(2**31), 2**31 - 1, (5, rec.WORDS), generator=g).int()
        params[:, Word.VERSION] = rec.VERSION
        result = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, 9, 11)
        assert result.shape == (5, 9, 11, 3)


def test_images_outside_of_the_data_are_black():
    data, offsets, sizes = packed(images())
    offsets, sizes = offsets.clone(), sizes.clone()
    offsets[0], offsets[1], sizes[2], sizes[3] = -1, data.numel() - 5, 0, torch.tensor([2**20, 2**20])
    params = records([[]] * 5)
    result = torch.ops.lightning_gpuaug.crop_resize_packed(data, offsets, sizes, params, 8, 8)
    assert [bool(image.any()) for image in result] == [False, False, False, False, True]


@pytest.mark.parametrize("op", ["augment_packed", "resize_packed"])
def test_on_the_cpu_an_image_outside_of_the_data_is_an_error(op):
    """A black image with its label would train."""
    data, offsets, sizes = packed(images())
    params = {"params": records([[]] * 5)} if op == "augment_packed" else {}
    for sample, offset, size, message in (
        (0, -1, (61, 83), r"offsets and sizes must lie in data \(.* bytes\), got 61 x 83 x 3 bytes from -1 on"),
        (1, data.numel() - 5, (40, 40), "offsets and sizes must lie in data"),
        (1, 2**63 - 1, (40, 40), "offsets and sizes must lie in data"),
        (2, 0, (0, 9), r"sizes must be 1\.\..*, got \(0, 9\)"),
        (2, 0, (5, -9), r"sizes must be 1\.\..*, got \(5, -9\)"),
        (3, 0, (2**31 - 1, 2**31 - 1), "sizes must|sizes must lie"),
    ):
        where, extent = offsets.clone(), sizes.clone()
        where[sample], extent[sample] = offset, torch.tensor(size)
        with pytest.raises(ValueError, match=f"^{op}: .*({message}).* for sample {sample}$"):
            getattr(ops, op)(data, where, extent, size=(8, 8), **params)


@pytest.mark.parametrize(
    "box", [(0, 0, 62, 10), (-1, 0, 5, 5), (60, 0, 2, 5), (0, 80, 5, 4), (0, 0, 5, 0), (0, 0, -5, 5)]
)
def test_a_crop_window_that_leaves_its_image_is_an_error_on_the_host(box):
    params = crop_records(windows())
    params[0, Word.CROP : Word.CROP + 4] = torch.tensor(box)
    message = r"crop window of sample 0 must lie in its image .*, got \[" + ", ".join(map(str, box)) + r"\]$"
    for call in (
        lambda: ops.augment_list(images(), params, (8, 8)),
        lambda: ops.augment_packed(*packed(images()), params, (8, 8)),
    ):
        with pytest.raises(ValueError, match=f"^augment_(list|packed): {message}"):
            call()


def test_resized_crop_flips_the_samples_that_it_is_told():
    x = torch.stack([picture(20, 30, seed=s) for s in range(3)])
    boxes = torch.tensor([[1, 2, 9, 11]] * 3, dtype=torch.int32)
    plain, flip = ops.resized_crop(x, boxes, (8, 6)), torch.tensor([True, False, True])
    flipped = ops.resized_crop(x, boxes, (8, 6), flip=flip)
    for i in range(3):
        assert torch.equal(flipped[i], plain[i].flip(1) if flip[i] else plain[i])


def test_resized_crop_clips_its_windows():
    """A window that begins before the image ends where it says, and is not moved."""
    x = picture(20, 30, seed=1)[None]
    for box, rows, columns in (
        ((-2, -3, 8, 9), slice(0, 6), slice(0, 6)),
        ((15, 25, 50, 2**31 - 1), slice(15, 20), slice(25, 30)),
        ((-9, 40, 3, 5), slice(0, 1), slice(29, 30)),
        ((5, 6, 0, 3), slice(0, 20), slice(0, 30)),
    ):
        cut = ops.resized_crop(x, torch.tensor([box], dtype=torch.int32), (7, 5))
        whole = torch.zeros(1, 4, dtype=torch.int32)
        assert torch.equal(cut, ops.resized_crop(x[:, rows, columns], whole, (7, 5))), box


def test_crop_windows_of_a_recipe_are_those_of_draw():
    recipe = TrainRecipe(crop=RandomResizedCrop(interpolation="bicubic"), auto=RandAugment(), erasing=RandomErasing())
    indices, sizes = np.arange(40) * 31, np.array([SIZES[i % 5] for i in range(40)], dtype=np.int32)
    params = sample_params(recipe, indices, 3, 7, 24, 24, sizes)
    start, size = random_crops(recipe.crop, indices, 3, 7, sizes)
    assert np.array_equal(params.records[:, Word.CROP : Word.CROP + 4], np.concatenate([start, size], axis=1))
    assert (params.records[:, Word.FLAGS] >> rec.CROP_FILTER_SHIFT & 3 == 2).all()
    plain = sample_params(recipe, indices, 3, 7, 24, 24)
    same = [Word.VERSION, *range(Word.CHAINS, Word.CROP), *range(Word.ERASE, rec.WORDS)]
    assert np.array_equal(params.records[:, same], plain.records[:, same])
    whole = sample_params(TrainRecipe(crop=None), indices, 3, 7, 24, 24, sizes)
    assert not whole.records[:, Word.CROP : Word.CROP + 4].any()
    batch = [picture(h, w) for h, w in sizes.tolist()]
    assert ops.augment_list(batch, torch.from_numpy(params.records), (24, 24)).shape == (40, 3, 24, 24)


def test_empty_batches():
    none = records([])
    assert ops.augment_list([], none, (4, 5)).shape == (0, 3, 4, 5)
    empty = torch.zeros(0, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int32)
    assert ops.augment_packed(*empty, none, (4, 5)).shape == (0, 3, 4, 5)


def test_bad_input_is_one_line():
    data, offsets, sizes = packed(images())
    params = records([[Op(Opcode.INVERT)]] * 5)
    size = (4, 4)
    cases = [
        (
            lambda: ops.augment_packed(data.float(), offsets, sizes, params, size),
            "augment_packed: data must be uint8",
        ),
        (
            lambda: ops.augment_packed(data, offsets.int(), sizes, params, size),
            "augment_packed: offsets must be int64",
        ),
        (
            lambda: ops.augment_packed(data, offsets, sizes[:4], params, size),
            r"sizes must be int32 of shape \(5, 2\)",
        ),
        (
            lambda: ops.augment_packed(data, offsets, sizes, params[:4], size),
            r"params must have shape \(5, 64\)",
        ),
        (lambda: ops.augment_packed(data, offsets, sizes, params, (0, 4)), r"size must be two numbers in 1\.\.32767"),
        (
            lambda: ops.augment_list([images()[0].float()] * 5, params, size),
            "must be torch.uint8, got .* sample 0",
        ),
        (
            lambda: ops.augment_list([torch.zeros(0, 3, 3, dtype=torch.uint8)] * 5, params, size),
            r"sides of 1\.\.32767",
        ),
        (lambda: ops.augment_list(images(), params, size, chains=0), "program of sample 0 must be empty"),
        (
            lambda: ops.resized_crop(images()[0][None], torch.zeros(1, 3), size),
            r"boxes must be int32 of shape \(1, 4\)",
        ),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert len(str(error.value).splitlines()) == 1


def test_opcheck():
    params = crop_records(windows(1))
    for op, arguments in (
        (torch.ops.lightning_gpuaug.crop_resize_packed.default, (*packed(images()), params, 6, 7)),
        (torch.ops.lightning_gpuaug.crop_resize_list.default, (images(), params, 6, 7)),
    ):
        assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


def plain_records(seed: int) -> torch.Tensor:
    """Windows, flips and erasing, but no programs and no mixes."""
    g = np.random.default_rng(seed)
    params = crop_records(windows(seed), str(g.choice(rec.INTERPOLATIONS)), bool(g.integers(2)))
    flips = [Flag.FLIP_HORIZONTAL, Flag.FLIP_VERTICAL, Flag.FLIP_HORIZONTAL | Flag.FLIP_VERTICAL, 0, 0]
    erasing = [0, Flag.ERASE_CONSTANT, Flag.ERASE_NOISE, Flag.ERASE_NOISE, 0]
    for i, flag in enumerate(np.roll(flips, seed) | np.array(erasing)):
        params[i, Word.FLAGS] |= int(flag)
        params[i, Word.ERASE : Word.ERASE + 4] = torch.tensor([2, 1, 5 + seed, 4])
        params[i, Word.ERASE_VALUE : Word.ERASE_VALUE + 3] = torch.tensor([0.5, -1.0, 2.0]).view(torch.int32)
    return params


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [True, False])
def test_without_programs_and_mixes_one_pass_gives_the_same(dtype, channels_last):
    options = {"dtype": dtype, "channels_last": channels_last, "chains": 0}
    for seed in range(3):
        params = plain_records(seed)
        expected = ops.augment_list(images(), params, (24, 40), MEAN, STD, **options)
        assert torch.equal(ops.augment_list(images(), params, (24, 40), MEAN, STD, mix=False, **options), expected)
        one_pass = ops.augment_packed(*packed(images()), params, (24, 40), MEAN, STD, mix=False, **options)
        assert torch.equal(one_pass, expected)
        assert one_pass.stride() == expected.stride()


def test_a_broken_promise_not_to_mix_is_an_error_on_the_host():
    params = plain_records(0)
    params[3, Word.FLAGS] |= int(Flag.CUTMIX)
    with pytest.raises(ValueError, match="mix is False, but the record of sample 3 mixes"):
        ops.augment_list(images(), params, (8, 8), chains=0, mix=False)


def test_opcheck_of_the_one_pass_ops():
    arguments = (plain_records(1), 8, 12, MEAN, STD, torch.bfloat16, True)
    for op, inputs in (
        (torch.ops.lightning_gpuaug.crop_finish_packed, packed(images())),
        (torch.ops.lightning_gpuaug.crop_finish_list, (images(),)),
    ):
        assert set(torch.library.opcheck(op.default, (*inputs, *arguments)).values()) == {"SUCCESS"}
