"""Whose turn it is to use Python: the training thread's, or that of the thread that makes batches.

Both need Python's lock. A training loop that launches its forward pass kernel by kernel needs it all the time, and
where the host is hardly faster than the GPU, every moment it waits for the lock leaves the GPU idle. In the backward
pass autograd's own thread launches, and Python is free: that is when batches are made.
"""

from __future__ import annotations

import threading

_PATIENCE = 0.02
"""Seconds that the making of a batch waits for its turn: more than a forward pass takes the host."""
_MISSES = 3
"""Turns in a row that may not come before the loop is taken for one that does not announce them any more."""


class Turns:
    """The training thread says when it works and when it rests; the other thread waits for the latter, with patience.

    Until the training thread has rested for the first time, nobody waits: other loops say nothing.
    """

    def __init__(self) -> None:
        self._resting = threading.Event()
        self._resting.set()
        self._announced = False
        self._missed = 0

    def work(self) -> None:
        """The training thread has its batch and launches its forward pass."""
        if self._announced:
            self._resting.clear()

    def rest(self) -> None:
        """The backward pass begins."""
        self._announced = True
        self._resting.set()

    def hurry(self) -> None:
        """The training thread itself waits for a batch."""
        self._resting.set()

    def wait(self) -> None:
        """Return when the training thread rests, or when it has been waited for long enough."""
        if self._resting.wait(_PATIENCE):
            self._missed = 0
            return
        self._missed += 1
        if self._missed >= _MISSES:
            self._announced, self._missed = False, 0
            self._resting.set()
