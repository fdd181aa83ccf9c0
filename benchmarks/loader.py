"""Images per second of the loader against a torchvision DataLoader and a raw DALI pipeline, in one run.

    python -m benchmarks.loader --train /data/imagenet/train

Several numbers of threads and shares of the hardware decoder, one after the other; `gpuaug bench loader` measures one
configuration, with its stages. Every loader delivers random-resized-crop 224 batches: torchvision's and ours finished
(normalised; ours bf16, channels_last, on the device), raw DALI's as uint8 on the device. Ours and raw DALI are measured
in turns, `--rounds` times; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

import torch

import lightning_gpuaug as gpuaug
from benchmarks.report import publish
from lightning_gpuaug.bench.loader import device_of, ours, work_of
from lightning_gpuaug.bench.loader_peers import Work, raw_dali, torchvision
from lightning_gpuaug.bench.timing import images_per_second
from lightning_gpuaug.sources import Source

SIZE = 224


def work(source: Source, batch_size: int, device: torch.device) -> Work:
    """What all of them have to do; workers, threads and share are put in later."""
    dm = gpuaug.ImageDataModule(train=source, batch_size=batch_size, image_size=SIZE, hw_decoder_load=1.0)
    found = work_of(dm.setup_for(device).train_dataloader(), workers=0)
    dm.teardown("bench")
    return found


def our_rate(source: Source, task: Work, share: float | str, seconds: float) -> float:
    dm = gpuaug.ImageDataModule(
        train=source, batch_size=task.batch_size, image_size=SIZE, num_threads=task.threads, hw_decoder_load=share,
        dtype="bfloat16",
    )  # type: ignore[arg-type]  # fmt: skip
    dm.setup_for(task.device)
    try:
        with ours(dm) as step:
            return images_per_second(step, task.batch_size, seconds)
    finally:
        dm.teardown("bench")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", help="folder of class folders; made-up JPEGs if left out")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--workers", type=int, nargs="*", default=[4, 16], help="of torchvision's DataLoader")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    device = device_of("auto")
    source = gpuaug.ImageFolder(args.train) if args.train is not None else gpuaug.Synthetic(length=2048)
    task = work(source, args.batch_size, device)
    rows: list[list[Any]] = []
    for workers in args.workers:
        with torchvision(dataclasses.replace(task, workers=workers)) as step:
            value = images_per_second(step, args.batch_size, args.seconds, max(4, 2 * workers))
        rows.append(["torchvision DataLoader", f"{workers} workers", "-", value, "-"])
        print(rows[-1], flush=True)
    shares: list[Any] = [1.0, "auto"] if device.type == "cuda" else [1.0]
    for threads in args.threads:
        for share in shares:
            # DALI's own default share stands for "auto" in the raw pipeline, which cannot measure.
            raw_share = 0.9 if share == "auto" else share
            now = dataclasses.replace(task, threads=threads, hw_decoder_load=raw_share)
            found: dict[str, list[float]] = {"raw": [], "ours": []}
            for _ in range(args.rounds):
                with raw_dali(now) as step:
                    found["raw"].append(images_per_second(step, args.batch_size, args.seconds))
                found["ours"].append(our_rate(source, now, share, args.seconds))
            raw, own = (statistics.median(found[name]) for name in ("raw", "ours"))
            rows.append(["raw DALI", f"{threads} threads", raw_share, raw, "1"])
            rows.append(["lightning_gpuaug", f"{threads} threads", share, own, f"{own / raw:.3f} of raw DALI"])
            print(*rows[-2:], flush=True)
    publish(
        f"Loader, batch {args.batch_size}, RandomResizedCrop {SIZE}, to {device.type}",
        ["loader", "CPU", "hardware JPEG share", "img/s", "ratio"],
        rows,
        args.json,
    )


if __name__ == "__main__":
    main()
