"""`gpuaug parity`: our augmentation beside its origins': op by op, as policies, and as whole published recipes."""

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
    from PIL.Image import Image

    from lightning_gpuaug.cli.parity_ops import OpParity
    from lightning_gpuaug.cli.parity_published import PublishedParity
    from lightning_gpuaug.cli.parity_recipes import RecipeParity
    from lightning_gpuaug.cli.parity_steps import NoiseParity
    from lightning_gpuaug.recipe import TrainRecipe

TIMM_POLICIES = (
    "rand-m9-mstd0.5-inc1", "rand-m7-mstd0.5-inc1", "rand-m6-mstd0.5-inc1", "rand-m7-n3-p0.5", "rand-m9-mstd0.5",
    "rand-m6-tweights", "rand-m6-t3a", "rand-m6-t3aw", "original", "originalr", "v0", "v0r", "3a", "original-mstd0.5",
    "augmix-m5-w4-d2", "augmix-m3",
)  # fmt: skip
"""Strings of timm's that are compared unless others are asked for; torchvision's policies are compared by name."""
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_SIZE = 128
_LONGEST = 640
"""Side that whole images are brought down to, pixels: about that of data sets, and quick to read."""
_STEPS_OF_OPS = 95  # about as many ops and steps as there are; for the progress bar
_NOISE_DRAWS = 300
_PARTS = {
    "ops": {"ops"}, "policies": {"policies"}, "recipes": {"policies"}, "published": {"published"},
}  # fmt: skip
"""What `--only` says; policies were all the recipes there were once."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What was compared.

    Attributes:
        ops: of the policies and steps of a recipe, with equal parameters.
        noise: numbers that ops write into images.
        recipes: policies.
        published: published recipes, one a kind of view.
    """

    ops: list[OpParity]
    noise: list[NoiseParity]
    recipes: list[RecipeParity]
    published: list[PublishedParity]

    @property
    def agree(self) -> bool:
        """Whether everything is within its limits."""
        return all(parity.agrees for part in (self.ops, self.noise, self.recipes, self.published) for parity in part)


def default_recipes() -> list[str]:
    """Every kind of policy: timm's strings and torchvision's names."""
    from lightning_gpuaug.recipe import NAMED_POLICIES

    different = {policy: name for name, policy in reversed(NAMED_POLICIES.items())}  # a policy may have several names
    return [*TIMM_POLICIES, *reversed(different.values())]


def read_pictures(folder: Path | None, count: int) -> list[Image]:
    """Images for both sides, in RGB, the longer side at most 640 pixels.

    Args:
        folder: where they are, at any depth; None takes scikit-learn's two photographs.
        count: at most so many, spread over the folder.
    """
    import numpy as np
    from PIL import Image

    if folder is None:
        from sklearn.datasets import load_sample_images

        return [Image.fromarray(image) for image in load_sample_images().images[:count]]
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    if not paths:
        raise UsageError(f"no images in {folder} (looked for {', '.join(_SUFFIXES)})")
    chosen = np.linspace(0, len(paths) - 1, min(count, len(paths))).round().astype(int).tolist()
    found = []
    for i in chosen:
        try:
            found.append(Image.open(paths[i]).convert("RGB"))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise UsageError(f"{paths[i]} cannot be read by Pillow: {error}; gpuaug scan finds such files") from error
    for image in found:
        image.thumbnail((_LONGEST, _LONGEST), Image.Resampling.BICUBIC)
    return found


def squares(pictures: list[Image], size: int) -> NDArray[np.uint8]:
    """The middle square of each picture, resized by Pillow: (N, size, size, 3) uint8."""
    import numpy as np
    from PIL import Image, ImageOps

    return np.stack([np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)) for image in pictures])


def compare(options: argparse.Namespace) -> Found:
    """Compare what the options ask for, with a progress bar on stderr."""
    import numpy as np
    from rich.console import Console
    from rich.progress import Progress

    from lightning_gpuaug.augment import sample_params
    from lightning_gpuaug.cli.parity_ops import compare_ops
    from lightning_gpuaug.cli.parity_recipes import compare_recipe
    from lightning_gpuaug.cli.parity_steps import compare_noise, compare_steps
    from lightning_gpuaug.devices import torch_device
    from lightning_gpuaug.recipe import TrainRecipe

    device = torch_device(options.device)
    size = options.size or _SIZE
    parts = _parts(options)
    pictures = read_pictures(options.folder, options.images)
    images = squares(pictures, size)
    policies = (options.recipes or default_recipes()) if "policies" in parts else []
    for name in policies:  # refuse a wrong one before anything takes time
        sample_params(TrainRecipe(auto=name), np.arange(1), 0, 0, size, size)
    published = _published(options) if "published" in parts else []
    found = Found([], [], [], [])
    with Progress(console=Console(stderr=True), transient=True) as progress:
        if "ops" in parts:
            task = progress.add_task("ops", total=_STEPS_OF_OPS)
            found.ops.extend(compare_ops(images, ("timm", "torchvision"), device, lambda: progress.advance(task)))
            found.ops.extend(compare_steps(images, device, options.seed, lambda: progress.advance(task)))
            found.noise.extend(compare_noise(size, _NOISE_DRAWS, device, options.seed))
            progress.update(task, completed=_STEPS_OF_OPS)
        task = progress.add_task("policies", total=len(policies) + len(published))
        for name in policies:
            progress.update(task, description=name)
            found.recipes.append(compare_recipe(name, name, images, options.draws, options.seed, device))
            progress.advance(task)
        for name, origin_name, recipe in published:
            progress.update(task, description=name)
            found.published.extend(_compare_published(name, origin_name, recipe, pictures, options, device))
            progress.advance(task)
    return found


def _parts(options: argparse.Namespace) -> set[str]:
    """What to compare: ops, policies, published recipes."""
    if options.only is not None:
        return _PARTS[options.only]
    if options.recipe and not options.recipes:
        return {"published"}
    if options.recipes and not options.recipe:
        return {"ops", "policies"}
    return {"ops", "policies", "published"}


def _published(options: argparse.Namespace) -> list[tuple[str, str, TrainRecipe]]:
    """Name, origin and recipe of each file to compare: those asked for, else all that are there."""
    from lightning_gpuaug.cli.origins import ORIGINS
    from lightning_gpuaug.cli.recipe_files import read_recipe, recipe_files, recipe_folder

    names = options.recipe or (["all"] if options.only == "published" or recipe_folder() is not None else [])
    result = []
    for path in recipe_files(names):
        recipe = read_recipe(path)
        origin = options.origin or path.stem
        if origin not in ORIGINS:
            raise UsageError(
                f"{path}: no pipeline is known that it could come from; give --origin one of {', '.join(ORIGINS)}"
            )
        result.append((path.stem, origin, recipe))
    return result


def _compare_published(
    name: str, origin_name: str, recipe: TrainRecipe, pictures: list[Image], options: argparse.Namespace, device: Any
) -> list[PublishedParity]:
    from lightning_gpuaug.cli.origins import origin, published_size
    from lightning_gpuaug.cli.parity_published import compare_published, resized

    published = published_size(origin_name)
    size = options.size or published
    ours = resized(recipe, size, published)
    pipeline = origin(origin_name, size)
    return compare_published(name, ours, pipeline, pictures, size, options.draws, options.seed, device)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug parity",
        description="Compare augmentation with where it comes from, on the CPU. Ops and steps: equal parameters are "
        "forced on both sides, and the pixels compared. Policies and published recipes: both sides draw for themselves "
        "from the same images; means, spreads, histograms, frequencies of the ops and, of recipes, the drawn numbers "
        "are compared, beside what two runs of the origin differ by. Exit code 1 where a difference is larger than "
        "chance or its documented cause makes it.",
        epilog="example: gpuaug parity /data/val --recipe timm_a1; "
        "gpuaug parity /data/val --policy rand-m9-mstd0.5-inc1 TrivialAugmentWide",
    )
    parser.add_argument("folder", type=Path, nargs="?", help="images to use (default: scikit-learn's two photographs)")
    parser.add_argument(
        "--recipe", nargs="+", metavar="NAME|FILE|all",
        help="published recipes, whole, beside the pipelines of their origin (default: all of configs/recipes)",
    )  # fmt: skip
    parser.add_argument(
        "--origin", metavar="NAME", help="published recipe whose pipeline --recipe is compared with (default: its name)"
    )
    parser.add_argument(
        "--policy", "--recipes", dest="recipes", nargs="+", metavar="POLICY",
        help="values of TrainRecipe.auto (default: all kinds)",
    )  # fmt: skip
    parser.add_argument("--only", choices=tuple(_PARTS), help='one of the comparisons; "recipes" means policies')
    parser.add_argument("--images", type=int, default=4, help="most images to use (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=64, help="draws of each image a side (default: %(default)s)")
    parser.add_argument(
        "--size", type=int, help=f"height and width of the images (default: {_SIZE}; of a recipe what it trains on)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of all draws (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="where our side runs: cpu or cuda (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON, and nothing else")
    return parser


def as_json(found: Found) -> dict[str, Any]:
    """All comparisons as plain values."""
    return {
        field.name: [{**dataclasses.asdict(parity), "agrees": parity.agrees} for parity in getattr(found, field.name)]
        for field in dataclasses.fields(found)
    }


def main(args: list[str]) -> int:
    """Run `gpuaug parity` with `args` and return the exit code: 1 when something differs more than it should."""
    return run_command("parity", lambda: _run(args))


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    for name, least in (("images", 1), ("draws", 2), ("size", 16)):
        given = getattr(options, name)
        if given is not None and given < least:
            raise UsageError(f"--{name} must be at least {least}, got {given}")
    if not 0 <= options.seed < 2**32:
        raise UsageError(f"--seed must be in 0..2**32-1, got {options.seed}")
    if options.folder is not None and not options.folder.is_dir():
        raise UsageError(f"no such folder: {options.folder}")
    try:
        found = compare(options)
    except ValueError as error:
        if message_to_user_behind(error) is None:
            raise
        raise UsageError(str(error)) from error  # a policy that is none
    if options.json:
        print(json.dumps(as_json(found), indent=1))
    else:
        from lightning_gpuaug.cli.parity_tables import print_tables

        print_tables(found)
    return OK if found.agree else FOUND_PROBLEMS
