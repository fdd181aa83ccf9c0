"""Images in object storage: whole files, read through DALI."""

from __future__ import annotations

import re
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.encoded import READERS, Background, Encoded, Indices, WantedRows, new_buffer
from lightning_gpuaug.sources.names import S3

if TYPE_CHECKING:
    from lightning_gpuaug.pipeline import FilePipeline

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
#: What DALI takes for the end of the name, or makes a shorter name of: it would read another object.
_REWRITTEN = re.compile(r"[?#]|//|/\.{1,2}(/|$)")


def is_remote(path: str) -> bool:
    """Whether a path names an object in S3."""
    return path.startswith(S3)


def unread_address(path: str) -> str | None:
    """What is wrong with a path that is neither on a file system nor an address in S3 as DALI reads it; else None."""
    found = _SCHEME.match(path)
    if found is None:
        return None
    if is_remote(path):
        if not (odd := _REWRITTEN.search(path, len(S3) - 1)):
            return None
        return f"in S3 must have no {odd[0]!r}, got {path!r}: DALI would read another object"
    return f"must be on a file system or in S3, got {path!r}: {found[0]} is not read; copy or mount it first"


class RemoteReader:
    """Reads images that are objects in S3 (or files), `READERS` at the same time for each batch.

    The AWS SDK inside DALI finds credentials, region and endpoint as it always does: `AWS_ACCESS_KEY_ID`,
    `AWS_REGION`, `AWS_ENDPOINT_URL` and so on, or the files in `~/.aws`.

    Args:
        paths: of the samples, as zero-padded bytes, each with a zero byte at its end.
    """

    def __init__(self, paths: npt.NDArray[np.bytes_]) -> None:
        self._paths = paths
        self._background = Background()
        self._idle: SimpleQueue[FilePipeline] = SimpleQueue()  # a pipeline works for one thread at a time

    def begin(self, indices: Indices, pinned: bool, wanted: WantedRows | None = None) -> Future[Encoded]:
        """Begin to read; see `Reader`."""
        return self._background.submit(pinned, self._read, indices, pinned)

    def close(self) -> None:
        """Stop the threads and let the pipelines go."""
        self._background.close()
        while not self._idle.empty():
            self._idle.get().close()

    def _read(self, indices: Indices, pinned: bool) -> Encoded:
        contents, problems = self._contents(self._paths[indices])
        length = np.array([len(content) for content in contents], dtype=np.int64)
        data = new_buffer(int(length.sum()), pinned)
        if len(data):
            np.concatenate(contents, out=data.numpy())
        return Encoded(data, np.cumsum(length) - length, length, problems)

    def _contents(self, paths: npt.NDArray[np.bytes_]) -> tuple[list[npt.NDArray[np.uint8]], dict[int, str]]:
        """The bytes of each file, and for those that could not be read (none then) why."""
        from lightning_gpuaug.pipeline import FileError, FilePipeline

        try:
            pipe = self._idle.get_nowait()
        except Empty:
            pipe = FilePipeline(READERS)
        try:
            contents = pipe(paths)
            self._idle.put(pipe)
            return contents, {}
        except FileError as error:
            pipe.close()
            if len(paths) == 1:
                return [np.empty(0, dtype=np.uint8)], {0: f"unreadable: {error}"}
        # DALI does not say which file it was, and has lost the others.
        alone = [self._contents(paths[i : i + 1]) for i in range(len(paths))]
        return [found[0] for found, _ in alone], {i: why[0] for i, (_, why) in enumerate(alone) if why}


def refuse_remote(path: str, owner: str, instead: str) -> None:
    """Raise ValueError for a path that is not on a file system.

    Args:
        path: to look at.
        owner: the argument it came by.
        instead: what to do.
    """
    if found := _SCHEME.match(path):
        raise ValueError(f"{owner} must be on a file system, got {path!r}: {found[0]} is not read; {instead}")
