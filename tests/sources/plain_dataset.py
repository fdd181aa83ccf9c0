"""A dataset that a worker process can import at once: nothing heavy here."""

from __future__ import annotations

import os
import signal


class Paths:
    """Paths and their positions."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[str, int]:
        return self.paths[index], index


class Killed:
    """Sample 2 ends the process that fetches it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[bytes, int]:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return b"%d" % index, index
