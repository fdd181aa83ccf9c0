"""Formats of files that hold many records each, by name, as command lines say them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from lightning_gpuaug.sources.lmdb import LMDB
from lightning_gpuaug.sources.recordio import RecordIO
from lightning_gpuaug.sources.records import RecordSource
from lightning_gpuaug.sources.tfrecord import TFRecord
from lightning_gpuaug.sources.webdataset import WebDataset

RecordFormat = Literal["tfrecord", "webdataset", "recordio", "lmdb"]

_SOURCES: dict[RecordFormat, Callable[..., RecordSource]] = {
    "tfrecord": TFRecord,
    "webdataset": WebDataset,
    "recordio": RecordIO,
    "lmdb": LMDB,
}
FORMAT_OF_ENDING: dict[str, RecordFormat] = {".tar": "webdataset", ".rec": "recordio", ".mdb": "lmdb"}
"""What files are by how their names end; TFRecords may be called anything."""
FORMAT_OPTIONS: dict[RecordFormat, tuple[str, ...]] = {
    "tfrecord": ("image", "label", "label_offset", "labels", "checksums"),
    "webdataset": ("image", "label", "labels"),
    "recordio": ("idx", "labels"),
    "lmdb": ("label", "labels"),
}
"""What may be said of how each format's records are read."""


def record_source(form: RecordFormat, files: Sequence[str], **options: Any) -> RecordSource:
    """The source of records in `files`.

    Args:
        form: of the files.
        files: paths or patterns.
        options: fields of the source, of `FORMAT_OPTIONS` or common to all. A `label` of "none" says that records have
            none, of an LMDB too, which has no other.

    Raises:
        TypeError: an option of the wrong kind.
        ValueError: an option that the source refuses, or a label that an LMDB cannot have.
    """
    unlabelled = options.get("label") == "none"
    if form == "lmdb":
        label = options.pop("label", None)
        if label is not None and not unlabelled:
            raise ValueError(f'label of LMDB databases can only be "none", got {label!r}')
        options["labelled"] = not unlabelled
    elif unlabelled:
        options["label"] = None
    return _SOURCES[form](files, **options)
