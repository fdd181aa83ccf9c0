"""Progress bars on stderr, for people only: nothing is drawn where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Tells the reader what is going on."""

    def __call__(self, doing: str) -> None:
        """Begin the next step, called `doing`."""


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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(done: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, advance=done, rate=f"{speed:,.0f} {unit}/s" if speed else "")

        yield advance


@contextmanager
def step_bar(steps: int) -> Iterator[Progress]:
    """Yield a function that is told which of `steps` begins."""
    if not sys.stderr.isatty():
        yield lambda doing: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=steps)
        begun = 0

        def step(doing: str) -> None:
            nonlocal begun
            bar.update(task, description=doing, completed=begun)
            begun += 1

        yield step
