"""Files that hold a training recipe, such as those of configs/recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_gpuaug.cli import strict_yaml
from lightning_gpuaug.cli.errors import UsageError, one_line
from lightning_gpuaug.recipe import TrainRecipe

FOLDER = Path("configs") / "recipes"
"""Of the published recipes, from the project's root."""


def recipe_folder() -> Path | None:
    """Where the published recipes lie: below the current folder, or beside the package in a checkout or an sdist."""
    for root in (Path(), Path(__file__).resolve().parents[2]):
        if (root / FOLDER).is_dir():
            return root / FOLDER
    return None


def recipe_files(names: list[str]) -> list[Path]:
    """The files of some recipes.

    Args:
        names: of published recipes, or paths; "all" is every published one.

    Raises:
        UsageError: there is no such file.
    """
    folder, files = recipe_folder(), list[Path]()
    published = sorted(folder.glob("*.yaml")) if folder is not None else []
    for name in names:
        if name == "all":
            if not published:
                raise UsageError(f"--recipe all: there is no folder {FOLDER} here; run it in a checkout of the project")
            files += published
        elif by_name := [path for path in published if path.stem == name]:
            files += by_name
        elif Path(name).is_file():
            files.append(Path(name))
        else:
            known = ", ".join(path.stem for path in published) or f"none, for there is no folder {FOLDER} here"
            raise UsageError(f"--recipe must be all, a file or a published recipe ({known}), got {name!r}")
    return files


def read_recipe(path: Path) -> TrainRecipe:
    """The training recipe of a configuration file.

    Raises:
        UsageError: the file is no configuration, has no recipe, or a wrong one.
    """
    from jsonargparse import ArgumentError, ArgumentParser

    try:
        data: Any = strict_yaml.read(path).get("data")
    except TypeError as error:
        raise UsageError(str(error)) from error
    data = data.get("init_args", data) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("train_recipe"), dict):
        raise UsageError(f"{path}: must have a mapping data.train_recipe")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--train_recipe", type=TrainRecipe)
    try:
        parsed = parser.parse_object({"train_recipe": data["train_recipe"]})
        recipe: TrainRecipe = parser.instantiate_classes(parsed).train_recipe
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"{path}: {one_line(str(error))}") from error
    return recipe
