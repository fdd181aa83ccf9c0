"""A dataset that a worker process can import at once: nothing heavy here."""

from __future__ import annotations


class Paths:
    """Paths and their positions."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.paths[index], index
