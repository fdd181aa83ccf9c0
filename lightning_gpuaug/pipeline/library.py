"""DALI as a library: whether it is there, and the memory it holds."""

from __future__ import annotations

import importlib.util
import sys


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


def release_memory() -> None:
    """Return DALI's pooled memory, which outlives its pipelines, to the system."""
    if "nvidia.dali" not in sys.modules:
        return
    from nvidia.dali import backend

    backend.ReleaseUnusedMemory()  # type: ignore[attr-defined]
