"""Where samples are and what their labels are."""

from __future__ import annotations

import os

from lightning_gpuaug.sources.base import Source
from lightning_gpuaug.sources.examples import Examples
from lightning_gpuaug.sources.filelist import FileList
from lightning_gpuaug.sources.folder import ImageFolder, UnlabelledFolder
from lightning_gpuaug.sources.lmdb import LMDB
from lightning_gpuaug.sources.numpyfolder import NumpyFolder
from lightning_gpuaug.sources.orders import weighted_order
from lightning_gpuaug.sources.recordio import RecordIO
from lightning_gpuaug.sources.synthetic import Synthetic
from lightning_gpuaug.sources.tfrecord import TFRecord
from lightning_gpuaug.sources.webdataset import WebDataset

__all__ = [
    "LMDB",
    "Examples",
    "FileList",
    "ImageFolder",
    "NumpyFolder",
    "RecordIO",
    "Source",
    "Synthetic",
    "TFRecord",
    "WebDataset",
    "as_source",
    "weighted_order",
]


def as_source(value: str | os.PathLike[str] | Source, labelled: bool = True) -> Source:
    """`value` itself if it is a source, the `ImageFolder` at `value` if it is a path.

    Args:
        value: a source or a path.
        labelled: False takes all images below a path, whether or not they are in class folders.

    Raises:
        TypeError: it is neither.
        ValueError: it is a text that a configuration meant to be something else than a path.
    """
    if isinstance(value, Source):
        return value
    # What jsonargparse makes of a source that it cannot build, and of a file where a source may stand.
    if isinstance(value, str) and value.startswith("{") and "class_path" in value:
        raise ValueError(
            f"not a source: {value}; class_path is ImageFolder, FileList, TFRecord, WebDataset, RecordIO, LMDB, "
            "NumpyFolder, Examples or Synthetic, init_args its fields"
        )
    if isinstance(value, str) and "\n" in value:
        raise ValueError(
            f"a folder of images was expected, got a file that begins with {value.splitlines()[0]!r}; a list of images "
            "is given as {class_path: FileList, init_args: {path: …}}"
        )
    if isinstance(value, (str, os.PathLike)):
        return ImageFolder(value) if labelled else UnlabelledFolder(value)
    raise TypeError(f"a data source must be a path or a Source, got {value!r} ({type(value).__name__})")
