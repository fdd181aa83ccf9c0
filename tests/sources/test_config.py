"""Sources can be written in YAML: jsonargparse reads them, and what it saves it reads again."""

from __future__ import annotations

import pytest
from jsonargparse import ArgumentParser

from lightning_gpuaug.sources import (
    LMDB,
    FileList,
    ImageFolder,
    NumpyFolder,
    RecordIO,
    Source,
    Synthetic,
    TFRecord,
    WebDataset,
)


@pytest.mark.parametrize(
    "source",
    [
        ImageFolder("data/train", exclude=("a.jpg", "b c.jpg"), strict=True),
        ImageFolder("data/train", exclude="bad.txt", class_names=("a", "b")),
        FileList("list.csv", root="data", columns=("x", "y")),
        Synthetic(length=5, mode="cached"),
        TFRecord("data/*.tfrecord", label="x", missing="skip", exclude="bad.txt"),
        TFRecord(("a", "b"), "i", "l", label_offset=-1, checksums="lengths", class_names=("x", "y")),
        WebDataset("data/{000..127}.tar", label="json:a.b", multilabel=True, index_dir="cache"),
        RecordIO("train.rec", "train.idx", exclude=("train.rec:0",)),
        LMDB("db"),
        NumpyFolder("data/train"),
        FileList("list.txt", exclude=("a.jpg",)),
    ],
)
def test_yaml_round_trip(source: Source) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--train", type=str | Source)
    fields = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(source).items()}
    path = f"{type(source).__module__}.{type(source).__name__}"
    config = parser.parse_object({"train": {"class_path": path, "init_args": fields}})
    again = parser.parse_string(parser.dump(config))
    assert parser.instantiate(again).train == source
    assert parser.instantiate(parser.parse_object({"train": "some/folder"})).train == "some/folder"
