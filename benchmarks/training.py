"""Training on real JPEGs against training on one cached batch: how much of the GPU the input pipeline costs.

    python -m benchmarks.training --train /data/imagenet/train --models resnet18 resnet50

Each measurement is a `Trainer.fit` in a process of its own, since CUDA reads CUDA_DEVICE_MAX_CONNECTIONS once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

SETTINGS = {"package (32 queues)": "32", "CUDA default (8 queues)": "8"}


def fit(args: argparse.Namespace) -> float:
    """Images per second of one fit, without its first `--warm-up` steps."""
    import lightning.pytorch as pl
    import torch

    import lightning_gpuaug as gpuaug

    class Stopwatch(pl.Callback):
        begin = end = 0.0

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, step: int) -> None:
            if trainer.global_step == args.warm_up:
                torch.cuda.synchronize()
                self.begin = time.perf_counter()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == args.steps:
                torch.cuda.synchronize()
                self.end = time.perf_counter()

    warnings.filterwarnings("ignore")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    samples = (args.steps + 8) * args.batch_size
    if args.data == "cached":
        train: gpuaug.sources.Source = gpuaug.Synthetic(length=samples, num_classes=1000, mode="cached")
    else:
        folder = gpuaug.ImageFolder(args.train)
        # The same files again and again, in one long epoch: epoch ends are not what is measured here.
        listing = Path(args.work) / "list.txt"
        lines = [f"{path} {label}\n" for path, label in zip(folder.paths, folder.targets, strict=True)]
        listing.write_text("".join(lines[i % len(lines)] for i in range(samples)))
        train = gpuaug.FileList(listing)
    data = gpuaug.ImageDataModule(train=train, batch_size=args.batch_size, dtype="bfloat16", num_threads=args.threads)
    model = gpuaug.Classifier(args.fit, num_classes=1000, compile=args.compile)
    watch = Stopwatch()
    trainer = pl.Trainer(
        max_steps=args.steps, max_epochs=-1, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[watch],
        default_root_dir=args.work, log_every_n_steps=50,
    )  # fmt: skip
    trainer.fit(model, data)
    return (args.steps - args.warm_up) * args.batch_size / (watch.end - watch.begin)


def in_a_process(args: argparse.Namespace, model: str, data: str, compiled: bool, queues: str) -> float:
    command = [
        sys.executable, "-m", "benchmarks.training", "--fit", model, "--data", data, "--train", args.train,
        "--batch-size", args.batch_size, "--steps", args.steps, "--warm-up", args.warm_up, "--threads", args.threads,
        "--work", args.work, *(["--compile"] if compiled else []),
    ]  # fmt: skip
    env = {**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": queues}
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["img_per_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", required=True, help="folder of class folders of JPEGs")
    parser.add_argument("--models", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--modes", nargs="+", default=["eager", "compile"])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=40)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--json", help="write the table here")
    parser.add_argument("--work", default="/tmp", help="folder for scratch files")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    parser.add_argument("--data", choices=["cached", "real"], help=argparse.SUPPRESS)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit:
        print(json.dumps({"img_per_s": fit(args)}))
        return
    from benchmarks.report import publish

    rows = []
    for model in args.models:
        for mode in args.modes:
            for setting, queues in SETTINGS.items():
                rates = {d: in_a_process(args, model, d, mode == "compile", queues) for d in ("cached", "real")}
                rows.append([model, mode, setting, rates["cached"], rates["real"], rates["real"] / rates["cached"]])
                print(rows[-1], flush=True)
    publish(
        f"Training through Trainer.fit, bf16-mixed, channels_last, batch {args.batch_size}",
        ["model", "mode", "queues", "cached img/s", "real img/s", "real / cached"],
        rows,
        args.json,
    )


if __name__ == "__main__":
    main()
