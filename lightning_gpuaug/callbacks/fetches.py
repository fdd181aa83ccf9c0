"""When the training loop asks its loader for a batch, and when it has got it."""

from __future__ import annotations

from collections.abc import Callable

import lightning.pytorch as pl


def watch_fetches(
    trainer: pl.Trainer, before: Callable[[], None], after: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Call `before` whenever training is about to ask for a batch, and `after` when that has come or failed to.

    From the next epoch on that begins: `on_train_start` is the place to ask for it.

    No callback hook lies at those moments: between `on_train_batch_end` and `on_train_batch_start` there are also other
    callbacks, loggers and, on several ranks, a synchronising broadcast by Lightning itself, none of which is waiting
    for data. But the loop gives its fetcher, at the beginning of an epoch, two functions to call around each `next`,
    whatever the loader is; one instance's are stood in for. (Its profiler is told as well, and of so much else that
    listening there costs more than all the rest.)

    Returns:
        What ends it, and leaves the loop as it was.
    """
    loop = trainer.fit_loop.epoch_loop
    stand_in = getattr(loop._on_before_fetch, "__self__", None)
    if not isinstance(stand_in, _StandIn):
        stand_in = _StandIn(loop._on_before_fetch, loop._on_after_fetch)
        loop._on_before_fetch, loop._on_after_fetch = stand_in.before, stand_in.after  # type: ignore[method-assign]
    listeners = stand_in.listeners
    listener = (before, after or _nothing)
    listeners.append(listener)

    def unwatch() -> None:
        listeners.remove(listener)
        if not listeners:
            del loop._on_before_fetch, loop._on_after_fetch

    return unwatch


class _StandIn:
    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.listeners: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self._before, self._after = before, after

    def before(self) -> None:
        for before, _ in self.listeners:
            before()
        self._before()

    def after(self) -> None:
        self._after()
        for _, after in self.listeners:
            after()


def _nothing() -> None:
    pass
