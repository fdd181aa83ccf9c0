"""Reading files by DALI."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.pipeline.errors import FileError, reason_of
from lightning_gpuaug.pipeline.library import build
from lightning_gpuaug.sources.encoded import fixed_paths, path_bytes


class FilePipeline:
    """A DALI pipeline that reads whole files, also `s3://`, and does nothing to them.

    Args:
        threads: files read at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._rows = 0
        self._pipe: Any = None

    def __call__(self, paths: NDArray[np.bytes_]) -> list[NDArray[np.uint8]]:
        """The bytes of files given by zero-padded names.

        Raises:
            FileError: one cannot be read. The pipeline is finished; build another.
        """
        if len(paths) > self._rows:
            self._rows = len(paths)
            self._pipe = reading_pipeline(self._rows, self._threads, prefetch=1)
        self._pipe.feed_input("paths", path_bytes(paths))
        try:
            (files,) = self._pipe.run()
        except RuntimeError as error:
            raise FileError(reason_of(error)) from error
        return [np.array(files[i], copy=True) for i in range(len(paths))]

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._pipe = None
        self._rows = 0


def whole_file(path: str) -> NDArray[np.uint8]:
    """The bytes of one file, also `s3://`, in DALI's memory, without a copy.

    DALI reads a file in one piece, so this takes as much memory as the file is long; and it keeps what it has allocated
    for the next file, as long as the process lives.

    Raises:
        FileError: it cannot be read, or not whole.
    """
    pipe = reading_pipeline(1, 1, prefetch=1)
    pipe.feed_input("paths", path_bytes(fixed_paths([path])))
    try:
        (files,) = pipe.run()
    except RuntimeError as error:
        raise FileError(reason_of(error)) from error
    content: NDArray[np.uint8] = np.asarray(files[0])  # holds on to the tensor
    return content


def reading_pipeline(batch_size: int, num_threads: int, prefetch: int) -> Any:
    """A built DALI pipeline that reads the files whose names `feed_input("paths", …)` gives, and nothing behind it.

    Args:
        batch_size: files of the largest batch.
        num_threads: files read at the same time.
        prefetch: batches read ahead.
    """
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    pipe = Pipeline(
        batch_size=batch_size,
        num_threads=num_threads,
        device_id=None,
        prefetch_queue_depth=prefetch,
        exec_dynamic=True,
    )
    with pipe:
        pipe.set_outputs(read_files(fn.external_source(name="paths", dtype=types.UINT8, ndim=1)))
    return build(pipe)


def read_files(paths: Any) -> Any:
    """The files' bytes. Plain reads: for files of an image's size, mapping costs twice the CPU time (page faults)."""
    from nvidia.dali import fn

    return fn.io.file.read(paths, dont_use_mmap=True)
