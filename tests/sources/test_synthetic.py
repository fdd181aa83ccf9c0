"""Synthetic: real files that are the same everywhere and gone afterwards, or no files at all."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug.sources import ImageFolder, Synthetic
from lightning_gpuaug.sources.imagefile import diagnose, header_size

SMALL = {"length": 12, "num_classes": 3, "height": 24, "width": 40}


def contents(source: Synthetic) -> list[bytes]:
    return [Path(path).read_bytes() for path in source.paths]


def test_jpeg_mode_writes_distinct_real_files() -> None:
    source = Synthetic(**SMALL)
    source.check()
    assert len(source) == len(source.paths) == 12
    assert source.targets.tolist() == [0, 1, 2] * 4
    assert source.targets.dtype == np.int64
    assert source.classes == ("class0", "class1", "class2")
    assert source.num_classes == 3
    assert len(set(contents(source))) == 12
    assert {header_size(path) for path in source.paths} == {(40, 24)}
    assert {diagnose(path) for path in source.paths} == {None}


def test_the_same_fields_give_the_same_bytes_and_another_seed_gives_others() -> None:
    first = Synthetic(**SMALL, seed=1)
    assert contents(first) == contents(Synthetic(**SMALL, seed=1))
    assert not set(contents(first)) & set(contents(Synthetic(**SMALL, seed=2)))
    assert first.fingerprint() == Synthetic(**SMALL, seed=1).fingerprint()
    assert first.fingerprint() != Synthetic(**SMALL, seed=2).fingerprint()


def test_classes_can_be_told_apart_across_seeds() -> None:
    def features(source: Synthetic) -> np.ndarray:
        return np.stack([np.asarray(Image.open(path), dtype=np.float32).mean((0, 1)) for path in source.paths])

    train, val = Synthetic(**{**SMALL, "length": 30}, seed=1), Synthetic(**SMALL, seed=2)
    x = features(train)
    centers = np.stack([x[train.targets == label].mean(0) for label in range(3)])
    guesses = np.linalg.norm(features(val)[:, None] - centers, axis=2).argmin(1)
    assert guesses.tolist() == val.targets.tolist()


def test_temporary_files_go_with_the_last_source_that_uses_them() -> None:
    source = Synthetic(**SMALL)
    mapped = source.with_classes(("class2", "class1", "class0"))
    path = mapped.paths[0]  # written by the second, so not shared
    shared = mapped.with_classes(source.classes)
    assert shared.paths[0] == path
    del mapped
    gc.collect()
    assert os.path.exists(path)
    del shared
    gc.collect()
    assert not os.path.exists(path)


def test_temporary_files_go_with_the_process() -> None:
    code = (
        "from lightning_gpuaug.sources import Synthetic; s = Synthetic(length=1, height=8, width=8); print(s.paths[0])"
    )
    path = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert path.endswith(".jpg")
    assert not os.path.exists(path)


def test_cache_dir_is_used_again_and_is_an_image_folder(tmp_path: Path) -> None:
    source = Synthetic(**SMALL, cache_dir=tmp_path)
    first = [(path, os.stat(path).st_mtime_ns) for path in source.paths]
    del source
    gc.collect()
    again = Synthetic(**SMALL, cache_dir=tmp_path)
    assert [(path, os.stat(path).st_mtime_ns) for path in again.paths] == first
    folder = ImageFolder(Path(first[0][0]).parent.parent, strict=True)
    folder.check()
    assert len(folder) == 12
    other = Synthetic(**SMALL, cache_dir=tmp_path, quality=50)
    assert not set(other.paths) & set(again.paths)


def test_cached_mode_has_targets_and_no_files() -> None:
    source = Synthetic(length=4, num_classes=2, mode="cached")
    source.check()
    assert source.cached
    assert not Synthetic().cached
    assert source.targets.tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r'Synthetic\(mode="cached"\) has no files'):
        _ = source.paths


def test_with_classes_keeps_the_pixels_and_moves_the_labels() -> None:
    source = Synthetic(**SMALL)
    files = list(source.paths)
    with pytest.warns(UserWarning, match="no samples of class 'more'"):
        mapped = source.with_classes(("class2", "more", "class0", "class1"))
    assert list(mapped.paths) == files
    assert mapped.targets.tolist() == [2, 3, 0] * 4
    assert mapped.num_classes == len(mapped.classes) == 4
    assert source.with_classes(source.classes).fingerprint() == source.fingerprint()
    with pytest.raises(ValueError, match="Synthetic: class 'class2' not among the 2 training classes"):
        source.with_classes(("class0", "class1"))


def test_pickle_and_lazy() -> None:
    source = Synthetic(**SMALL)
    _ = source.paths
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert copy.fingerprint() == source.fingerprint()
    assert contents(copy) == contents(source)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, r"Synthetic.length must be a whole number in 1\.\.2147483648, got 0"),
        ({"num_classes": 2.0}, "Synthetic.num_classes must be a whole number .*got 2.0"),
        ({"height": 70000}, r"Synthetic.height .* in 1\.\.65500, got 70000"),
        ({"quality": 101}, r"Synthetic.quality .* in 1\.\.100, got 101"),
        ({"mode": "png"}, "Synthetic.mode must be .* got 'png'"),
        ({"seed": -1}, "Synthetic.seed .* got -1"),
        ({"class_names": ("a",)}, "Synthetic.class_names must have num_classes=10 names, got 1"),
    ],
)
def test_wrong_fields(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Synthetic(**options)  # type: ignore[arg-type]
