"""Whether augmentation helps as it should: digits trained with timm's augmentation on the CPU, with ours, and without.

    python -m benchmarks.augmentation_helps [--seeds 5] [--json helps.json]

scikit-learn's handwritten digits as 32 × 32 JPEGs: 5 of each class to learn from, the other 1,747 to be tested on.
Every arm has the same small network, initial weights (by seed), number of steps and schedule; only the way from a file
to a batch differs. The arms draw from different random generators, so single runs differ, and what is compared is the
mean over seeds. Needs no GPU; the CPU arm runs timm's own `create_transform` in the training process.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from benchmarks.report import publish
from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.cli.digits import IMAGE_SIZE, encode
from lightning_gpuaug.recipe import EvalRecipe, RandomErasing, RandomResizedCrop, TrainRecipe

# timm's weighted set: mostly rotations and shears, as hands vary; hardly any inversion, which no pen does.
POLICY = "rand-m5-mstd0.5-tweights"
SCALE, RATIO = (0.7, 1.0), (0.8, 1.25)
ERASING = 0.25
PER_CLASS = 5
BATCH = 50
ARMS = ("none", "timm", "ours")

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


def write_folders(root: Path, seed: int) -> tuple[Path, Path]:
    """`train` and `test` folders of class folders; the split depends on the seed."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    taken = dict.fromkeys(range(10), 0)
    for index in order.tolist():
        label = int(digits.target[index])
        stage = "train" if taken[label] < PER_CLASS else "test"
        taken[label] += 1
        folder = root / stage / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index:04d}.jpg").write_bytes(encode(digits.images[index]))
    return root / "train", root / "test"


def network() -> nn.Module:
    """A small convolutional network, 72 k weights."""

    def block(inside: int, outside: int) -> list[nn.Module]:
        return [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]

    return nn.Sequential(
        *block(3, 16), nn.MaxPool2d(2), *block(16, 32), nn.MaxPool2d(2), *block(32, 64), *block(64, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def our_batches(train: Path, epochs: int, seed: int, recipe: TrainRecipe) -> Batches:
    data = ImageDataModule(
        train=train, batch_size=BATCH, image_size=IMAGE_SIZE, train_recipe=recipe, seed=seed, num_threads=1
    )
    data.setup_for("cpu")
    for _ in range(epochs):
        yield from data.train_dataloader()
    data.teardown("fit")


def timm_batches(train: Path, epochs: int, seed: int) -> Batches:
    import random

    from timm.data.transforms_factory import create_transform
    from torchvision.datasets import ImageFolder

    random.seed(seed)
    np.random.seed(seed)  # timm draws from the global generator
    transform = create_transform(
        IMAGE_SIZE, is_training=True, scale=SCALE, ratio=RATIO, hflip=0.0, color_jitter=None, auto_augment=POLICY,
        interpolation="bilinear", re_prob=ERASING, re_mode="const",
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(
        ImageFolder(str(train), transform), BATCH, shuffle=True, drop_last=True,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    for _ in range(epochs):
        yield from loader


def batches_of(arm: str, train: Path, epochs: int, seed: int) -> Batches:
    if arm == "timm":
        return timm_batches(train, epochs, seed)
    plain = TrainRecipe(crop=None, hflip=0.0)
    augmented = TrainRecipe(
        crop=RandomResizedCrop(SCALE, RATIO),
        hflip=0.0,
        auto=POLICY,
        erasing=RandomErasing(ERASING, (0.02, 1 / 3), (0.3, 1 / 0.3)),
    )
    return our_batches(train, epochs, seed, augmented if arm == "ours" else plain)


def accuracy(model: nn.Module, test: Path) -> float:
    """Share of the test images that are recognised, 0..1."""
    data = ImageDataModule(
        val=test, batch_size=250, image_size=IMAGE_SIZE, eval_recipe=EvalRecipe(crop_ratio=1.0), num_threads=1
    )
    data.setup_for("cpu")
    model.eval()
    right = rows = 0
    with torch.no_grad():
        for images, labels in data.val_dataloader():
            right += int((model(images).argmax(1) == labels).sum())
            rows += len(labels)
    data.teardown("validate")
    return right / rows


def train_once(arm: str, train: Path, test: Path, epochs: int, seed: int) -> float:
    """Test accuracy after training one network."""
    torch.manual_seed(seed)
    model = network().train()
    steps = epochs * (10 * PER_CLASS // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.15)
    for images, labels in batches_of(arm, train, epochs, seed):
        loss = nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return accuracy(model, test)


def difference(ours: list[float], theirs: list[float]) -> tuple[float, float]:
    """Mean of the differences seed by seed (same split, same initial weights), and its standard error."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm, at least 2 (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=240, help="passes over the 50 images (default: %(default)s)")
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"--seeds must be at least 2, to tell a difference from noise, got {args.seeds}")
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    seconds = dict.fromkeys(ARMS, 0.0)
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            train, test = write_folders(Path(folder), seed)
            for arm in ARMS:
                begin = time.perf_counter()
                found[arm].append(train_once(arm, train, test, args.epochs, seed))
                seconds[arm] += time.perf_counter() - begin
                print(f"seed {seed}, {arm}: {found[arm][-1]:.4f}", flush=True)
    rows: list[list[Any]] = [
        [
            arm,
            f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}",
            " ".join(f"{value:.4f}" for value in values),
            seconds[arm] / args.seeds,
        ]
        for arm, values in found.items()
    ]
    title = f"Test accuracy, {args.seeds} seeds, {args.epochs} epochs of {10 * PER_CLASS} digits, {POLICY}"
    publish(title, ["augmentation", "mean ± std over seeds", "each seed", "s a run"], rows, args.json)
    for name, other in (("timm", "timm"), ("none", "none")):
        mean, error = difference(found["ours"], found[other])
        print(f"ours - {name}, seed by seed: {mean:+.4f} ± {error:.4f} (standard error)")


if __name__ == "__main__":
    main()
