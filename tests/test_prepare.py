"""Batches made ready to decode: sizes read once, windows as torchvision draws them, refusals left to the decoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug import EvalRecipe, FileList, RandomResizedCrop, TrainRecipe, ops
from lightning_gpuaug.augment.draw import draw
from lightning_gpuaug.pipeline import path_bytes
from lightning_gpuaug.prepare import Preparer
from tests.crops import random_crops
from tests.images import numbered, pixels


def listed(folder: Path, images: dict[str, tuple[int, int]]) -> FileList:
    """Images of (height, width), in this order; the format follows the name."""
    folder.mkdir(exist_ok=True)
    for i, (name, size) in enumerate(images.items()):
        Image.fromarray(pixels(i, size)).save(folder / name)
    (folder / "list.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(images)))
    return FileList(folder / "list.txt")


def test_a_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    image_sizes = ops.image_sizes

    def counted(paths, **options):  # type: ignore[no-untyped-def]
        read.append(len(paths))
        return image_sizes(paths, **options)

    monkeypatch.setattr(ops, "image_sizes", counted)
    prepare = Preparer(numbered(tmp_path, 6), EvalRecipe(), 8)
    first = prepare(np.array([0, 1, 2, 3]), 0, 0)
    again = prepare(np.array([3, 2, 1, 4]), 1, 0)
    prepare(np.array([4, 0]), 2, 0)
    assert read == [4, 1]
    assert first.request.size.tolist() == again.request.size.tolist() == [[12, 10]] * 4


def test_sizes_of_formats_that_the_native_reader_leaves_to_python(tmp_path: Path) -> None:
    names = {"a.webp": (7, 9), "b.png": (5, 30), "c.bmp": (11, 2), "d.jpg": (40, 3), "e.tiff": (6, 8)}
    source = listed(tmp_path, names)
    for exif in (False, True):
        request = Preparer(source, EvalRecipe(exif_orientation=exif), 8)(np.arange(5), 0, 0).request
        assert [tuple(size) for size in request.size.tolist()] == list(names.values())
        assert request.start.tolist() == [[0, 0]] * 5


def test_unreadable_headers_get_a_window_that_no_image_has(tmp_path: Path) -> None:
    source = numbered(tmp_path, 4)
    Path(source.paths[1]).write_bytes(b"no image")
    Path(source.paths[2]).unlink()
    for recipe in (TrainRecipe(), TrainRecipe(crop=None), EvalRecipe()):
        request = Preparer(source, recipe, 8)(np.arange(4), 0, 0).request
        assert (request.start.max(axis=1) >= 2**30).tolist() == [False, True, True, False]
        assert request.size.min() >= 1


def test_a_header_that_becomes_readable_is_read_then(tmp_path: Path) -> None:
    source = numbered(tmp_path, 2)
    whole = Path(source.paths[1]).read_bytes()
    Path(source.paths[1]).write_bytes(b"")
    prepare = Preparer(source, EvalRecipe(), 8)
    assert prepare(np.array([1]), 0, 0).request.start.max() >= 2**30
    Path(source.paths[1]).write_bytes(whole)
    assert prepare(np.array([1]), 0, 0).request.size.tolist() == [[12, 10]]


def test_the_crop_is_the_draw_applied_to_the_size(tmp_path: Path) -> None:
    source = listed(tmp_path, {f"{i}.jpg": (20 + 7 * i, 90 - 9 * i) for i in range(6)})
    recipe = TrainRecipe(RandomResizedCrop(scale=(0.1, 0.6)))
    prepare = Preparer(source, recipe, 8)
    for epoch in range(3):
        indices = np.array([5, 0, 3])
        sizes = np.array([[20 + 7 * i, 90 - 9 * i] for i in indices], dtype=np.int32)
        prepared, draws = prepare(indices, epoch, 7), draw(recipe, indices, epoch, 7, sizes)
        assert recipe.crop is not None
        start, size = random_crops(recipe.crop, indices, epoch, 7, sizes)
        assert np.array_equal(prepared.request.start, start)
        assert np.array_equal(prepared.request.size, size)
        assert np.array_equal(prepared.flip, draws.flip)
        assert prepared.request.part is None
        assert (start >= 0).all()
        assert (start + size <= sizes).all()


def test_rows_carry_their_own_names(tmp_path: Path) -> None:
    source = listed(tmp_path, {"short.jpg": (4, 4), "a much longer name é.jpg": (4, 4)})
    rows = path_bytes(Preparer(source, EvalRecipe(), 8)(np.array([1, 0]), 0, 0).request.images)
    assert rows.shape[0] == 2
    assert [bytes(row).rstrip(b"\0").decode() for row in rows] == [source.paths[1], source.paths[0]]
    assert (rows[:, -1] == 0).all()
