"""Record formats with decoding on the GPU: the pixels of the folder's files, also while the host runs ahead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import FileList, ImageDataModule, NumpyFolder, Synthetic, TrainRecipe
from lightning_gpuaug.bad_images import BadImageError
from lightning_gpuaug.sources import Source
from tests.test_formats import write

pytestmark = pytest.mark.gpu

COUNT = 96
FORMATS = ("tfrecord", "webdataset", "recordio", "lmdb", "examples")


@pytest.fixture(scope="module")
def photos() -> Synthetic:
    """Real JPEGs of a photo's size, which the hardware decoder takes."""
    return Synthetic(length=COUNT, num_classes=COUNT, height=120, width=160)


@pytest.fixture(scope="module", params=FORMATS)
def records(request: pytest.FixtureRequest, photos: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Source:
    contents = [Path(path).read_bytes() for path in photos.paths]
    return write(tmp_path_factory.mktemp(request.param) / "data", request.param, contents, [])


def batches(source: Source, epochs: int, **options: object) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    defaults = {"batch_size": 16, "image_size": 64, "num_threads": 4, "decode": "gpu", "dtype": "uint8", "seed": 2}
    dm = ImageDataModule(train=source, **{**defaults, **options}).setup_for("cuda:0")  # type: ignore[arg-type]
    for _ in range(epochs):
        yield from dm.train_dataloader()
    dm.teardown("test")


def test_the_pixels_are_those_of_the_files(records: Source, photos: Synthetic) -> None:
    for (x, y), (x2, y2) in zip(batches(records, 2), batches(photos, 2), strict=True):
        assert torch.equal(y, y2)
        assert torch.equal(x, x2)


def test_no_bytes_change_while_they_are_read(records: Source, photos: Synthetic) -> None:
    """A hundred epochs with the host running ahead of a busy GPU: every batch's pixels, by their sums, are right."""
    expected = [
        (x.long().sum((1, 2, 3)), y) for x, y in batches(photos, 1, train_recipe=TrainRecipe(crop=None, hflip=0))
    ]
    by_label = torch.zeros(COUNT, dtype=torch.int64, device="cuda")
    for sums, y in expected:
        by_label[y] = sums
    busy = torch.randn(2048, 2048, device="cuda")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    seen = 0
    for x, y in batches(records, 100, train_recipe=TrainRecipe(crop=None, hflip=0)):
        busy = torch.tanh(busy @ busy)
        wrong += (x.long().sum((1, 2, 3)) != by_label[y]).sum()
        seen += len(y)
    assert seen == COUNT * 100
    assert int(wrong) == 0


def test_a_bad_record_is_named(photos: Synthetic, tmp_path: Path) -> None:
    contents = [Path(path).read_bytes() for path in photos.paths[:32]]
    contents[20] = contents[20][:300]
    source = write(tmp_path / "data", "tfrecord", contents, [])
    with pytest.raises(BadImageError, match=r"1\.tfrecord:4: truncated JPEG"):
        list(batches(source, 1))


def test_arrays_look_like_their_images(photos: Synthetic, tmp_path: Path) -> None:
    lines = []
    for i, path in enumerate(photos.paths[:32]):
        image = Image.open(path)
        (tmp_path / "a" / f"{i:02}").mkdir(parents=True)
        np.save(tmp_path / "a" / f"{i:02}" / "x.npy", np.asarray(image))
        image.save(tmp_path / f"{i:02}.png")
        lines.append(f"{i:02}.png {i}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    arrays, images = NumpyFolder(tmp_path / "a"), FileList(tmp_path / "list.txt")
    for (x, y), (x2, y2) in zip(batches(arrays, 2), batches(images, 2), strict=True):
        assert torch.equal(y, y2)
        assert torch.equal(x, x2)
