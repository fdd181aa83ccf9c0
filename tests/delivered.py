"""What a data module delivers, and whether it is what another one did."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.sources import Source


def two_epochs(source: Source) -> list[tuple[Tensor, Tensor]]:
    """The batches of two epochs of training on `source`, on the CPU."""
    data = ImageDataModule(train=source, batch_size=4, image_size=8, num_threads=1, seed=3).setup_for("cpu")
    batches = [*data.train_dataloader(), *data.train_dataloader()]
    data.teardown("fit")
    return batches


def assert_alike(batches: Iterable[tuple[Tensor, Tensor]], expected: Iterable[tuple[Tensor, Tensor]]) -> None:
    """To the bit, one after the other, and as many."""
    for (images, targets), (wanted, labels) in zip(batches, expected, strict=True):
        assert torch.equal(targets, labels)
        assert torch.equal(images, wanted)
