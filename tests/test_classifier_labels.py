"""Labels that a classifier's task cannot have are refused before the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_gpuaug import Classifier, Examples, FileList, ImageDataModule
from lightning_gpuaug.sources import Source
from tests.record_files import jpeg
from tests.tracking import trainer


class NoBatch(Classifier):
    """Counts the batches it gets."""

    batches = 0

    def _check_batch(self, *args: Any) -> None:
        self.batches += 1
        super()._check_batch(*args)


def table(folder: Path, name: str, header: str, *rows: str) -> FileList:
    for i in range(len(rows)):
        (folder / f"{i}.jpg").write_bytes(jpeg(i))
    lines = [f"path,{header}", *(f"{i}.jpg,{row}" for i, row in enumerate(rows))]
    (folder / name).write_text("\n".join(lines) + "\n")
    return FileList(folder / name)


def data(**sources: Source) -> ImageDataModule:
    return ImageDataModule(**sources, batch_size=2, image_size=32, num_threads=1)


def known(*targets: object) -> Examples:
    return Examples([(jpeg(i), 0) for i in range(len(targets))], known_targets=np.array(targets))


@pytest.mark.parametrize(
    ("task", "classes", "targets", "message"),
    [
        ("multiclass", 2, (0, 1, 2), r"must be classes from 0 to 1, for num_classes=2; that of 2 is 2$"),
        (
            "multiclass",
            2,
            ((1.0, 0.0), (1.0, 1.0)),
            r"must be class numbers or soft labels that sum to 1 .* is \[1\.0, 1",
        ),
        (
            "multiclass",
            2,
            ((1.0, 0.0), (0.0, 0.0)),
            r"that sum to 1 for task='multiclass' \(several: task='multilabel'\); that of 1 is \[0",
        ),
        ("multiclass", 2, (0.5, 1.5), r"must be class numbers or soft labels .*; that of 0 is 0\.5$"),
        ("multiclass", 3, ((1.0, 0.0), (0.5, 0.5)), r"the train data has 2 numbers a label, the classifier 3 classes$"),
        ("multilabel", 2, (0, 1), r"must be a vector of numbers, one a class, for task='multilabel'; that of 0 is 0$"),
    ],
)
def test_labels_that_do_not_fit(
    tmp_path: Path, task: Any, classes: int, targets: tuple[Any, ...], message: str
) -> None:
    model = NoBatch("test_resnet", num_classes=classes, task=task)
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, max_epochs=1).fit(model, data(train=known(*targets)))
    assert model.batches == 0


@pytest.mark.parametrize(
    ("task", "targets"),
    [
        ("multiclass", (0, 1, 1, 0)),
        ("multiclass", ((1.0, 0.0), (0.3, 0.7))),
        ("multilabel", ((1.0, 1.0), (0.0, 0.0))),
    ],
)
def test_labels_that_fit(tmp_path: Path, task: Any, targets: tuple[Any, ...]) -> None:
    model = NoBatch("test_resnet", num_classes=2, task=task)
    trainer(tmp_path, max_epochs=1).fit(model, data(train=known(*targets)))
    assert model.batches == len(targets) // 2


def test_classes_of_test_data_alone_are_counted_by_the_model(tmp_path: Path) -> None:
    test = table(tmp_path, "t.csv", "label", "0", "5", "9")
    model = NoBatch("test_resnet", num_classes=3)
    with pytest.raises(
        ValueError, match=r"labels of the test data must be classes from 0 to 2, .*; that of 1\.jpg is 5$"
    ):
        trainer(tmp_path).test(model, data(test=test))
    with pytest.raises(
        ValueError, match=r"labels of the val data must be classes from 0 to 2, .*; that of 1\.jpg is 5$"
    ):
        trainer(tmp_path).validate(model, data(val=test))
    assert model.batches == 0


def test_targets_that_are_not_known_or_not_there_are_passed_over(tmp_path: Path) -> None:
    fetched = Examples([(jpeg(i), i) for i in range(2)])
    module = data(train=fetched)
    assert module.targets() is None
    assert module.targets("val") is None
    trainer(tmp_path, max_epochs=1).fit(Classifier("test_resnet", num_classes=2), module)
    with pytest.raises(ValueError, match="stage must be one of"):
        module.targets("training")  # type: ignore[arg-type]
