"""`gpuaug parity`: our augmentation beside timm's and torchvision's, op by op and as whole policies."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, message_to_user_behind, run_command

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from lightning_gpuaug.cli.parity_ops import OpParity
    from lightning_gpuaug.cli.parity_recipes import RecipeParity

TIMM_POLICIES = (
    "rand-m9-mstd0.5-inc1", "rand-m7-mstd0.5-inc1", "rand-m6-mstd0.5-inc1", "rand-m7-n3-p0.5", "rand-m9-mstd0.5",
    "rand-m6-tweights", "rand-m6-t3a", "rand-m6-t3aw", "original", "originalr", "v0", "v0r", "3a", "original-mstd0.5",
    "augmix-m5-w4-d2", "augmix-m3",
)  # fmt: skip
"""Strings of timm's that are compared unless others are asked for; torchvision's policies are compared by name."""
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_TABLE_WIDTH = 112
_STEPS_OF_OPS = 64  # about as many ops as there are; for the progress bar


def default_recipes() -> list[str]:
    """Every kind of policy: timm's strings and torchvision's names."""
    from lightning_gpuaug.recipe import NAMED_POLICIES

    different = {policy: name for name, policy in reversed(NAMED_POLICIES.items())}  # a policy may have several names
    return [*TIMM_POLICIES, *reversed(different.values())]


def read_images(folder: Path | None, count: int, size: int) -> NDArray[np.uint8]:
    """Images for both sides: the middle square of each, resized by Pillow.

    Args:
        folder: where they are, at any depth; None takes scikit-learn's two photographs.
        count: at most so many, spread over the folder.
        size: height and width, pixels.

    Returns:
        (N, size, size, 3) uint8.
    """
    import numpy as np
    from PIL import Image, ImageOps

    if folder is None:
        from sklearn.datasets import load_sample_images

        found = [Image.fromarray(image) for image in load_sample_images().images[:count]]
    else:
        paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
        if not paths:
            raise UsageError(f"no images in {folder} (looked for {', '.join(_SUFFIXES)})")
        chosen = np.linspace(0, len(paths) - 1, min(count, len(paths))).round().astype(int).tolist()
        found = []
        for i in chosen:
            try:
                found.append(Image.open(paths[i]).convert("RGB"))
            except (OSError, SyntaxError, Image.DecompressionBombError) as error:
                raise UsageError(
                    f"{paths[i]} cannot be read by Pillow: {error}; gpuaug scan finds such files"
                ) from error
    return np.stack([np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)) for image in found])


def compare(options: argparse.Namespace) -> tuple[list[OpParity], list[RecipeParity]]:
    """Compare what the options ask for, with a progress bar on stderr."""
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from lightning_gpuaug.augment import sample_params
    from lightning_gpuaug.cli.parity_ops import compare_ops
    from lightning_gpuaug.cli.parity_recipes import compare_recipe
    from lightning_gpuaug.devices import torch_device
    from lightning_gpuaug.recipe import TrainRecipe

    device = torch_device(options.device)
    images = read_images(options.folder, options.images, options.size)
    recipes = [] if options.only == "ops" else options.recipes or default_recipes()
    for name in recipes:  # refuse a wrong one before anything takes time
        sample_params(TrainRecipe(auto=name), np.arange(1), 0, 0, options.size, options.size)
    op_parities: list[OpParity] = []
    recipe_parities: list[RecipeParity] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        if options.only != "recipes":
            task = progress.add_task("ops", total=_STEPS_OF_OPS)
            op_parities = compare_ops(images, ("timm", "torchvision"), device, lambda: progress.advance(task))
            progress.update(task, completed=_STEPS_OF_OPS)
        task = progress.add_task("policies", total=len(recipes))
        for name in recipes:
            progress.update(task, description=name)
            recipe_parities.append(compare_recipe(name, name, images, options.draws, options.seed, device))
            progress.advance(task)
    return op_parities, recipe_parities


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug parity",
        description="Compare augmentation with timm and torchvision on the CPU. Ops: equal parameters are forced on "
        "both sides, and the pixels compared. Policies: both sides draw for themselves from the same images; means, "
        "spreads, histograms and frequencies of the ops are compared; differences are told in standard errors.",
        epilog="example: gpuaug parity /data/val --recipes rand-m9-mstd0.5-inc1 TrivialAugmentWide",
    )
    parser.add_argument("folder", type=Path, nargs="?", help="images to use (default: scikit-learn's two photographs)")
    parser.add_argument(
        "--recipes", nargs="+", metavar="POLICY", help="values of TrainRecipe.auto (default: all kinds)"
    )
    parser.add_argument("--only", choices=("ops", "recipes"), help="one of the two comparisons")
    parser.add_argument("--images", type=int, default=4, help="most images to use (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=64, help="draws of each image a side (default: %(default)s)")
    parser.add_argument("--size", type=int, default=128, help="their height and width (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where our side runs: cpu or cuda (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, and nothing else")
    return parser


def as_json(op_parities: list[OpParity], recipe_parities: list[RecipeParity]) -> dict[str, Any]:
    """Both comparisons as plain values."""
    return {
        "ops": [{**dataclasses.asdict(parity), "agrees": parity.agrees} for parity in op_parities],
        "recipes": [{**dataclasses.asdict(parity), "agrees": parity.agrees} for parity in recipe_parities],
    }


def _tables(op_parities: list[OpParity], recipe_parities: list[RecipeParity]) -> list[Table]:
    from rich.table import Table

    tables = []
    if op_parities:
        title = "Ops: |ours - theirs| in levels of 0..255, over all values, magnitudes and signs"
        table = Table("peer", "op", "cases", "equal", "mean", "p50", "p99", "p99.9", "max", "> 1", "", title=title)
        for op in op_parities:
            table.add_row(
                op.peer, op.op, str(op.cases), f"{op.equal:.2%}", f"{op.mean:.3f}", str(op.median), str(op.p99),
                str(op.p999), str(op.largest), f"{op.over_one:.2%}", "ok" if op.agrees else "differs",
            )  # fmt: skip
        tables.append(table)
    if recipe_parities:
        title = "Policies: ours - theirs, in standard errors; histogram distance in levels, beside two runs of the peer"
        table = Table(
            "peer", "policy", "draws", "mean", "std", "op frequency", "histogram", "peer twice", "", title=title
        )
        for recipe in recipe_parities:
            table.add_row(
                recipe.peer, recipe.recipe, str(recipe.draws), f"{recipe.mean_apart:.1f}", f"{recipe.std_apart:.1f}",
                f"{recipe.frequency_apart:.1f} ({recipe.frequency_apart_of})", f"{recipe.histogram:.2f}",
                f"{recipe.histogram_noise:.2f}", "ok" if recipe.agrees else "differs",
            )  # fmt: skip
        tables.append(table)
    return tables


def main(args: list[str]) -> int:
    """Run `gpuaug parity` with `args` and return the exit code: 1 when something differs more than it should."""
    return run_command("parity", lambda: _run(args))


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    for name, least in (("images", 1), ("draws", 2), ("size", 16)):
        if getattr(options, name) < least:
            raise UsageError(f"--{name} must be at least {least}, got {getattr(options, name)}")
    if options.folder is not None and not options.folder.is_dir():
        raise UsageError(f"no such folder: {options.folder}")
    try:
        op_parities, recipe_parities = compare(options)
    except ValueError as error:
        if message_to_user_behind(error) is None:
            raise
        raise UsageError(str(error)) from error  # a policy that is none
    if options.json:
        print(json.dumps(as_json(op_parities, recipe_parities), indent=1))
    else:
        from rich.console import Console

        console = Console(width=max(_TABLE_WIDTH, Console().width))
        for table in _tables(op_parities, recipe_parities):
            console.print(table)
    agree = all(op.agrees for op in op_parities) and all(recipe.agrees for recipe in recipe_parities)
    return OK if agree else FOUND_PROBLEMS
