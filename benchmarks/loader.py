"""Images per second of the loader against a torchvision DataLoader and a raw DALI pipeline, in one run.

    python -m benchmarks.loader --train /data/imagenet/train

Every loader delivers random-resized-crop 224 batches: torchvision's and ours finished (normalised; ours bf16,
channels_last, on the device), raw DALI's as uint8 on the device (the hand-written pipeline of DALI's own examples:
`fn.readers.file`, `decoders.image_random_crop`, `resize`).
Ours and raw DALI are measured in turns, `--rounds` times; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import lightning_gpuaug as gpuaug
from benchmarks.report import publish

SIZE = 224


def cycle(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def rate(next_batch: Callable[[], Any], batch_size: int, seconds: float, warm_up: int = 12) -> float:
    """Images per second over about `seconds`, after `warm_up` batches."""
    for _ in range(warm_up):
        next_batch()
    _synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(4):
            next_batch()
        count += 4
    _synchronize()
    return count * batch_size / (time.perf_counter() - begin)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def torchvision_rate(root: str, batch_size: int, workers: int, seconds: float, device: torch.device) -> float:
    from torchvision import datasets
    from torchvision import transforms as T

    steps = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToTensor()]
    steps.append(T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    data = datasets.ImageFolder(root, T.Compose(steps))
    loader = torch.utils.data.DataLoader(
        data, batch_size, shuffle=True, num_workers=workers, pin_memory=device.type == "cuda", drop_last=True,
        persistent_workers=True, prefetch_factor=4,
    )  # fmt: skip
    batches = cycle(loader)
    return rate(lambda: [t.to(device, non_blocking=True) for t in next(batches)], batch_size, seconds, 2 * workers)


def raw_dali(root: str, batch_size: int, threads: int, share: float, device: torch.device) -> Callable[[], Any]:
    """The pipeline people write by hand."""
    from nvidia.dali import fn, pipeline_def

    gpu = device.type == "cuda"

    @pipeline_def(batch_size=batch_size, num_threads=threads, device_id=device.index if gpu else None, seed=1)
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(file_root=root, random_shuffle=True, initial_fill=1024, name="reader")
        options = {"hw_decoder_load": share} if gpu else {}
        images = fn.decoders.image_random_crop(encoded, device="mixed" if gpu else "cpu", **options)
        return fn.resize(images, size=(SIZE, SIZE)), labels

    pipe = pipeline()
    pipe.build()
    return pipe.run


def ours(root: str, batch_size: int, threads: int, share: float | str, device: torch.device) -> Callable[[], Any]:
    dm = gpuaug.ImageDataModule(
        train=root, batch_size=batch_size, num_threads=threads, hw_decoder_load=share, dtype="bfloat16"
    )  # type: ignore[arg-type]
    batches = cycle(dm.setup_for(device).train_dataloader())
    step = lambda: next(batches)  # noqa: E731
    step.data = dm  # type: ignore[attr-defined]
    return step


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
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    source = None
    if args.train is None:
        source = gpuaug.Synthetic(length=2048)
        args.train = str(Path(source.paths[0]).parent.parent)
    rows: list[list[Any]] = []
    for workers in args.workers:
        value = torchvision_rate(args.train, args.batch_size, workers, args.seconds, device)
        rows.append(["torchvision DataLoader", f"{workers} workers", "-", value, "-"])
        print(rows[-1], flush=True)
    shares: list[Any] = [1.0, "auto"] if device.type == "cuda" else [1.0]
    for threads in args.threads:
        for share in shares:
            # DALI's own default share stands for "auto" in the raw pipeline, which cannot measure.
            raw_share = 0.9 if share == "auto" else share
            found: dict[str, list[float]] = {"raw": [], "ours": []}
            for _ in range(args.rounds):
                step = raw_dali(args.train, args.batch_size, threads, raw_share, device)
                found["raw"].append(rate(step, args.batch_size, args.seconds))
                del step
                step = ours(args.train, args.batch_size, threads, share, device)
                found["ours"].append(rate(step, args.batch_size, args.seconds))
                step.data.teardown("bench")  # type: ignore[attr-defined]
                del step
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
