"""DALI as a library: whether it is there, what of it lives on in a forked process, and the memory it holds."""

from __future__ import annotations

import importlib.util
import os
import sys
import weakref
from typing import Any


def require_dali() -> None:
    """Check, without importing it, that DALI is installed.

    Raises:
        RuntimeError: it is not; says how to install it.
    """
    if "nvidia.dali" in sys.modules:
        return
    try:
        found = importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # no package `nvidia` at all
        found = False
    if not found:
        raise RuntimeError(
            "NVIDIA DALI is not installed: pip install nvidia-dali-cuda120 (or nvidia-dali-cuda130), also without a GPU"
        )


_built: weakref.WeakSet[Any] = weakref.WeakSet()
_inherited: list[Any] = []


def build(pipe: Any) -> Any:
    """Build a DALI pipeline, and see to it that it can be inherited.

    A pipeline waits for its threads when it is deleted. A forked process (a worker of a torch DataLoader) has the
    pipelines, but not their threads: were one deleted there, by the garbage collector, say, it would wait forever.
    """
    pipe.build()
    _built.add(pipe)
    return pipe


os.register_at_fork(after_in_child=lambda: _inherited.extend(_built))


def release_memory() -> None:
    """Return DALI's pooled memory, which outlives its pipelines, to the system."""
    if "nvidia.dali" not in sys.modules:
        return
    from nvidia.dali import backend

    backend.ReleaseUnusedMemory()  # type: ignore[attr-defined]
