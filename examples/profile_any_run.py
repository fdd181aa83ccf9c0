"""What does a run wait for? Callbacks on a plain DataLoader and your own LightningModule; then open the page.

python examples/profile_any_run.py
python examples/profile_any_run.py --load-ms 20      # a slow data set
"""

from __future__ import annotations

import argparse
import time

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lightning_gpuaug import GpuUtilization, Report, Throughput


class Images(Dataset[tuple[Tensor, int]]):
    """Yours: here noise that takes a while to load."""

    def __init__(self, length: int, size: int, load_ms: float) -> None:
        self.length, self.size, self.load_ms = length, size, load_ms

    def __len__(self) -> int:
        """Images."""
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """An image and its label."""
        time.sleep(self.load_ms / 1000.0)
        return torch.rand(3, self.size, self.size), index % 10


class YourModel(pl.LightningModule):
    """Yours, unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=4), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, targets = batch
        return F.cross_entropy(self.network(images), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(args: list[str] | None = None) -> Report:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--load-ms", type=float, default=1.0, help="milliseconds that an image takes to load")
    parser.add_argument("--folder", default="profile_any_run", help="where report.html goes")
    options = parser.parse_args(args)

    images = Images(options.images, options.image_size, options.load_ms)
    loader = DataLoader(images, options.batch_size, num_workers=options.workers, drop_last=True)
    report = Report(options.folder)
    trainer = pl.Trainer(
        max_epochs=1, devices=1, logger=False, enable_checkpointing=False, log_every_n_steps=20,
        callbacks=[Throughput(), GpuUtilization(), report],
    )  # fmt: skip
    trainer.fit(YourModel(), loader)
    print(f"open {report.path}")
    return report


if __name__ == "__main__":
    main()
