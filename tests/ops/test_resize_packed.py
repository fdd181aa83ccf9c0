"""resize_packed: against Pillow and the plain-torch reference, and its own promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from lightning_gpuaug import ops
from lightning_gpuaug.ops import reference

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def pack(images: list[np.ndarray], gap: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(data, offsets, sizes) of (H, W, 3) images, `gap` bytes before each."""
    parts, offsets, at = [], [], 0
    for image in images:
        parts += [np.full(gap, 7, np.uint8), image.reshape(-1)]
        offsets.append(at + gap)
        at += gap + image.size
    sizes = torch.tensor([image.shape[:2] for image in images], dtype=torch.int32)
    return torch.from_numpy(np.concatenate(parts)), torch.tensor(offsets), sizes


def noise(*sizes: tuple[int, int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]


SIZES = [(40, 50), (97, 61), (17, 200), (1, 1), (1, 30), (30, 1), (300, 411), (31, 33), (32, 32), (9, 7)]


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
def test_is_pillows_resize(interpolation: str) -> None:
    images = noise(*SIZES)
    got = ops.resize_packed(*pack(images, gap=3), (32, 29), dtype=torch.uint8, interpolation=interpolation)
    for image, result in zip(images, got, strict=True):
        expected = np.asarray(Image.fromarray(image).resize((29, 32), FILTERS[interpolation])).astype(int)
        difference = np.abs(result.permute(1, 2, 0).numpy().astype(int) - expected)
        # Bicubic: Pillow clips to 0..255 between its two passes.
        assert difference.max() <= {"nearest": 0, "bilinear": 1, "bicubic": 40}[interpolation], image.shape
        assert difference.mean() < 0.7
    smooth = [np.asarray(Image.fromarray(i).resize((90, 70), Image.Resampling.BICUBIC)) // 2 + 60 for i in images]
    got = ops.resize_packed(*pack(smooth), (32, 29), dtype=torch.uint8, interpolation=interpolation)
    for image, result in zip(smooth, got, strict=True):
        expected = np.asarray(Image.fromarray(image).resize((29, 32), FILTERS[interpolation])).astype(int)
        assert np.abs(result.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_without_antialias_is_plain_interpolation() -> None:
    images = noise(*SIZES)
    got = ops.resize_packed(*pack(images), (32, 29), dtype=torch.uint8, antialias=False)
    for image, result in zip(images, got, strict=True):
        x = torch.from_numpy(image).permute(2, 0, 1)[None].float()
        expected = torch.nn.functional.interpolate(x, (32, 29), mode="bilinear", align_corners=False)[0].round()
        assert (result.float() - expected).abs().max() <= 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4),
    st.tuples(st.integers(1, 24), st.integers(1, 24)),
    st.sampled_from(["nearest", "bilinear", "bicubic"]),
    st.booleans(),
)
def test_native_and_reference_agree(
    sizes: list[tuple[int, int]], size: tuple[int, int], interpolation: str, antialias: bool
) -> None:
    data, offsets, extents = pack(noise(*sizes))
    native = ops.resize_packed(
        data, offsets, extents, size, dtype=torch.uint8, interpolation=interpolation, antialias=antialias
    )
    kind = ("nearest", "bilinear", "bicubic").index(interpolation)
    plain = reference.resize_packed(data, offsets, extents, *size, kind, antialias).permute(0, 3, 1, 2)
    assert (native.int() - plain.int()).abs().max() <= 1


def test_finishing_is_normalizes() -> None:
    data, offsets, sizes = pack(noise(*SIZES))
    flip = torch.arange(len(SIZES)) % 2 == 0
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    levels = ops.resize_packed(data, offsets, sizes, (32, 29), dtype=torch.uint8).permute(0, 2, 3, 1).contiguous()
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.uint8):
        for channels_last in (True, False):
            got = ops.resize_packed(
                data, offsets, sizes, (32, 29), mean, std, flip=flip, dtype=dtype, channels_last=channels_last
            )
            expected = ops.normalize(levels, mean, std, flip=flip, dtype=dtype, channels_last=channels_last)
            assert torch.equal(got, expected)
            layout = torch.channels_last if channels_last else torch.contiguous_format
            assert got.is_contiguous(memory_format=layout)


def test_identity_and_batch_independence() -> None:
    images = noise((24, 20), (24, 20), (11, 90))
    data, offsets, sizes = pack(images)
    same = ops.resize_packed(data, offsets[:2], sizes[:2], (24, 20), dtype=torch.uint8)
    assert all((same[i].permute(1, 2, 0).numpy() == images[i]).all() for i in range(2))
    whole = ops.resize_packed(data, offsets, sizes, (16, 16))
    for i in range(3):
        assert torch.equal(ops.resize_packed(data, offsets[i : i + 1], sizes[i : i + 1], (16, 16)), whole[i : i + 1])
    assert ops.resize_packed(data, offsets[:0], sizes[:0], (16, 16)).shape == (0, 3, 16, 16)


def test_what_lies_outside_of_the_data_is_never_read() -> None:
    data, _, _ = pack(noise((4, 4)))
    offsets = torch.tensor([0, 1, -1, 10**12, 0, 0, 0])
    sizes = torch.tensor([[4, 4], [4, 4], [2, 2], [1, 1], [0, 4], [-3, 4], [2**31 - 1, 2**31 - 1]], dtype=torch.int32)
    native = torch.ops.lightning_gpuaug.resize_packed  # the wrapper refuses such a batch on the CPU
    got = native(data, offsets, sizes, 4, 4, (0.0,) * 3, (1.0,) * 3, dtype=torch.uint8)
    assert got[0].any()
    assert not got[1:].any()


def test_bad_input_is_refused() -> None:
    data, offsets, sizes = pack(noise((4, 4), (5, 5)))
    for arguments, options, message in (
        ((data.float(), offsets, sizes), {}, "data must be uint8"),
        ((data, offsets.int(), sizes), {}, "offsets must be int64"),
        ((data, offsets, sizes[:1]), {}, r"sizes must be int32 of shape \(2, 2\)"),
        ((data, offsets, sizes), {"flip": torch.ones(3, dtype=torch.bool)}, r"flip must have shape \(2,\)"),
        ((data, offsets, sizes), {"interpolation": "cubic"}, "interpolation must be one of"),
        ((data, offsets, sizes), {"dtype": torch.int32}, "dtype must be"),
        ((data, offsets, sizes), {"mean": (0.0,), "std": (1.0, 1.0, 1.0)}, "mean must have 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            ops.resize_packed(*arguments, (8, 8), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size must be two numbers"):
        ops.resize_packed(data, offsets, sizes, (0, 8))


def test_opcheck() -> None:
    data, offsets, sizes = pack(noise((4, 4), (5, 6)))
    call = (data, offsets, sizes, 8, 8, [0.5] * 3, [0.5] * 3, torch.tensor([True, False]))
    torch.library.opcheck(torch.ops.lightning_gpuaug.resize_packed.default, call)
    compiled = torch.compile(
        lambda d: ops.resize_packed(d, offsets, sizes, (8, 8)) * 2, backend="eager", fullgraph=True
    )
    assert torch.equal(compiled(data), ops.resize_packed(data, offsets, sizes, (8, 8)) * 2)
