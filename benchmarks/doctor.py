"""A staged experiment: runs that are each bound by another thing, and what `InputDoctor` says of them.

    python -m benchmarks.doctor --train /data/imagenet/train

Every run is trained twice: as staged, where the doctor names cause, knob and gain, and again with that knob turned and
nothing else changed. The staged things: `read`: each file comes after a wait (slow storage), two DataLoader workers;
`decode`: `ImageDataModule` decoding on the CPU with two threads; `hardware`: decoding on the GPU without its JPEG
engines (where it has any); `augment`: a per-pixel loop in Python, two DataLoader workers; `model`: a model slower than
any data, where the knob is to have no input pipeline at all, which is what one cached batch is.

The model is matrix products of a set time on a GPU, and a sleep on a CPU, so that the headroom is known: `--headroom`
times what the pipeline makes alone. Exit code 1 if a cause or knob is wrong, or a gain off by more than `--tolerance`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import lightning_gpuaug as gpuaug
from lightning_gpuaug.callbacks.verdict import Verdict


class Files(Dataset[tuple[torch.Tensor, int]]):
    """Images as people write it: wait for the storage, Pillow, a transform in Python."""

    def __init__(self, paths: list[str], size: int, wait: float, loop: int) -> None:
        self.paths, self.size, self.wait, self.loop = paths, size, wait, loop

    def __len__(self) -> int:
        """More than any run takes."""
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """(size, size, 3) uint8 and a label."""
        if self.wait:
            time.sleep(self.wait)
        with Image.open(self.paths[index % len(self.paths)]) as image:
            image.draft("RGB", (self.size, self.size))  # a cheap decode: it is not what these stages are about
            pixels = np.asarray(image.convert("RGB").resize((self.size, self.size))).copy()
        flat = pixels.reshape(-1)
        for i in range(self.loop):
            flat[i % flat.size] = 255 - int(flat[i % flat.size])
        return torch.from_numpy(pixels), index % 10


class Model(pl.LightningModule):
    """A step of about `seconds`: matrix products on a GPU, a sleep on a CPU."""

    def __init__(self, seconds: float, device: torch.device) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seconds, self.products = seconds, 0
        if device.type == "cuda":
            self.matrix = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
            self.products = max(1, round(seconds / _seconds_a_product(self.matrix)))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.products:
            for _ in range(self.products):
                torch.mm(self.matrix, self.matrix)
        else:
            time.sleep(self.seconds)
        return self.layer(batch[0].flatten()[:1].float()).sum()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def _seconds_a_product(matrix: torch.Tensor) -> float:
    for count in (100, 200):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


@dataclass(frozen=True)
class Settings:
    """How a stage's data is loaded: the knobs."""

    batch: int
    num_workers: int = 2
    num_threads: int = 2
    decode: str = "cpu"
    hw_decoder_load: float = 1.0
    cached: bool = False


@dataclass(frozen=True)
class Stage:
    """A run with something wrong.

    Attributes:
        cause: what the doctor should say.
        knobs: any of these is a right answer.
        settings: as staged.
        data: loads it.
        model_seconds: of a step; None for `--headroom` times as fast as the data.
    """

    cause: str
    knobs: tuple[str, ...]
    settings: Settings
    data: Callable[[Settings], dict[str, Any]]
    model_seconds: float | None = None


def stages(args: argparse.Namespace, paths: list[str], device: torch.device) -> dict[str, Stage]:
    def files(wait: float, loop: int) -> Callable[[Settings], dict[str, Any]]:
        def data(settings: Settings) -> dict[str, Any]:
            loader = DataLoader(
                Files(paths, args.file_size, wait, loop), settings.batch, shuffle=False, drop_last=True,
                num_workers=settings.num_workers, pin_memory=device.type == "cuda",
            )  # fmt: skip
            return {"train_dataloaders": loader}

        return data

    def ours(settings: Settings) -> dict[str, Any]:
        source: gpuaug.sources.Source
        if settings.cached:
            source = gpuaug.Synthetic(length=len(paths), mode="cached")
        else:
            listing = Path(args.work) / "doctor.txt"
            listing.write_text("".join(f"{path} {i % 10}\n" for i, path in enumerate(paths)))
            source = gpuaug.FileList(listing)
        module = gpuaug.ImageDataModule(
            train=source, batch_size=settings.batch, image_size=args.image_size, decode=settings.decode,  # type: ignore[arg-type]
            num_threads=settings.num_threads, hw_decoder_load=settings.hw_decoder_load, dtype="bfloat16",
        )  # fmt: skip
        return {"datamodule": module}

    small = Settings(args.batch // 2)
    gpu = dataclasses.replace(Settings(args.batch), decode="gpu", num_threads=4) if device.type == "cuda" else None
    found = {
        "read": Stage("read", ("num_workers",), small, files(args.wait, 0)),
        "decode": Stage("decode", ("num_threads", "decode"), Settings(args.batch, num_threads=args.threads), ours),
        "augment": Stage("augment", ("num_workers",), small, files(0.0, args.loop)),
        "model": Stage("model", (), gpu or Settings(args.batch), ours, args.model_seconds),
    }
    if gpu is not None and torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0), (10, 3)):
        without = dataclasses.replace(gpu, hw_decoder_load=0.0, batch=4 * args.batch)
        found["hardware"] = Stage("decode", ("hw_decoder_load",), without, ours)
    return found


def alone(data: dict[str, Any], device: torch.device, batch: int, seconds: float) -> float:
    """Images per second of the data alone."""
    module = data.get("datamodule")
    loader = data["train_dataloaders"] if module is None else module.setup_for(device).train_dataloader()
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in range(6):
        next(batches)
    begin, count = time.perf_counter(), 0
    while count < 4 or time.perf_counter() - begin < seconds:
        next(batches)
        count += 1
    if device.type == "cuda":
        torch.cuda.synchronize()
    rate = count * batch / (time.perf_counter() - begin)
    del batches
    if module is not None:
        module.teardown("fit")
    return rate


def fit(model: Model, data: dict[str, Any], device: torch.device, batches: int, callbacks: list[pl.Callback]) -> None:
    trainer = pl.Trainer(
        accelerator="gpu" if device.type == "cuda" else "cpu", devices=1, max_steps=batches, max_epochs=-1,
        logger=False, callbacks=callbacks, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, **data)


def turned(settings: Settings, verdict: Verdict) -> Settings:
    """The settings that the doctor recommends; without the input pipeline where it sees nothing to turn."""
    if verdict.cause == "model":
        return dataclasses.replace(settings, cached=True)
    name, _, _, value = (verdict.knob or "").split()
    kind = type(getattr(settings, name))
    return dataclasses.replace(settings, **{name: kind(value)})


def examine(args: argparse.Namespace, stage: Stage, device: torch.device) -> tuple[Verdict, Model]:
    """What the doctor says of a stage, and the model that was trained."""
    seconds = stage.model_seconds
    if seconds is None:
        rate = alone(stage.data(stage.settings), device, stage.settings.batch, args.seconds)
        seconds = stage.settings.batch / (rate * args.headroom)
    model = Model(seconds, device)
    doctor = gpuaug.InputDoctor(args.every, args.stock, probe_seconds=args.seconds)
    # The longest epoch the files give may be shorter than a check-up, so a few batches more than it needs.
    fit(model, stage.data(stage.settings), device, args.every + args.stock + 4, [doctor])
    if doctor.verdict is None:
        raise SystemExit("no check-up took place: more images are needed (--train), or a smaller --every or --batch")
    return doctor.verdict, model


def confirm(args: argparse.Namespace, stage: Stage, verdict: Verdict, model: Model, device: torch.device) -> float:
    """Images per second once the knob is turned."""
    throughput = gpuaug.Throughput(warmup_batches=args.every // 2, flops_per_image=None)
    settings = turned(stage.settings, verdict)
    fit(model, stage.data(settings), device, args.every * 2, [throughput])
    rate = throughput.summary().img_per_s_device
    assert rate is not None
    return rate


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--train", help="folder of class folders of JPEGs; made-up ones if left out")
    made.add_argument("--stages", nargs="+", default=["read", "decode", "augment", "model", "hardware"])
    made.add_argument("--batch", type=int, default=64, help="half of it for the DataLoaders")
    made.add_argument("--image-size", type=int, default=224)
    made.add_argument("--file-size", type=int, default=128, help="of the DataLoaders' images")
    made.add_argument("--wait", type=float, default=0.01, help="seconds before each file of the slow storage")
    made.add_argument("--loop", type=int, default=40_000, help="pixels that the Python augmentation touches")
    made.add_argument("--threads", type=int, default=2, help="of the CPU decoding")
    made.add_argument("--model-seconds", type=float, default=0.1, help="of the slow model's step")
    made.add_argument("--headroom", type=float, default=3.0, help="the other models, over the staged data")
    made.add_argument("--every", type=int, default=32, help="batches before the check-up")
    made.add_argument("--stock", type=int, default=8, help="batches of the check-up")
    made.add_argument("--seconds", type=float, default=1.0, help="of each probe")
    made.add_argument("--tolerance", type=float, default=0.2)
    made.add_argument("--work", default="/tmp", help="folder for scratch files")
    made.add_argument("--json", help="write the table here")
    return made


def image_source(train: str | None) -> gpuaug.sources.Source:
    """The images; made-up files live as long as their source does."""
    return gpuaug.ImageFolder(train) if train is not None else gpuaug.Synthetic(length=512)


def main() -> int:
    from benchmarks.report import publish

    args = parser().parse_args()
    warnings.filterwarnings("ignore")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    # One long epoch, without its ends; the fastest stage has batches four times as large.
    source = image_source(args.train)
    needed = 4 * args.batch * (2 * args.every + 2 * args.stock + 32)
    paths = [str(path) for path in itertools.islice(itertools.cycle(source.paths), max(needed, len(source)))]
    rows, wrong, begin = [], 0, time.perf_counter()
    for name, stage in stages(args, paths, device).items():
        if name not in args.stages:
            continue
        verdict, model = examine(args, stage, device)
        rate = verdict.img_per_s
        knob = (verdict.knob or "none").split(" ")[0]
        right = verdict.cause == stage.cause and (knob in stage.knobs or (not stage.knobs and verdict.knob is None))
        error = float("nan")
        if right:
            rate = confirm(args, stage, verdict, model, device)
            error = verdict.predicted_img_per_s / rate - 1.0
        # Also of the gain itself, where that is more than what the figures vary by.
        gain = rate / verdict.img_per_s - 1.0
        of_gain = abs(verdict.gain - gain) / gain if gain > 0.1 else abs(verdict.gain - gain)
        fine = right and abs(error) <= args.tolerance and of_gain <= args.tolerance
        wrong += not fine
        print(f"{name}: {verdict.text}")
        for note in verdict.notes:
            print(f"  {note}")
        lost = {part: round(share, 3) for part, share in verdict.lost.items() if share > 0}
        print(
            f"  lost {json.dumps(lost)}; with the knob turned {rate:,.0f} img/s [{time.perf_counter() - begin:.0f} s]"
        )
        sys.stdout.flush()
        rows.append(
            [name, verdict.cause, verdict.knob or "none", verdict.img_per_s, verdict.gain, gain, of_gain, error, fine]
        )
    publish(
        f"InputDoctor on staged runs, {device.type}",
        ["stage", "cause", "knob", "img/s", "predicted gain", "gain", "off by", "rate off by", "right"],
        rows,
        args.json,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
