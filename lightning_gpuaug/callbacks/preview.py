"""`BatchPreview`: what the network really gets, as a picture in the logger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image

from lightning_gpuaug.callbacks.batch_images import BatchImages, datasets_of, find_images, normalize_of
from lightning_gpuaug.callbacks.idle_hooks import leave_out_idle_hooks
from lightning_gpuaug.grid import draw_grid, to_pixels
from lightning_gpuaug.recipe import Normalize

_READABLE = 96
"""Pixels that a tile should be wide at least; smaller images are magnified."""
_MOST_NAMES = 3
_STAGES = ("train", "val")


class BatchPreview(pl.Callback):
    """Draw the first batch of chosen epochs, as the network gets it, and hand it to the trainer's loggers.

    Works with any LightningModule, any data module or plain DataLoader, and any batch that holds images (tuples, dicts,
    several views). The picture shows the images with their normalisation undone, and their class names below; a mixed
    target shows its two largest shares. TensorBoard and Weights & Biases get an image called `preview/train` or
    `preview/val`; every other logger, and none, gets a file `preview-train-epoch0000.png` in its folder.

    Rank 0 alone draws, from its own batch, without any collective. No random number is drawn, nothing about the batch
    is changed, and what goes wrong while drawing is a warning: training is the same with and without it. On a GPU the
    shown images are copied to the host, so the chosen steps wait for the GPU, and no others do.

    Args:
        epochs: epochs to draw, counted from 0.
        every_n_epochs: draw every n-th epoch (0, n, 2n, …) as well.
        stages: "train", "val" or both. The sanity check is not drawn.
        images: most images in a picture.
        columns: images in a row. Of several views, each has a row of its own, for as many images.
        normalize: what was done to the images: mean and std; None for pixels on the 0..1 scale (or uint8); or "auto":
            what the data module's recipe says, else the `Normalize` among the data set's torchvision transforms,
            else 0..1 if the values are, else they are stretched to the full range, with a warning.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        epochs: Sequence[int] = (0,),
        every_n_epochs: int | None = None,
        stages: Sequence[Literal["train", "val"]] = ("train", "val"),
        images: int = 16,
        columns: int = 8,
        normalize: Normalize | Literal["auto"] | None = "auto",
    ) -> None:
        """Check the arguments."""
        if any(isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0 for epoch in epochs):
            raise ValueError(f"epochs must be whole numbers ≥ 0, got {list(epochs)!r}")
        for name, value in (("every_n_epochs", every_n_epochs), ("images", images), ("columns", columns)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be ≥ 1, got {value!r}")
        if not stages or any(stage not in _STAGES for stage in stages):
            raise ValueError(f"stages must be some of {_STAGES}, got {list(stages)!r}")
        if not (normalize is None or normalize == "auto" or isinstance(normalize, Normalize)):
            raise ValueError(f'normalize must be a Normalize, "auto" or None, got {normalize!r}')
        self.epochs, self.every_n_epochs, self.stages = tuple(epochs), every_n_epochs, tuple(stages)
        self.images, self.columns, self.normalize = images, columns, normalize
        self._drawn: set[tuple[str, int]] = set()
        leave_out_idle_hooks(self)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Begin anew."""
        self._drawn.clear()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Draw the epoch's first batch (of a resumed epoch, the first of its rest)."""
        self._draw_if_due(trainer, "train", batch)

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw the epoch's first validation batch."""
        if not trainer.sanity_checking:
            self._draw_if_due(trainer, "val", batch)

    def _draw_if_due(self, trainer: pl.Trainer, stage: Literal["train", "val"], batch: object) -> None:
        epoch = trainer.current_epoch
        regular = self.every_n_epochs is not None and epoch % self.every_n_epochs == 0
        if stage not in self.stages or (stage, epoch) in self._drawn or not (regular or epoch in self.epochs):
            return
        self._drawn.add((stage, epoch))
        if not trainer.is_global_zero:
            return
        try:
            self._draw(trainer, stage, epoch, batch)
        except Exception as error:  # a picture is not worth a run
            rank_zero_warn(f"BatchPreview has no picture of {stage} epoch {epoch}: {type(error).__name__}: {error}")

    def _draw(self, trainer: pl.Trainer, stage: Literal["train", "val"], epoch: int, batch: object) -> None:
        found = find_images(batch)
        if found is None:
            rank_zero_warn(f"BatchPreview found no images in a {stage} batch of type {type(batch).__name__}")
            return
        loaders = trainer.train_dataloader if stage == "train" else trainer.val_dataloaders
        datasets = list(datasets_of(loaders))
        picture = self._picture(found, _class_names(trainer, datasets), self._normalization(trainer, stage, datasets))
        loggers: list[Any] = list(trainer.loggers) or [None]
        for logger in loggers:
            _hand_over(picture, stage, epoch, trainer, logger)

    def _picture(
        self, found: BatchImages, names: Sequence[str], normalize: Normalize | Literal["auto"] | None
    ) -> Image.Image:
        several = len(found.views) > 1
        shown = min(self.images, found.views[0].shape[0], *([self.columns] if several else []))
        views = [_pixels(view[:shown], normalize) for view in found.views]
        captions = _captions(found.targets, shown, names)
        widest = max(view.shape[2] for view in views)
        return draw_grid(
            [image for view in views for image in view],
            captions + [""] * (shown * (len(views) - 1)),
            columns=shown if several else self.columns,
            scale=max(1, -(-_READABLE // widest)),
        )

    def _normalization(
        self, trainer: pl.Trainer, stage: str, datasets: Sequence[object]
    ) -> Normalize | Literal["auto"] | None:
        if self.normalize != "auto":
            return self.normalize
        data: Any = getattr(trainer, "datamodule", None)
        recipe = getattr(data, "train_recipe" if stage == "train" else "eval_recipe", None)
        if recipe is not None:
            told: Normalize | None = recipe.normalize
            return told
        return next((n for n in map(normalize_of, datasets) if n is not None), "auto")


def _class_names(trainer: pl.Trainer, datasets: Sequence[object]) -> Sequence[str]:
    """Of the data module, else of the data set; empty when nobody knows."""
    for owner in (getattr(trainer, "datamodule", None), *datasets):
        names = getattr(owner, "classes", None)
        if isinstance(names, Sequence) and not isinstance(names, str):
            return [str(name) for name in names]
    return ()


def _pixels(images: torch.Tensor, normalize: Normalize | Literal["auto"] | None) -> np.ndarray:
    """(N, H, W, 3) uint8 of images in either layout, grey or RGB."""
    images = images.detach().cpu()
    if images.shape[1] not in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    if images.dtype == torch.uint8:
        return images.permute(0, 2, 3, 1).contiguous().numpy()
    images = images.float().nan_to_num()
    if normalize == "auto":
        low, high = float(images.min()), float(images.max())
        normalize = None
        if low < 0 or high > 1:
            rank_zero_warn(
                f"BatchPreview stretches values from {low:.2f} to {high:.2f} over the full range, since nothing says "
                "how they were normalised: give it normalize=Normalize(mean, std)"
            )
            images = (images - low) / max(high - low, 1e-6)
    return to_pixels(images, normalize)


def _captions(targets: torch.Tensor | None, count: int, names: Sequence[str]) -> list[str]:
    """A text for each of the first `count` targets."""
    if targets is None:
        return [""] * count
    values = targets[:count].detach().cpu()

    def name(label: int) -> str:
        return names[label] if 0 <= label < len(names) else str(label)

    if values.ndim == 1 and values.is_floating_point():
        return [f"{value:g}" for value in values.tolist()]
    if values.ndim == 1:
        return [name(label) for label in values.tolist()]
    captions = []
    for row in values.float():
        if bool(((row == 0) | (row == 1)).all()):
            labels = row.nonzero().flatten().tolist()
            rest = ["…"] if len(labels) > _MOST_NAMES else []
            captions.append(", ".join([*map(name, labels[:_MOST_NAMES]), *rest]))
        else:
            shares, labels = row.topk(min(2, len(row)))
            pairs = zip(labels.tolist(), shares.tolist(), strict=True)
            captions.append("\n".join(f"{name(label)} {share:.2f}" for label, share in pairs if share >= 0.005))
    return captions


def _hand_over(picture: Image.Image, stage: str, epoch: int, trainer: pl.Trainer, logger: Any) -> None:
    """Give a picture to one logger in its own way, or write it as a file."""
    key, step = f"preview/{stage}", trainer.global_step
    if hasattr(logger, "log_image"):  # Weights & Biases
        logger.log_image(key=key, images=[picture], step=step)
    elif logger is not None and hasattr(logger.experiment, "add_image"):  # TensorBoard
        logger.experiment.add_image(key, np.asarray(picture), step, dataformats="HWC")
    else:
        # Not `trainer.log_dir`, which is a collective.
        folders = (getattr(logger, name, None) for name in ("log_dir", "save_dir"))
        folder = Path(next((f for f in folders if f), trainer.default_root_dir))
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"preview-{stage}-epoch{epoch:04d}.png")
