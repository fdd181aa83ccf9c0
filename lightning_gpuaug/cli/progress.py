"""A progress bar on stderr, for people only: nothing is drawn where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many more of `total` are done.

    Args:
        label: what is being done.
        total: of how many.
        unit: what is counted, for the rate ("images").
    """
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(done: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, advance=done, rate=f"{speed:,.0f} {unit}/s" if speed else "")

        yield advance
