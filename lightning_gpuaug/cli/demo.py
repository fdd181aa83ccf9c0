"""`gpuaug demo`: the whole pipeline on real pictures in a minute, with one table of what it did."""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.errors import OK, UsageError, run_command

if TYPE_CHECKING:
    import torch

    from lightning_gpuaug.classifier import Classifier
    from lightning_gpuaug.data import ImageDataModule
    from lightning_gpuaug.recipe import Normalize

_PREVIEW_IMAGES = 40


@dataclass(frozen=True)
class DemoResult:
    """What the closing table shows.

    Attributes:
        val_top1: share of validation images whose best guess was right, 0..1.
        images_per_second: training images a second, waiting included; None when the run was too short to tell.
        data_wait_share: share of training time spent waiting for a batch, 0..1; None likewise.
        decoded_on: "cpu" or "gpu".
        augment_backend: what ran the augmentation op: "cuda", "cpu" or "reference" (plain torch).
        device: where the model trained.
        seconds: whole run, from the first image written.
        files: what was written.
    """

    val_top1: float
    images_per_second: float | None
    data_wait_share: float | None
    decoded_on: str
    augment_backend: str
    device: str
    seconds: float
    files: list[str]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug demo",
        description="Train a small network on handwritten digits through the whole pipeline: JPEG files, DALI, native "
        "augmentation, Lightning. Uses a GPU when there is one; under three minutes on two CPU cores.",
        epilog="example: gpuaug demo --out gpuaug_demo --epochs 6",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpuaug_demo"), help="folder to write to (default: %(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=6, help="passes over the training images (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="images in a batch (default: %(default)s)")
    parser.add_argument("--model", default="resnet10t", help="any timm model (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of split, order, weights, augmentation (default: %(default)s)"
    )
    parser.add_argument(
        "--limit", type=int, metavar="N", help="use only the first N of the 1,797 images, at least 30 (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print the closing table as JSON, and nothing else")
    return parser


def _require(option: str, value: int, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and value > most):
        rule = f"at least {least}" if most is None else f"in {least}..{most}"
        raise UsageError(f"{option} must be {rule}, got {value}")


def _check(args: argparse.Namespace) -> None:
    """Refuse what cannot work, before anything is written.

    Raises:
        UsageError: in one line that names the option, the rule and the value.
    """
    from lightning_gpuaug.cli.digits import FEWEST_IMAGES, NUM_IMAGES, count_training

    _require("--epochs", args.epochs, 1)
    _require("--seed", args.seed, 0, 2**32 - 1)
    if args.limit is not None:
        _require("--limit", args.limit, FEWEST_IMAGES, NUM_IMAGES)
    images = count_training(args.limit)
    if not 2 <= args.batch_size <= images:  # batch normalisation wants two
        raise UsageError(f"--batch-size must be in 2..{images}, the number of training images, got {args.batch_size}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        refusal = None if os.access(args.out, os.W_OK | os.X_OK) else "Permission denied"
    except OSError as error:
        refusal = error.strerror
    if refusal is not None:
        raise UsageError(f"--out must be a folder that can be written to, got {args.out} ({refusal})")


def _make_model(args: argparse.Namespace) -> Classifier:
    """The network to train, once it has shown that it takes the images.

    Raises:
        UsageError: timm does not know it, or it wants other images.
    """
    import torch

    from lightning_gpuaug.classifier import Classifier
    from lightning_gpuaug.cli.digits import IMAGE_SIZE, NUM_CLASSES

    try:
        model = Classifier(
            model=args.model,
            num_classes=NUM_CLASSES,
            optimizer="adamw",
            lr=2e-3,
            weight_decay=0.05,
            warmup_epochs=0.1 * args.epochs,
            label_smoothing=0.1,
        )
    except ValueError as error:
        raise UsageError(f"--{error}") from error  # "model must be a timm model name, got …"
    model.eval()
    try:
        with torch.inference_mode():
            model(torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE))
    except Exception as error:  # whatever a network may have against a small image
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        rule = f"take images of {IMAGE_SIZE} × {IMAGE_SIZE} pixels"
        raise UsageError(f"--model must {rule}, got {args.model} ({reason})") from error
    return model.train()


def run_demo(args: argparse.Namespace, say: Callable[[str], None]) -> DemoResult:
    """Write the digits, train, measure, draw the preview.

    Args:
        args: the parsed options.
        say: prints one line of progress.

    Raises:
        UsageError: an option is wrong.
    """
    _check(args)
    import torch
    from lightning.pytorch import Trainer, seed_everything
    from lightning.pytorch.callbacks import RichProgressBar

    from lightning_gpuaug import ops
    from lightning_gpuaug.callbacks import Throughput
    from lightning_gpuaug.cli.digits import IMAGE_SIZE, write_digits
    from lightning_gpuaug.data import ImageDataModule
    from lightning_gpuaug.recipe import EvalRecipe, RandomResizedCrop, TrainRecipe

    _quiet()
    started = time.perf_counter()
    seed_everything(args.seed, workers=True, verbose=False)
    model = _make_model(args)
    tree = write_digits(args.out / "digits", seed=args.seed, limit=args.limit)
    say(
        f"{tree.written} images written to {args.out / 'digits'}"
        if tree.written
        else f"images found in {args.out / 'digits'}"
    )
    # A mirrored digit is no digit, and a small window of one may be another: no flip, large windows.
    recipe = TrainRecipe(crop=RandomResizedCrop(scale=(0.7, 1.0), ratio=(0.8, 1.25)), hflip=0.0)
    make_data = partial(
        ImageDataModule,
        train=str(tree.train),
        val=str(tree.val),
        batch_size=args.batch_size,
        image_size=IMAGE_SIZE,
        train_recipe=recipe,
        eval_recipe=EvalRecipe(crop_ratio=1.0),
        seed=args.seed,
    )
    data = make_data()
    throughput = Throughput()
    trainer = Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=args.epochs,
        default_root_dir=args.out,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=not args.json,
        log_every_n_steps=10,
        callbacks=[throughput, *([] if args.json else [RichProgressBar(leave=True)])],
    )
    with _cores_left_for_decoding():
        trainer.fit(model, datamodule=data)
    device = trainer.strategy.root_device
    decoded_on = data.decode_device
    summary = throughput.summary()
    weights = args.out / "digits.ckpt"
    trainer.save_checkpoint(weights, weights_only=True)
    preview = write_preview(make_data(), recipe.normalize, device, args.out / "preview.png")
    return DemoResult(
        val_top1=float(trainer.callback_metrics["val/top1"]),
        images_per_second=summary.img_per_s_global,
        data_wait_share=summary.data_wait_fraction,
        decoded_on=decoded_on,
        augment_backend=ops.backend(device),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        seconds=time.perf_counter() - started,
        files=[str(tree.train), str(tree.val), str(preview), str(weights)],
    )


def write_preview(data: ImageDataModule, normalize: Normalize | None, device: torch.device, path: Path) -> Path:
    """Draw the first images of a training epoch, as the network gets them, to the PNG `path`.

    Args:
        data: a data module outside a trainer; it is set up for `device` and torn down again.
        normalize: what its training recipe applies.
        device: where the batches are made.
        path: the file to write.
    """
    import torch

    from lightning_gpuaug.grid import draw_grid, to_pixels

    data.setup_for(device)
    batches: list[torch.Tensor] = []
    labels: list[int] = []
    for images, targets in data.train_dataloader():
        assert isinstance(images, torch.Tensor)  # the demo's recipe has one view of a sample
        batches.append(images.cpu())
        labels += targets.tolist()
        if len(labels) >= _PREVIEW_IMAGES:
            break
    data.teardown("fit")
    pixels = to_pixels(torch.cat(batches)[:_PREVIEW_IMAGES], normalize)
    names = data.classes or ()
    captions = [names[label] for label in labels[:_PREVIEW_IMAGES]]
    draw_grid(pixels, captions, columns=10, scale=2).save(path)
    return path


@contextmanager
def _cores_left_for_decoding() -> Iterator[None]:
    """Let torch compute on half of the cores: its threads spin while they wait for one that DALI has displaced."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _quiet() -> None:
    """Leave Lightning's tips and remarks out: the demo is about its own table."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*isinstance\\(treespec, LeafSpec\\).*")


def _print_table(result: DemoResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="gpuaug demo", show_header=False, title_justify="left")
    table.add_row("validation top-1", f"{result.val_top1:.4f}")
    rate, wait = result.images_per_second, result.data_wait_share
    table.add_row("training images/s", "run too short to tell" if rate is None else f"{rate:,.0f}")
    table.add_row("time waiting for data", "run too short to tell" if wait is None else f"{wait:.1%}")
    table.add_row("JPEGs decoded on", result.decoded_on)
    table.add_row("augmentation op ran on", result.augment_backend)
    table.add_row("model trained on", result.device)
    table.add_row("whole run", f"{result.seconds:.0f} s")
    table.add_row("files written", "\n".join(result.files))
    Console().print(table)


def main(args: list[str]) -> int:
    """Run `gpuaug demo` with `args` and return the exit code."""
    return run_command("demo", lambda: _run(args))


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    result = run_demo(options, say=(lambda line: None) if options.json else print)
    if options.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        _print_table(result)
    return OK
