"""Enough CUDA hardware queues that decoding never waits behind a training step it does not depend on.

CUDA maps streams onto 8 hardware queues unless told otherwise. DALI and nvJPEG open a dozen streams and more, some of
which then share a queue with the training stream, and a tiny kernel of the decoder waits for a whole training step.
The setting is read once, when CUDA starts, so it has to be in the environment before.
"""

from __future__ import annotations

import os
import sys
import warnings

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
WANTED = 32

_in_force: int | None = None  # what CUDA read when it started; None while it has not


def request() -> None:
    """Ask for 32 queues unless the user has asked for another number, or CUDA is already running."""
    global _in_force
    torch = sys.modules.get("torch")  # not imported, not started; `gpuaug --help` should not wait for it
    if torch is not None and torch.cuda.is_initialized():
        _in_force = _number(os.environ.get(VARIABLE, "8"))
    else:
        os.environ.setdefault(VARIABLE, str(WANTED))


def in_force() -> int:
    """The number of queues that this process has, or will have."""
    return _in_force if _in_force is not None else _number(os.environ.get(VARIABLE, "8"))


def warn_if_few() -> None:
    """Warn when decoding on the GPU is about to share queues with training."""
    if in_force() < WANTED:
        warnings.warn(
            f"{VARIABLE} is {in_force()}: GPU decoding will wait behind training steps. Set {VARIABLE}={WANTED} in the "
            "environment, or import lightning_gpuaug before anything that starts CUDA",
            UserWarning,
            stacklevel=3,
        )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 8
