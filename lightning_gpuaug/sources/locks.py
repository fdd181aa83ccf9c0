"""One process at a time makes a file that several want."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(file: str, subject: str) -> Iterator[bool]:
    """While no other process is inside for the same `file`, whose folder is made.

    On a file system without locks several may be inside; what they make has to allow that. Gives whether there is a
    lock.

    Raises:
        OSError: nothing can be written there; says so of `subject`.
    """
    folder = os.path.dirname(file)
    try:
        os.makedirs(folder, exist_ok=True)
        lock = open(f"{file}.lock", "a")  # noqa: SIM115 - closed below
    except OSError as error:
        raise OSError(f"{subject} cannot be kept in {folder}: {error}; give another index_dir") from None
    with lock:
        alone = False
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
            alone = True
        yield alone
