"""The same batches without Lightning: `setup_for` says what a Trainer would have said.

python examples/plain_loop.py --train data/train --val data/val
"""

from __future__ import annotations

import argparse

import timm
import torch
import torch.nn.functional as F

from lightning_gpuaug import ImageDataModule


def main(args: list[str] | None = None) -> float:
    """Train a small network and return its validation accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="folder with one sub-folder a class")
    parser.add_argument("--val", required=True, help="the same, for validation")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args(args)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = ImageDataModule(
        train=options.train, val=options.val, batch_size=options.batch_size, image_size=options.image_size, seed=0
    )
    data.setup_for(device)
    train, val = data.train_dataloader(), data.val_dataloader()

    model = timm.create_model("resnet10t", num_classes=data.num_classes)
    model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accuracy = 0.0
    for epoch in range(options.epochs):
        model.train()
        for images, targets in train:  # a new order each time; `len(train)` batches, on `device`, normalised
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        right = seen = 0
        with torch.inference_mode():
            for images, targets in val:  # every image exactly once
                right += int((model(images).argmax(1) == targets).sum())
                seen += len(targets)
        accuracy = right / seen
        print(f"epoch {epoch}: {len(train)} batches, validation accuracy {accuracy:.3f} on {seen} images")
    data.teardown("fit")
    return accuracy


if __name__ == "__main__":
    main()
