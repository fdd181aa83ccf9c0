"""Work spread over processes, with results in order and nothing left behind, whichever way the work ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 3
"""Tasks of each worker that are on their way: enough that none waits, few enough that nothing piles up."""
_POLL_SECONDS = 0.2

_counter: Any = None  # in a worker: how many items all workers have done
_told: Callable[[int], None] | None = None  # where there is no worker: who wants to know at once


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def count(done: int) -> None:
    """Called by work: `done` more items are finished."""
    if _counter is not None:
        with _counter.get_lock():
            _counter.value += done
    elif _told is not None:
        _told(done)


def in_order(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    progress: Callable[[int], None] = lambda done: None,
    begin: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """Results of `work` on each of `tasks`, in the order of the tasks.

    One worker without a `begin` is this process.

    Args:
        work: a function of a module (processes are spawned, so that no thread or CUDA context is forked). It calls
            `count` as it goes along.
        tasks: what it gets; taken as they are needed.
        workers: processes, at least 1.
        progress: told how many more items were counted, a few times a second.
        begin: called once in each process.

    Raises:
        RuntimeError: a worker was killed.
        Exception: what `work` raised.
    """
    if workers == 1 and begin is None:
        yield from _here(work, tasks, progress)
        return
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    told = 0

    def tell() -> None:
        nonlocal told
        now = counter.value
        if now > told:
            progress(now - told)
            told = now

    pool = ProcessPoolExecutor(workers, context, initializer=_enter, initargs=(counter, begin))
    on_their_way: deque[Future[Result]] = deque()
    try:
        remaining = iter(tasks)
        while True:
            while len(on_their_way) < _AHEAD * workers:
                try:
                    on_their_way.append(pool.submit(work, next(remaining)))
                except StopIteration:
                    break
            if not on_their_way:
                break
            try:
                result = on_their_way[0].result(timeout=_POLL_SECONDS)
            except FutureTimeout:
                if on_their_way[0].done():  # the work itself ran into a timeout
                    raise
                tell()
                continue
            except BrokenProcessPool:
                raise RuntimeError("a worker process was killed; is there too little memory?") from None
            except (OSError, ValueError, RuntimeError) as error:
                # Told from here, it is what this package says of a file, not a defect of the pool.
                raise error.with_traceback(None) from None
            on_their_way.popleft()
            tell()
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _here(work: Callable[[Task], Result], tasks: Iterable[Task], progress: Callable[[int], None]) -> Iterator[Result]:
    global _told
    for task in tasks:
        _told = progress
        try:
            result = work(task)
        finally:
            _told = None
        yield result


def _enter(counter: Any, begin: Callable[[], None] | None) -> None:
    global _counter
    _counter = counter
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the work in hand at once and without a word
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _leave_with_parent() -> None:
    """End this process when the one that made it is killed: it would wait for its next task for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
