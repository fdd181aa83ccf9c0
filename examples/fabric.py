"""Lightning Fabric: rank and world go to `setup_for`, and the loaders need no `setup_dataloaders`.

python examples/fabric.py --train data/train
python examples/fabric.py --train data/train --devices 2
"""

from __future__ import annotations

import argparse

import timm
import torch
import torch.nn.functional as F
from lightning.fabric import Fabric

from lightning_gpuaug import ImageDataModule


def main(args: list[str] | None = None) -> int:
    """Train a small network and return the number of images that all ranks saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="folder with one sub-folder a class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--devices", type=int, default=1, help="one process each")
    options = parser.parse_args(args)

    fabric = Fabric(devices=options.devices)
    fabric.launch()
    fabric.seed_everything(0)

    data = ImageDataModule(train=options.train, batch_size=options.batch_size, image_size=options.image_size)
    data.setup_for(fabric.device, rank=fabric.global_rank, world=fabric.world_size)
    train = data.train_dataloader()  # this rank's share, on this rank's device

    network = timm.create_model("resnet10t", num_classes=data.num_classes)
    model, optimizer = fabric.setup(network, torch.optim.AdamW(network.parameters(), lr=1e-3))
    seen = 0
    for epoch in range(options.epochs):
        for images, targets in train:
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            seen += len(targets)
        fabric.print(f"epoch {epoch}: {len(train)} steps on each of {fabric.world_size} devices")
    data.teardown("fit")
    return int(fabric.all_reduce(torch.tensor(seen, device=fabric.device), reduce_op="sum"))


if __name__ == "__main__":
    main()
