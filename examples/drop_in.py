"""Swap the data module, keep your own LightningModule: batches stay `(images, targets)`.

python examples/drop_in.py --train data/train --val data/val
"""

from __future__ import annotations

import argparse

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_gpuaug import ImageDataModule, Throughput


class YourModel(pl.LightningModule):
    """Yours, unchanged: it knows nothing of this package."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels_in, channels_out in ((3, 32), (32, 64), (64, 128)):
            layers += [
                nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1),
                nn.BatchNorm2d(channels_out),
                nn.ReLU(),
            ]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, targets = batch
        loss = F.cross_entropy(self.network(images), targets)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, targets = batch
        self.log("val/top1", (self.network(images).argmax(1) == targets).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(args: list[str] | None = None) -> pl.Trainer:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="folder with one sub-folder a class")
    parser.add_argument("--val", required=True, help="the same, for validation")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args(args)

    # before:  data = YourDataModule(root, batch_size=64, num_workers=16)      # ImageFolder + DataLoader + transforms
    data = ImageDataModule(
        train=options.train, val=options.val, batch_size=options.batch_size, image_size=options.image_size
    )

    # before:  trainer = pl.Trainer(max_epochs=2)
    throughput = Throughput()  # optional: says how fast it went and whether it waited for data
    trainer = pl.Trainer(
        max_epochs=options.epochs, devices=1, callbacks=[throughput], logger=False, enable_checkpointing=False
    )

    trainer.fit(YourModel(data.num_classes), datamodule=data)
    print(throughput.summary())
    return trainer


if __name__ == "__main__":
    main()
