"""A LightningModule that writes down what it was given, and trainers without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torchmetrics

Step = tuple[int, list[int], float]


class Tracking(pl.LightningModule):
    """Trains one weight; keeps (epoch, labels, checksum of the pixels) of every batch it sees.

    Args:
        one_cycle: read `estimated_stepping_batches`, as OneCycleLR users do, which asks for the loader early.
    """

    def __init__(self, one_cycle: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.one_cycle = one_cycle
        self.train_steps: list[Step] = []
        self.val_steps: list[Step] = []
        self.lrs: list[float] = []
        self.val_mean = torchmetrics.MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.train_steps.append(self._note(batch))
        self.lrs.append(self.optimizers().param_groups[0]["lr"])  # type: ignore[union-attr]
        return self.weight * batch[0].float().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.val_steps.append(self._note(batch))
        self.val_mean.update(batch[1].float())
        self.log("val_mean", self.val_mean)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.val_steps.append(self._note(batch))

    def predict_step(self, batch: Any, batch_idx: int) -> list[int]:
        return batch[1].tolist()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD([self.weight], lr=0.1)
        if not self.one_cycle:
            return optimizer
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _note(self, batch: Any) -> Step:
        images, targets = batch
        return self.current_epoch, targets.tolist(), float(images.double().sum())


def trainer(folder: Path, **options: Any) -> pl.Trainer:
    """A CPU trainer that prints and logs nothing unless told to."""
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "default_root_dir": folder,
        "log_every_n_steps": 1,
    }
    return pl.Trainer(**{**quiet, **options})


class SaveEverywhere(pl.Callback):
    """Saves a checkpoint in every hook in which ModelCheckpoint may: after each step, validation, and epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved: list[tuple[str, Path, int]] = []
        """(hook, file, training steps taken when it was saved)."""

    def _save(self, trainer: pl.Trainer, module: Tracking, hook: str) -> None:
        if not trainer.sanity_checking:
            path = self.folder / f"{len(self.saved):03d}-{hook}.ckpt"
            trainer.save_checkpoint(path)
            self.saved.append((hook, path, len(module.train_steps)))

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, *args: Any) -> None:
        self._save(trainer, module, "batch_end")

    def on_validation_end(self, trainer: pl.Trainer, module: Any) -> None:
        self._save(trainer, module, "validation_end")

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        self._save(trainer, module, "epoch_end")
