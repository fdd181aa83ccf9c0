"""Images per second of the loader under published recipes, against the loader without augmentation, in one run.

    python -m benchmarks.recipes --train /data/imagenet/train

Ours delivers finished batches on the device (bf16, channels_last, mixed, with soft targets). `plain` is the same crop,
flip and size and nothing else; a recipe and its plain loader are measured in turns, `--rounds` times, and the ratio is
that of the medians. Beside A1: DALI's own `auto_aug.rand_augment` in a hand-written pipeline (it has no MixUp or
CutMix), in the same turns, and timm's `create_loader` with its prefetcher and `FastCollateMixup`, once. A sample counts
once, however many views it has.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser

import lightning_gpuaug as gpuaug
from benchmarks.report import publish
from lightning_gpuaug.bench.loader_peers import cycle
from lightning_gpuaug.bench.timing import images_per_second

SIZE = 224
CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "recipes"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def published(name: str) -> gpuaug.TrainRecipe:
    """The recipe of a file in configs/recipes, without its repeats: they change what is read, not what is done."""
    parser = ArgumentParser()
    parser.add_argument("--recipe", type=gpuaug.TrainRecipe)
    written = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["data"]["train_recipe"]
    recipe = parser.instantiate_classes(parser.parse_object({"recipe": written})).recipe
    return dataclasses.replace(recipe, repeats=1)


def plain(recipe: gpuaug.TrainRecipe) -> gpuaug.TrainRecipe:
    """The same crop, flip and size, and nothing else; of a recipe with views, one view at the recipe's size."""
    return gpuaug.TrainRecipe(crop=recipe.crop, hflip=recipe.hflip, image_size=recipe.image_size)


class Ours:
    """The loader under a recipe."""

    def __init__(
        self, root: str, recipe: gpuaug.TrainRecipe, batch_size: int, threads: int, device: torch.device
    ) -> None:
        self.dm = gpuaug.ImageDataModule(
            train=root, batch_size=batch_size, image_size=SIZE, train_recipe=recipe, num_threads=threads,
            hw_decoder_load=1.0, dtype="bfloat16",
        )  # fmt: skip
        self._batches = cycle(self.dm.setup_for(device).train_dataloader())

    def __call__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        self.dm.teardown("bench")


class DaliRandAugment:
    """The pipeline people write by hand with DALI's RandAugment; finished float16 batches on the device."""

    def __init__(self, root: str, batch_size: int, threads: int, device: torch.device) -> None:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.auto_aug import rand_augment

        gpu = device.type == "cuda"

        @pipeline_def(
            batch_size=batch_size, num_threads=threads, device_id=device.index if gpu else None, seed=1,
            enable_conditionals=True,
        )  # fmt: skip
        def pipeline() -> Any:
            encoded, labels = fn.readers.file(file_root=root, random_shuffle=True, initial_fill=1024, name="reader")
            options = {"hw_decoder_load": 1.0} if gpu else {}
            images = fn.decoders.image_random_crop(encoded, device="mixed" if gpu else "cpu", **options)
            images = fn.resize(images, size=(SIZE, SIZE))
            images = rand_augment.rand_augment(images, n=2, m=9, shape=(SIZE, SIZE), fill_value=128)
            images = fn.crop_mirror_normalize(
                images, dtype=types.FLOAT16, output_layout="CHW", mean=[255 * m for m in MEAN],
                std=[255 * s for s in STD], mirror=fn.random.coin_flip(),
            )  # fmt: skip
            return images, labels

        self._pipe = pipeline()
        self._pipe.build()

    def __call__(self) -> Any:
        return self._pipe.run()

    def close(self) -> None:
        del self._pipe


def timm_rate(root: str, batch_size: int, workers: int, seconds: float, device: torch.device) -> float:
    """Images per second of timm's own loader with its A1 arguments."""
    from timm.data import FastCollateMixup, ImageDataset, create_loader

    data = ImageDataset(root)
    classes = len(data.reader.class_to_idx)
    mixup = FastCollateMixup(mixup_alpha=0.2, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=classes)
    loader = create_loader(
        data, (3, SIZE, SIZE), batch_size, is_training=True, use_prefetcher=True, auto_augment="rand-m7-mstd0.5-inc1",
        interpolation="bicubic", num_workers=workers, collate_fn=mixup, device=device, img_dtype=torch.bfloat16,
        persistent_workers=True,
    )  # fmt: skip
    batches = cycle(loader)
    return images_per_second(lambda: next(batches), batch_size, seconds, 2 * workers)


def in_turns(make: dict[str, Callable[[], Any]], batch_size: int, seconds: float, rounds: int) -> dict[str, float]:
    """The median rate of each, built anew every round."""
    found: dict[str, list[float]] = {name: [] for name in make}
    for _ in range(rounds):
        for name, build in make.items():
            step = build()
            found[name].append(images_per_second(step, batch_size, seconds))
            step.close()
            del step
    return {name: statistics.median(rates) for name, rates in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="folder of class folders; made-up JPEGs if left out")
    parser.add_argument(
        "--recipes", nargs="+", default=["timm_a1", "deit", "simclr", "dino"], help="of configs/recipes"
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--workers", type=int, nargs="*", default=[16], help="of timm's loader")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    source = None
    if args.train is None:
        source = gpuaug.Synthetic(length=max(2048, 2 * args.batch_size))
        args.train = str(Path(source.paths[0]).parent.parent)
    rows: list[list[Any]] = []

    def known(*row: Any) -> None:
        rows.append(list(row))
        print(rows[-1], flush=True)

    for threads in args.threads:
        for name in args.recipes:
            recipe = published(name)
            make: dict[str, Callable[[], Any]] = {
                "plain": lambda r=recipe, t=threads: Ours(args.train, plain(r), args.batch_size, t, device),
                name: lambda r=recipe, t=threads: Ours(args.train, r, args.batch_size, t, device),
            }
            if name == "timm_a1":
                make["dali"] = lambda t=threads: DaliRandAugment(args.train, args.batch_size, t, device)
            rates = in_turns(make, args.batch_size, args.seconds, args.rounds)
            base = rates["plain"]
            known(f"ours, plain ({name})", f"{threads} threads", base, "1")
            known(f"ours, {name}", f"{threads} threads", rates[name], f"{rates[name] / base:.3f} of plain")
            if "dali" in rates:
                ratio = f"{rates['dali'] / base:.3f} of plain"
                known("DALI, auto_aug.rand_augment(2, 9)", f"{threads} threads", rates["dali"], ratio)
    for workers in args.workers:
        value = timm_rate(args.train, args.batch_size, workers, args.seconds, device)
        known("timm create_loader, A1", f"{workers} workers", value, "-")
    publish(
        f"Recipes, batch {args.batch_size}, {SIZE} pixels, to {device.type}",
        ["loader", "CPU", "img/s", "ratio"],
        rows,
        args.json,
    )


if __name__ == "__main__":
    main()
