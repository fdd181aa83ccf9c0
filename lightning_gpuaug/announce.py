"""Tells the training loader when the training thread leaves Python to it."""

from __future__ import annotations

from collections.abc import Callable

import lightning.pytorch as pl
import torch

from lightning_gpuaug.loader import Loader


class AnnounceBackward(pl.Callback):
    """Says when a backward pass begins; see `turns`.

    Args:
        loader: the training loader, if there is one.
    """

    def __init__(self, loader: Callable[[], Loader | None]) -> None:
        self._loader = loader

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor) -> None:
        """From here on autograd launches."""
        loader = self._loader()
        if loader is not None:
            loader.turns.rest()
