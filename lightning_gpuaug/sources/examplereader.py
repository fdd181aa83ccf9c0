"""Fetching batches of a Python dataset: several workers, put together in order."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.encoded import (
    Background,
    Encoded,
    Indices,
    WantedRows,
    file_states,
    fixed_paths,
    new_buffer,
    read_at,
    read_problems,
)
from lightning_gpuaug.sources.fetching import Fetched, fetch_here, start_worker

if TYPE_CHECKING:
    import torch

    from lightning_gpuaug.sources.examples import Examples


class ExampleReader:
    """Fetches batches: in several workers, put together in order.

    Args:
        source: what to fetch.
    """

    def __init__(self, source: Examples) -> None:
        self._source = source
        self._background = Background()
        self._workers: Executor | None = None

    def begin(self, indices: Indices, pinned: bool, wanted: WantedRows | None = None) -> Future[Encoded]:
        """Begin to fetch the images of samples."""
        source = self._source
        chosen = indices if source._kept is None else source._kept[indices]
        if self._workers is None:
            self._workers = self._started()
        # About two portions a worker: small enough to be spread evenly, large enough to be worth a message.
        portion = max(1, -(-len(chosen) // (2 * source.workers)))
        fetch = fetch_here if source.processes else self._fetch
        with self._explained():
            parts = [
                self._workers.submit(fetch, chosen[at : at + portion].tolist()) for at in range(0, len(chosen), portion)
            ]
        return self._background.submit(pinned, self._gather, indices, parts, pinned)

    def close(self) -> None:
        """Stop the workers."""
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)
            self._workers = None
        self._background.close()

    def _started(self) -> Executor:
        source = self._source
        if not source.processes:
            return ThreadPoolExecutor(source.workers, thread_name_prefix="gpuaug-fetch")
        # Not forked: this process has threads, and may have CUDA.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(source.workers, context, start_worker, (source._fetcher,))
        try:
            pool.submit(fetch_here, [])  # starts the processes, and gives each the dataset
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # pickle's three ways to refuse
            pool.shutdown(wait=False)
            reason = " ".join(str(error).split())
            raise RuntimeError(
                f"Examples.processes: {type(source.dataset).__name__} cannot be sent to another process ({reason}); "
                "define what it holds at the top level of a module, or fetch in threads (processes=False)"
            ) from error
        return pool

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what it means that a process has ended."""
        try:
            yield
        except BrokenProcessPool as error:
            source = self._source
            raise RuntimeError(
                f"Examples.processes: a process that fetches from {type(source.dataset).__name__} ended (its own words "
                "are above; without any it was killed, as when memory is short); lower Examples.workers "
                f'({source.workers}), keep a script\'s start under `if __name__ == "__main__":`, or fetch in threads '
                "(processes=False)"
            ) from error

    def _fetch(self, indices: list[int]) -> list[Fetched]:
        return [self._source._fetcher(index) for index in indices]

    def _gather(self, indices: Indices, parts: list[Future[list[Fetched]]], pinned: bool) -> Encoded:
        with self._explained():
            items = list(itertools.chain.from_iterable(part.result() for part in parts))
        data, start, length, problems = _side_by_side([content for content, _, _ in items], pinned)
        problems = {
            row: problem or problems[row] for row, (_, _, problem) in enumerate(items) if problem or row in problems
        }
        targets = None
        if self._source._known is None:
            targets = self._source._finished([target for _, target, _ in items], indices)
        return Encoded(data, start, length, problems, targets=targets)


def _side_by_side(
    contents: list[bytes | str], pinned: bool
) -> tuple[torch.Tensor, npt.NDArray[np.int64], npt.NDArray[np.int64], dict[int, str]]:
    """Images end to end, those that are paths being read: their bytes, where each begins, its length, and problems."""
    named = {row: content for row, content in enumerate(contents) if isinstance(content, str)}
    given = [b"" if isinstance(content, str) else content for content in contents]
    length = np.array([len(content) for content in given], dtype=np.int64)
    if not named:
        data = new_buffer(int(length.sum()), pinned)
        data.numpy()[:] = np.frombuffer(b"".join(given), dtype=np.uint8)
        return data, np.cumsum(length) - length, length, {}
    rows, paths = np.array(list(named)), fixed_paths(list(named.values()))
    sizes = file_states(paths)[:, 0]
    length[rows] = np.maximum(sizes, 0)
    start = np.cumsum(length) - length
    data = new_buffer(int(length.sum()), pinned)
    got = read_at(data, start[rows], paths, np.arange(len(rows)), np.zeros_like(rows), length[rows])
    failed = read_problems(np.where(sizes < 0, sizes, got), length[rows])
    problems = {row: f"{failed[k]}: {path}" for k, (row, path) in enumerate(named.items()) if k in failed}
    length[list(problems)] = 0
    flat = data.numpy()
    for at, content in zip(start.tolist(), given, strict=True):
        if content:
            flat[at : at + len(content)] = np.frombuffer(content, dtype=np.uint8)
    return data, start, length, problems
