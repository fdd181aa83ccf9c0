"""Every format through the loader: the same contract as for folders, and the same bytes as DALI's own readers give."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import (
    LMDB,
    Examples,
    FileList,
    ImageDataModule,
    NumpyFolder,
    RecordIO,
    TFRecord,
    TrainRecipe,
    WebDataset,
)
from lightning_gpuaug.bad_images import BadImageError, BadImageWarning
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.recipe import EvalRecipe, RandomErasing, RandomResizedCrop, View
from lightning_gpuaug.sources import Source, encoded
from tests import record_files as files
from tests.delivered import assert_alike
from tests.images import pixels
from tests.record_files import jpeg

COUNT = 11
FORMATS = ("tfrecord", "webdataset", "recordio", "lmdb", "numpy", "examples")


class Pairs:
    """A torch-like dataset; pickles."""

    def __init__(self, contents: list[bytes]) -> None:
        self.contents = contents

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        return self.contents[index], index


def write(folder: Path, name: str, contents: list[bytes], arrays: list[np.ndarray]) -> Source:
    """A data set of `contents`, sample i labelled i, in two files where the format has files."""
    folder.mkdir(parents=True)
    half, index = len(contents) // 2, folder / "index"
    parts = [list(enumerate(contents))[:half], list(enumerate(contents))[half:]]
    if name == "tfrecord":
        for k, part in enumerate(parts):
            rows = [files.example({"image/encoded": c, "image/class/label": i}) for i, c in part]
            files.write_tfrecord(folder / f"{k}.tfrecord", rows)
        return TFRecord(folder / "*.tfrecord", index_dir=index)
    if name == "webdataset":
        for k, part in enumerate(parts):
            members = {f"{i:03}.{e}": v for i, c in part for e, v in (("jpg", c), ("cls", b"%d" % i))}
            files.write_tar(folder / f"{k}.tar", members)
        return WebDataset(str(folder / "{0,1}.tar"), index_dir=index)
    if name == "recordio":
        for k, part in enumerate(parts):
            records = [files.recordio_record(c, i) for i, c in part]
            files.write_recordio(folder / f"{k}.rec", records, folder / f"{k}.idx")
        return RecordIO(folder / "*.rec", folder / "*.idx", index_dir=index)
    if name == "lmdb":
        for k, part in enumerate(parts):
            files.write_lmdb(folder / f"{k}", {b"%03d" % i: files.datum(c, i) for i, c in part})
        return LMDB(str(folder / "{0,1}"), index_dir=index)
    if name == "numpy":
        for i, array in enumerate(arrays):
            (folder / f"{i:03}").mkdir()
            np.save(folder / f"{i:03}" / "a.npy", array)
        return NumpyFolder(folder)
    return Examples(Pairs(contents))


@pytest.fixture(scope="module", params=FORMATS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    contents, arrays = [jpeg(i) for i in range(COUNT)], [pixels(i) for i in range(COUNT)]
    return write(tmp_path_factory.mktemp(request.param) / "data", request.param, contents, arrays)


def module(source: Source, rank: int = 0, world: int = 1, **options: Any) -> ImageDataModule:
    options = {"image_size": 8, "num_threads": 1, "batch_size": 2, "dtype": "uint8", **options}
    return ImageDataModule(train=source, val=source, predict=source, **options).setup_for("cpu", rank, world)


def labels(loader: Loader) -> list[list[int]]:
    return [targets.tolist() for _, targets in loader]


def test_pixels_follow_their_labels(source: Source) -> None:
    dm = module(source, batch_size=3)
    seen = 0
    for images, targets in dm.val_dataloader():
        for image, target in zip(images, targets.tolist(), strict=True):
            assert abs(float(image.float().mean()) - pixels(target).mean()) < 2
            seen += 1
    assert seen == COUNT
    (first, *_), order = dm.predict_dataloader(), []
    assert first[0].shape == (3, 3, 8, 8)
    for _, indices in dm.predict_dataloader():
        order += indices.tolist()
    assert order == list(range(COUNT))
    assert len({dm.sample_name(i) for i in order}) == COUNT
    dm.teardown("test")


@pytest.mark.parametrize(("world", "batch_size"), [(1, 3), (2, 4), (3, 1), (4, 2)])
def test_any_number_of_ranks(source: Source, world: int, batch_size: int) -> None:
    modules = [
        module(source, rank, world, batch_size=1, eval_batch_size=batch_size, seed=world) for rank in range(world)
    ]
    passes = [labels(dm.val_dataloader()) for dm in modules]
    assert {len(p) for p in passes} == {len(modules[0].val_dataloader())}
    assert sorted(sum((sum(p, []) for p in passes), [])) == list(range(COUNT))
    assert all(row for p in passes for row in p)
    epochs = [[labels(dm.train_dataloader()) for dm in modules] for _ in range(2)]
    for epoch in epochs:
        assert {len(p) for p in epoch} == {COUNT // world}
        flat = sum((sum(p, []) for p in epoch), [])
        assert len(set(flat)) == len(flat) == COUNT // world * world
    assert epochs[0] != epochs[1]
    for dm in modules:
        dm.teardown("test")


@pytest.mark.parametrize("ahead", [False, True], ids=["here", "worker"])
def test_resuming_is_exact_to_the_bit(source: Source, ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_gpuaug.data.Loader", partial(Loader, ahead=ahead))
    recipe = TrainRecipe()
    whole = module(source, train_recipe=recipe, seed=5)
    expected = [list(whole.train_dataloader()) for _ in range(2)]
    whole.teardown("test")
    first = module(source, train_recipe=recipe, seed=5)
    batches = iter(first.train_dataloader())
    for _ in range(3):
        next(batches)
    state = first.state_dict()
    del batches
    first.teardown("test")
    second = module(source, train_recipe=recipe, seed=5)
    second.load_state_dict(state)
    rest = [*second.train_dataloader(), *second.train_dataloader()]
    second.teardown("test")
    assert_alike(rest, [*expected[0][3:], *expected[1]])


@pytest.mark.parametrize("name", FORMATS)
def test_bad_images_are_named_and_replaced(tmp_path: Path, name: str) -> None:
    contents, arrays = [jpeg(i) for i in range(8)], [pixels(i) for i in range(8)]
    contents[5], arrays[5] = contents[5][:200], pixels(5)[..., 0]
    source = write(tmp_path / "data", name, contents, arrays)
    reason = r"uint8 \(height, width, 3\)" if name == "numpy" else "truncated JPEG"
    where = {
        "webdataset": r"1\.tar:005",
        "recordio": r"1\.rec:1",
        "tfrecord": r"1\.tfrecord:1",
        "lmdb": r"data\.mdb:005",
        "numpy": r"005/a\.npy",
        "examples": r"Pairs\[5\]",
    }[name]
    dm = module(source)
    with pytest.raises(BadImageError, match=f"{where}: .*{reason}"):
        labels(dm.val_dataloader())
    dm.teardown("test")
    dm = module(source, on_bad_image="substitute", seed=1)
    with pytest.warns(BadImageWarning, match=f"left out: .*{where}: "):
        assert labels(dm.val_dataloader()) == [[0, 1], [2, 3], [4], [6, 7]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert labels(dm.val_dataloader()) == [[0, 1], [2, 3], [4], [6, 7]]
    with pytest.warns(BadImageWarning, match="replaced"):
        trained = labels(dm.train_dataloader())
    assert [len(batch) for batch in trained] == [2] * 4
    assert sorted(set(sum(trained, []))) == [0, 1, 2, 3, 4, 6, 7]
    assert len(dm.bad_images) == 1
    dm.teardown("test")


def evaluated(source: Source, **options: Any) -> list[list[int]]:
    """Labels of a pass of a new loader, which has nothing read ahead."""
    dm = module(source, on_bad_image="substitute", **options)
    try:
        return labels(dm.val_dataloader())
    finally:
        dm.teardown("test")


def test_data_files_that_change_meanwhile_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "data", "tfrecord", [jpeg(i) for i in range(6)], [])
    assert sum(evaluated(source), []) == list(range(6))
    shard = tmp_path / "data/1.tfrecord"
    content, then = shard.read_bytes(), shard.stat().st_mtime_ns
    shard.write_bytes(content[:-1])
    with pytest.raises(RuntimeError, match=r"1\.tfrecord: was changed since this run indexed it"):
        evaluated(source)
    shard.write_bytes(content)
    os.utime(shard, ns=(1, 1))
    with pytest.raises(RuntimeError, match=r"1\.tfrecord: was changed since this run indexed it"):
        evaluated(source)
    os.utime(shard, ns=(then, then))
    read = encoded.read_into

    def replaced_while_it_is_read(*args: Any) -> Any:
        done = read(*args)
        os.utime(shard, ns=(2, 2))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(encoded, "read_into", replaced_while_it_is_read)
        with pytest.raises(RuntimeError, match=r"1\.tfrecord: was changed since this run indexed it"):
            evaluated(source)
    shard.unlink()
    with pytest.warns(BadImageWarning, match=r"1\.tfrecord:\d: unreadable: no such file"):
        assert sum(evaluated(source, batch_size=6), []) == [0, 1, 2]


def test_arrays_that_shrink_or_vanish_meanwhile(tmp_path: Path) -> None:
    source = write(tmp_path / "data", "numpy", [], [pixels(i) for i in range(6)])
    assert sum(evaluated(source), []) == list(range(6))
    (tmp_path / "data/005/a.npy").unlink()
    content = (tmp_path / "data/004/a.npy").read_bytes()
    (tmp_path / "data/004/a.npy").write_bytes(content[:-7])
    with pytest.warns(BadImageWarning) as told:
        assert sum(evaluated(source, batch_size=3), []) == [0, 1, 2, 3]
    assert "cut: the file ends after" in str(told[0].message)
    assert "unreadable: no such file" in str(told[1].message)


@pytest.mark.parametrize(
    "recipe",
    [
        TrainRecipe(),
        TrainRecipe(hflip=0.5, erasing=RandomErasing(0.5), splits=2),
        TrainRecipe(crop=None),
        TrainRecipe(views=(View(2, 16, RandomResizedCrop((0.3, 1.0))), View(1, 8, RandomResizedCrop((0.05, 0.3))))),
        EvalRecipe(),
    ],
    ids=["crop", "splits", "whole", "views", "evaluation"],
)
def test_arrays_of_which_a_part_is_read_look_like_their_images(
    recipe: TrainRecipe | EvalRecipe, tmp_path: Path
) -> None:
    lines = []
    for i in range(9):
        array = pixels(i, (31 + 3 * i, 40 - 2 * i))
        (tmp_path / "a" / f"{i:02}").mkdir(parents=True)
        np.save(tmp_path / "a" / f"{i:02}" / "x.npy", np.asfortranarray(array) if i % 3 == 0 else array)
        Image.fromarray(array).save(tmp_path / f"{i:02}.png")
        lines.append(f"{tmp_path}/{i:02}.png {i}\n")
    (tmp_path / "list.txt").write_text("".join(lines))
    delivered = []
    for source in (NumpyFolder(tmp_path / "a"), FileList(tmp_path / "list.txt")):
        kind = "train" if isinstance(recipe, TrainRecipe) else "val"
        options: dict[str, Any] = {kind: source, f"{'train' if kind == 'train' else 'eval'}_recipe": recipe}
        data = ImageDataModule(batch_size=4, image_size=16, num_threads=1, **options).setup_for("cpu")
        loader = data.train_dataloader() if kind == "train" else data.val_dataloader()
        assert isinstance(loader, Loader)
        delivered.append([batch for _ in range(2) for batch in loader])
        data.teardown("fit")
    for (images, targets), (wanted, labels) in zip(*delivered, strict=True):
        assert torch.equal(targets, labels)
        pairs = zip(images, wanted, strict=True) if isinstance(images, list) else [(images, wanted)]
        assert all(torch.equal(one, other) for one, other in pairs)


def test_images_of_many_kinds_and_sizes_in_records(tmp_path: Path) -> None:
    """As from a folder: the same windows, the same pixels, whatever the header needs."""
    from tests.format_cases import write_formats

    write_formats(tmp_path / "f" / "c")
    from lightning_gpuaug import ImageFolder

    folder = ImageFolder(tmp_path / "f")
    members = {
        f"{i:03}.{e}": v for i, p in enumerate(folder.paths) for e, v in (("jpg", Path(p).read_bytes()), ("cls", b"0"))
    }
    tar = WebDataset(files.write_tar(tmp_path / "a.tar", members), index_dir=tmp_path / "index")
    for exif in (False, True):
        recipe = TrainRecipe(exif_orientation=exif)
        batches = []
        for source in (folder, tar):
            dm = module(source, batch_size=len(folder), train_recipe=recipe, seed=3)
            batches.append(next(iter(dm.train_dataloader())))
            dm.teardown("test")
        assert torch.equal(batches[0][0], batches[1][0])


# ---- against DALI's own readers --------------------------------------------------------------------------------------


def _reader(build: Callable[[Any], tuple[Any, Any]], count: int) -> Iterator[tuple[bytes, int]]:
    from nvidia.dali import fn
    from nvidia.dali.pipeline import Pipeline

    pipe = Pipeline(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipe:
        pipe.set_outputs(*build(fn))
    pipe.build()
    for _ in range(count):
        content, label = pipe.run()
        label = np.asarray(label[0]).reshape(-1)
        number = int(bytes(label)) if label.dtype == np.uint8 else int(label[0])
        yield np.asarray(content[0]).tobytes(), number


def test_the_bytes_are_those_of_dalis_readers(tmp_path: Path) -> None:
    from nvidia.dali import tfrecord as tfrec

    contents = [jpeg(i, (12, 10)) if i % 2 else jpeg(i, (90, 160)) for i in range(6)]
    contents[3] = contents[3] + bytes(-len(contents[3]) % 4) + files.MAGIC * 2 + b"ab"  # cut in RecordIO, if aligned
    made = {name: write(tmp_path / name, name, contents, []) for name in FORMATS if name != "numpy"}
    rows = []
    for k in range(2):
        offset, lines = 0, []
        data = (tmp_path / f"tfrecord/{k}.tfrecord").read_bytes()
        while offset < len(data):
            size = 16 + int.from_bytes(data[offset : offset + 8], "little")
            lines.append(f"{offset} {size}")
            offset += size
        (tmp_path / f"tfrecord/{k}.idx").write_text("\n".join(lines) + "\n")
        rows.append([str(tmp_path / f"tfrecord/{k}.tfrecord"), str(tmp_path / f"tfrecord/{k}.idx")])
    features = {
        "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
        "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
    }

    def tfrecord(fn: Any) -> tuple[Any, Any]:
        read = fn.readers.tfrecord(path=[r[0] for r in rows], index_path=[r[1] for r in rows], features=features)
        return read["image/encoded"], read["image/class/label"]

    def two(folder: str, pattern: str) -> list[str]:
        return [str(tmp_path / folder / pattern.format(k)) for k in range(2)]

    one = tmp_path / "one.rec"
    records = [files.recordio_record(content, i) for i, content in enumerate(contents)]
    made["recordio"] = RecordIO(files.write_recordio(one, records, one.with_suffix(".idx")), index_dir=tmp_path / "i")
    readers: dict[str, Callable[[Any], tuple[Any, Any]]] = {
        "tfrecord": tfrecord,
        "webdataset": lambda fn: tuple(fn.readers.webdataset(paths=two("webdataset", "{}.tar"), ext=["jpg", "cls"])),
        # A single file, for a reader of several wants one index of them all.
        "recordio": lambda fn: tuple(fn.readers.mxnet(path=str(one), index_path=str(one.with_suffix(".idx")))),
        "lmdb": lambda fn: tuple(fn.readers.caffe(path=two("lmdb", "{}"))),
    }
    for name, build in readers.items():
        theirs = list(_reader(build, len(contents)))
        reader = made[name].reader()
        ours = reader.begin(np.arange(len(contents)), False).result()
        reader.close()
        assert [label for _, label in theirs] == made[name].targets.tolist() == list(range(len(contents))), name
        assert [content for content, _ in theirs] == [ours.content(i) for i in range(len(contents))] == contents, name


def test_the_pixels_are_those_of_dalis_numpy_reader(tmp_path: Path) -> None:
    """In C order and in Fortran order."""
    from nvidia.dali.types import Constant

    arrays = [pixels(i, (6 + i, 9 - i)) for i in range(6)]
    source = write(tmp_path / "data", "numpy", [], arrays)
    for i in (1, 4):
        np.save(tmp_path / "data" / f"{i:03}" / "a.npy", np.asfortranarray(arrays[i]))
    named = [source.sample_name(i) for i in range(6)]

    def build(fn: Any) -> tuple[Any, Any]:
        return fn.readers.numpy(file_root=str(tmp_path / "data"), files=named), Constant(-1)

    theirs = [content for content, _ in _reader(build, 6)]
    reader = source.reader()
    ours = reader.begin(np.arange(6), False).result()
    reader.close()
    assert ours.sizes is not None
    assert ours.sizes.tolist() == [list(array.shape[:2]) for array in arrays]
    assert theirs == [ours.content(i) for i in range(6)] == [array.tobytes() for array in arrays]


# ---- from YAML -------------------------------------------------------------------------------------------------------


def test_a_data_module_from_yaml(tmp_path: Path) -> None:
    from jsonargparse import ArgumentParser

    write(tmp_path / "t", "tfrecord", [jpeg(i) for i in range(4)], [])
    write(tmp_path / "w", "webdataset", [jpeg(i) for i in range(4)], [])
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(ImageDataModule, "data")
    config = f"""
data:
  class_path: ImageDataModule
  init_args:
    train:
      class_path: lightning_gpuaug.TFRecord
      init_args:
        paths: {tmp_path}/t/*.tfrecord
        label_offset: 2
        exclude: ["1.tfrecord:0"]
        index_dir: {tmp_path}/i
    val:
      class_path: lightning_gpuaug.WebDataset
      init_args: {{urls: ["{tmp_path}/w/0.tar", "{tmp_path}/w/1.tar"], label: cls, index_dir: {tmp_path}/i}}
    batch_size: 1
    image_size: 8
    num_threads: 1
"""
    dm = parser.instantiate(parser.parse_string(parser.dump(parser.parse_string(config)))).data.setup_for("cpu")
    assert sorted(sum(labels(dm.train_dataloader()), [])) == [2, 3, 5]
    assert labels(dm.val_dataloader()) == [[0], [1], [2], [3]]
    dm.teardown("test")
