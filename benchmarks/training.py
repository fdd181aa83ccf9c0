"""Training on real JPEGs against training on one cached batch: how much of the GPU the input pipeline costs.

    python -m benchmarks.training --train /data/imagenet/train --models resnet18 resnet50

Each number of hardware queues is measured in a process of its own: CUDA reads CUDA_DEVICE_MAX_CONNECTIONS once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

SETTINGS = {"32": "32 (the package's)", "8": "8 (CUDA's default)"}
MODES: dict[str, Any] = {"eager": False, "compile": True, "reduce-overhead": "reduce-overhead"}
"""The classifier's `compile`: "reduce-overhead" is torch.compile with CUDA graphs."""


def fit(args: argparse.Namespace, model: str, data: str, mode: str) -> float:
    """Images per second of one fit, without its first `--warm-up` steps."""
    import lightning.pytorch as pl
    import torch

    import lightning_gpuaug as gpuaug
    from lightning_gpuaug.bench.stopwatch import Stopwatch

    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    samples = (args.steps + 8) * args.batch_size
    if data == "cached":
        train: gpuaug.sources.Source = gpuaug.Synthetic(length=samples, num_classes=1000, mode="cached")
    else:
        folder = gpuaug.ImageFolder(args.train)
        # The same files again and again, in one long epoch: epoch ends are not what is measured here.
        listing = Path(args.work) / "list.txt"
        lines = [f"{path} {label}\n" for path, label in zip(folder.paths, folder.targets, strict=True)]
        listing.write_text("".join(lines[i % len(lines)] for i in range(samples)))
        train = gpuaug.FileList(listing)
    threads = args.threads if args.threads == "auto" else int(args.threads)
    module = gpuaug.ImageDataModule(train=train, batch_size=args.batch_size, dtype="bfloat16", num_threads=threads)
    watch = Stopwatch(args.warm_up, args.steps)
    trainer = pl.Trainer(
        max_steps=args.steps, max_epochs=-1, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[watch],
        default_root_dir=args.work, log_every_n_steps=50,
    )  # fmt: skip
    trainer.fit(gpuaug.Classifier(model, num_classes=1000, compile=MODES[mode]), module)
    return (args.steps - args.warm_up) * args.batch_size / watch.seconds


def in_a_process(args: argparse.Namespace, queues: str) -> list[tuple[str, str, float, float]]:
    """(model, mode, cached img/s, real img/s) of all fits under one number of queues."""
    command = [
        sys.executable, "-m", "benchmarks.training", "--child", "--train", args.train, "--batch-size", args.batch_size,
        "--steps", args.steps, "--warm-up", args.warm_up, "--threads", args.threads, "--work", args.work,
        "--models", *args.models, "--modes", *args.modes, "--rounds", args.rounds,
    ]  # fmt: skip
    env = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": queues}
    errors = Path(args.work) / f"training-{queues}.err"
    found = []
    with (
        errors.open("w") as sink,
        subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.PIPE, stderr=sink, text=True) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("["):
                found.append(tuple(json.loads(line)))
                print(f"{queues} queues: {line.strip()}", flush=True)  # a run cut short still tells what it found
    if child.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{errors.read_text()[-3000:]}")
    return found


def measure(args: argparse.Namespace) -> None:
    for model in args.models:
        for mode in args.modes:
            found: dict[str, list[float]] = {"cached": [], "real": []}
            for _ in range(args.rounds):  # in turns: what the machine does besides meets both
                for data, rates in found.items():
                    rates.append(fit(args, model, data, mode))
            medians = [statistics.median(rates) for rates in found.values()]
            print(json.dumps([model, mode, *medians]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="folder of class folders of JPEGs")
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--threads", default="auto", help="of DALI, or auto")
    parser.add_argument("--rounds", type=int, default=1, help="fits of each kind; the ratio is that of the medians")
    parser.add_argument("--json", help="write the table here")
    parser.add_argument("--work", default="/tmp", help="folder for scratch files")
    parser.add_argument("--queues", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measure(args)
        return
    from benchmarks.report import publish

    rows = [
        [model, mode, SETTINGS[queues], cached, real, real / cached]
        for queues in args.queues
        for model, mode, cached, real in in_a_process(args, queues)
    ]
    publish(
        f"Training through Trainer.fit, bf16-mixed, channels_last, batch {args.batch_size}",
        ["model", "mode", "queues", "cached img/s", "real img/s", "real / cached"],
        rows,
        args.json,
    )


if __name__ == "__main__":
    main()
