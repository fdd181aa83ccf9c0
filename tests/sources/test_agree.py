"""Labels of evaluation data beside training data that has numbers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gpuaug import Examples, FileList, ImageDataModule, ImageFolder
from lightning_gpuaug.sources import Source
from tests.images import write_images
from tests.record_files import jpeg


def listed(folder: Path, name: str, *labels: str, **fields: Any) -> FileList:
    """A list of as many images as labels."""
    images = write_images(folder, len(labels))
    lines = (f"{image.name} {label}".strip() + "\n" for image, label in zip(images, labels, strict=True))
    (folder / name).write_text("".join(lines))
    return FileList(folder / name, **fields)


def module(train: Source, val: Source) -> ImageDataModule:
    return ImageDataModule(train=train, val=val, batch_size=2, image_size=8, num_threads=1).setup_for("cpu")


def test_numbers_alone_are_the_same_classes(tmp_path: Path) -> None:
    val = listed(tmp_path, "val", "2", "0")
    dm = module(listed(tmp_path, "train", "0", "1", "2"), val)
    assert dm._source("val") is val
    assert dm.num_classes == 3


@pytest.mark.parametrize("kind", ["folder", "list", "examples"])
def test_names_beside_numbers_are_refused(tmp_path: Path, kind: str) -> None:
    """The folder's classes b and c would be the classes 0 and 1."""
    for name in "bc":
        write_images(tmp_path / "val" / name, 1)
    val: dict[str, Source] = {
        "folder": ImageFolder(tmp_path / "val"),
        "list": listed(tmp_path, "val.txt", "b", "c"),
        "examples": Examples([(jpeg(0), 1)], class_names=("b", "c")),
    }
    message = (
        r"the val data has names of classes \(classes 'b', 'c'\), the training data numbers alone: give the training"
    )
    train = listed(tmp_path, "train", "0", "1", "2")
    with pytest.raises(ValueError, match=message):
        module(train, val[kind])
    named = listed(tmp_path, "train", "0", "1", "2", class_names=("a", "b", "c"))
    with pytest.warns(UserWarning, match="no samples of class"):
        assert module(named, val[kind]).classes == ("a", "b", "c")


def test_numbers_that_are_no_class_and_other_kinds_are_refused(tmp_path: Path) -> None:
    train = listed(tmp_path, "train", "0", "1", "2")
    with pytest.raises(
        ValueError, match=r"000001\.jpg: label 9 of the val data is no class of .*, whose labels are 0\.\.2 "
    ):
        module(train, listed(tmp_path, "val", "2", "9"))
    numbers = Examples([(jpeg(0), 0)], known_targets=np.array([0.5], dtype=np.float32))
    with pytest.raises(ValueError, match=r"labels of the val data are floating-point numbers, .* data class numbers$"):
        module(train, numbers)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.filterwarnings("ignore:.* no samples of class")
def test_one_class_beside_several_is_refused(tmp_path: Path, named: bool) -> None:
    """A table with one column of labels has class numbers in it, whatever the column is called."""
    classes = {"class_names": ("cat", "dog")} if named else {}
    several = Examples(
        [(jpeg(i), 0) for i in range(2)], known_targets=np.array([[1, 1], [0, 0]], dtype=np.float32), **classes
    )
    (tmp_path / "val.csv").write_text("path,dog\n0.jpg,1\n0.jpg,0\n")
    (tmp_path / "0.jpg").write_bytes(jpeg(0))
    message = "labels of the val data are class numbers, those of the training data 2 numbers each$"
    with pytest.raises(ValueError, match=message):
        module(several, FileList(tmp_path / "val.csv"))
    message = "labels of the val data are 2 numbers each, those of the training data class numbers$"
    with pytest.raises(ValueError, match=message):
        module(FileList(tmp_path / "val.csv", **classes), several)


def test_classes_may_stand_beside_soft_labels(tmp_path: Path) -> None:
    soft = Examples([(jpeg(i), 0) for i in range(2)], known_targets=np.eye(3, dtype=np.float32)[:2])
    assert module(soft, listed(tmp_path, "val", "2", "0")).val_dataloader() is not None
    assert module(listed(tmp_path, "train", "0", "1", "2"), soft).val_dataloader() is not None
    with pytest.raises(ValueError, match=r"label 3 of the val data is no class of .*, whose labels are 0\.\.2 "):
        module(soft, listed(tmp_path, "val", "3", "0"))
    with pytest.raises(ValueError, match=r"labels of the val data are 3 numbers each, .* classes of 2$"):
        module(listed(tmp_path, "train", "0", "1"), soft)


def test_data_without_labels_has_nothing_to_agree_on(tmp_path: Path) -> None:
    unlabelled = listed(tmp_path, "none", "", "", labels="none")
    named = listed(tmp_path, "named", "b", "c")
    assert module(unlabelled, named).val_dataloader() is not None
    assert module(listed(tmp_path, "train", "0", "1"), unlabelled).val_dataloader() is not None
    fetched = Examples([(jpeg(i), i) for i in range(2)])
    assert module(fetched, listed(tmp_path, "val", "0", "1")).val_dataloader() is not None
    images_alone = Examples([(jpeg(i),) for i in range(2)])
    assert module(images_alone, named).val_dataloader() is not None


def test_names_beside_targets_that_are_not_known_yet_are_refused(tmp_path: Path) -> None:
    """The names b and c would be the classes 0 and 1."""
    fetched = Examples([(jpeg(i), i) for i in range(3)])
    with pytest.raises(ValueError, match=r"names of classes \(classes 'b', 'c'\), the training data numbers alone: "):
        module(fetched, listed(tmp_path, "val.txt", "b", "c"))
    named = Examples([(jpeg(i), i) for i in range(3)], class_names=("a", "b", "c"))
    with pytest.warns(UserWarning, match="no samples of class"):
        assert module(named, listed(tmp_path, "val.txt", "b", "c")).classes == ("a", "b", "c")
