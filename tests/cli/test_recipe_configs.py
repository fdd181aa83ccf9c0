"""The recipes of configs/recipes: each says where it is from, composes with every model's configuration, and trains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

from lightning_gpuaug import Mix, SizeRamp, TrainRecipe
from lightning_gpuaug.cli import main

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = ["digits", "imagenet_resnet50", "imagenet_vits"]
RECIPES = ["deit", "dino", "ffcv_rn50", "simclr", "timm_a1", "timm_a2", "timm_a3", "torchvision_resnet50_v1",
           "torchvision_resnet50_v2"]  # fmt: skip
OF_VIEWS = {"dino", "simclr"}


def options(model: str, recipe: str) -> list[str]:
    return [f"--config={CONFIGS / model}.yaml", f"--config={CONFIGS / 'recipes' / recipe}.yaml"]


def recipe_of(written: dict[str, Any]) -> TrainRecipe:
    """The recipe that the command would build from a mapping."""
    parser = ArgumentParser()
    parser.add_argument("--recipe", type=TrainRecipe)
    recipe: TrainRecipe = parser.instantiate_classes(parser.parse_object({"recipe": written})).recipe
    return recipe


def test_none_is_forgotten() -> None:
    assert sorted(path.stem for path in (CONFIGS / "recipes").glob("*.yaml")) == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_says_its_source_and_its_command(name: str) -> None:
    text = (CONFIGS / "recipes" / f"{name}.yaml").read_text()
    header = text[: re.search(r"^[^#]", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    assert "# Source: " in header
    command = re.search(r"gpuaug fit --config configs/(\w+)\.yaml --config configs/recipes/(\w+)\.yaml", header)
    assert command is not None
    assert command[1] in MODELS
    assert command[2] == name


@pytest.mark.parametrize("name", RECIPES)
def test_composes_with_every_model_to_the_same_recipe(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for model in MODELS:
        assert main(["fit", *options(model, name), "--data.train=/data/train", "--print_config"]) == 0
        printed = yaml.safe_load(capsys.readouterr().out)
        base = yaml.safe_load((CONFIGS / f"{model}.yaml").read_text())
        written = yaml.safe_load((CONFIGS / "recipes" / f"{name}.yaml").read_text())
        assert printed["model"]["init_args"]["model"] == base["model"]["model"]
        assert printed["trainer"]["max_epochs"] == written.get("trainer", base["trainer"])["max_epochs"]
        for key, value in written.get("model", {}).items():
            assert printed["model"]["init_args"][key] == (
                float(value) if isinstance(value, str) and value[0].isdigit() else value
            )
        found.append(recipe_of(printed["data"]["init_args"]["train_recipe"]))
    assert found[0] == found[1] == found[2]
    recipe = found[0]
    assert bool(recipe.views) == (name in OF_VIEWS)
    if name == "timm_a1":
        assert (recipe.auto, recipe.mix, recipe.erasing, recipe.repeats) == (
            "rand-m7-mstd0.5-inc1",
            Mix(0.2, 1.0),
            None,
            3,
        )
    if name == "ffcv_rn50":
        assert recipe.image_size == SizeRamp(65, 76, 160, 192, 32)
    if name == "dino":
        assert [(view.count, view.image_size) for view in recipe.views] == [(1, None), (1, None), (6, 96)]


def small(tiny: list[str], tmp_path: Path) -> list[str]:
    return [*tiny, f"--trainer.default_root_dir={tmp_path}", "--trainer.logger=false"]


@pytest.mark.parametrize(("model", "recipe"), [("digits", "timm_a1"), ("imagenet_resnet50", "ffcv_rn50")])
def test_two_steps_of_training(model: str, recipe: str, tiny: list[str], tmp_path: Path) -> None:
    more = ["--data.train_recipe.image_size={0: 24, 1: 32}", "--trainer.max_epochs=2"] if recipe == "ffcv_rn50" else []
    tiny = [option for option in tiny if not (more and "max_epochs" in option)]
    assert main(["fit", *options(model, recipe), *small(tiny, tmp_path), *more]) == 0
    assert (tmp_path / "config.yaml").is_file()


class Contrastive(pl.LightningModule):
    """The least that trains on views."""

    def __init__(self, num_classes: int = 1, width: int = 4) -> None:
        super().__init__()
        self.project = torch.nn.Linear(3, width)
        self.shapes: list[list[tuple[int, ...]]] = []

    def training_step(self, batch: tuple[list[torch.Tensor], torch.Tensor], batch_idx: int) -> torch.Tensor:
        views, _ = batch
        self.shapes.append([tuple(view.shape) for view in views])
        embedded = torch.stack([self.project(view.mean(dim=(2, 3))) for view in views])
        loss: torch.Tensor = embedded.var(dim=0).mean()
        return loss

    def validation_step(self, batch: object, batch_idx: int) -> None:
        """Nothing to tell."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def with_views(recipe: str, tiny: list[str], tmp_path: Path) -> list[str]:
    return [f"--config={CONFIGS / 'recipes' / recipe}.yaml", *small(tiny, tmp_path)]


def test_a_classifier_refuses_views(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", f"--config={CONFIGS / 'digits'}.yaml", *with_views("simclr", tiny, tmp_path)]) == 1
    assert "Classifier takes one image a sample, got 2 views: a recipe with views is for" in capsys.readouterr().err


def test_a_model_of_ones_own_trains_on_views(tiny: list[str], tmp_path: Path) -> None:
    own = [option for option in with_views("simclr", tiny, tmp_path) if not option.startswith("--model")]
    assert main(["fit", *own, "--model=tests.cli.test_recipe_configs.Contrastive"]) == 0


@pytest.mark.parametrize("step", ["mix", "auto", "crop", "image_size"])
def test_a_step_of_a_recipe_is_switched_off_on_the_command_line(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = options("imagenet_resnet50", "timm_a3")
    assert main(["fit", *files, "--data.train=/data/train", f"--data.train_recipe.{step}=null", "--print_config"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]["train_recipe"][step] is None
