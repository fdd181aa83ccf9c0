"""Where samples are and what their labels are."""

from __future__ import annotations

import os

from lightning_gpuaug.sources.base import Source
from lightning_gpuaug.sources.filelist import FileList
from lightning_gpuaug.sources.folder import ImageFolder
from lightning_gpuaug.sources.synthetic import Synthetic

__all__ = ["FileList", "ImageFolder", "Source", "Synthetic", "as_source"]


def as_source(value: str | os.PathLike[str] | Source) -> Source:
    """`value` itself if it is a source, the `ImageFolder` at `value` if it is a path.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(value, Source):
        return value
    if isinstance(value, (str, os.PathLike)):
        return ImageFolder(value)
    raise TypeError(f"a data source must be a path or a Source, got {value!r} ({type(value).__name__})")
