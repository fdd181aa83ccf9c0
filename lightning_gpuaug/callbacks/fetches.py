"""When the training loop asks its loader for a batch, and when it has got it."""

from __future__ import annotations

from collections.abc import Callable

from lightning.pytorch.profilers import Profiler

# What Lightning's training loop tells its profiler right before it asks the loader for a batch, and right after.
_FETCH = "train_dataloader_next"


def watch_fetches(
    profiler: Profiler, before: Callable[[], None], after: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Call `before` whenever the training loop is about to ask for a batch, until the returned function is called.

    No callback hook lies at that moment: between `on_train_batch_end` and `on_train_batch_start` there are also other
    callbacks, loggers and, on several ranks, a synchronising broadcast by Lightning itself, none of which is waiting
    for data. The loop does tell its profiler, whichever that is, so this one instance's `start` is listened to (and
    its `stop`, when `after` is given, for the moment the batch has come out of the loader).
    """
    start, stop = profiler.start, profiler.stop
    listening = True

    def listening_start(action_name: str) -> None:
        if listening and action_name.endswith(_FETCH):
            before()
        start(action_name)

    def listening_stop(action_name: str) -> None:
        stop(action_name)
        if listening and after is not None and action_name.endswith(_FETCH):
            after()

    def unwatch() -> None:
        nonlocal listening
        listening = False
        # Where another listener was put on top, removing ours would remove both.
        if profiler.start is listening_start:
            profiler.start = start  # type: ignore[method-assign]
        if profiler.stop is listening_stop:
            profiler.stop = stop  # type: ignore[method-assign]

    profiler.start = listening_start  # type: ignore[method-assign]
    if after is not None:
        profiler.stop = listening_stop  # type: ignore[method-assign]
    return unwatch
