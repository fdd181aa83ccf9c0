"""Hooks of every step that a callback has no use for."""

from __future__ import annotations

import lightning.pytorch as pl

_EVERY_STEP = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


def leave_out_idle_hooks(callback: pl.Callback) -> None:
    """Have Lightning pass over the hooks of a step that `callback`'s class does not define.

    Lightning opens a range of its profiler around every hook of every callback that can be called, also around those
    that do nothing; it passes over attributes that cannot be.
    """
    for name in _EVERY_STEP:
        if getattr(type(callback), name) is getattr(pl.Callback, name):
            setattr(callback, name, None)
