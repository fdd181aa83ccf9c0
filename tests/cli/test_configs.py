"""The shipped configurations parse, combine, and train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lightning_gpuaug.cli import main

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
BASES = ["digits", "imagenet_resnet50", "imagenet_vits"]
OVERLAYS = ["multigpu", "bf16"]


def options(*names: str) -> list[str]:
    return [f"--config={CONFIGS / name}.yaml" for name in names]


def test_none_is_forgotten() -> None:
    assert sorted(path.stem for path in CONFIGS.glob("*.yaml")) == sorted([*BASES, *OVERLAYS])


@pytest.mark.parametrize("name", [*BASES, *OVERLAYS])
def test_starts_with_what_it_is_its_source_and_the_command(name: str) -> None:
    text = (CONFIGS / f"{name}.yaml").read_text()
    header = text[: re.search(r"^[^#]", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    assert "# Source: " in header
    assert "gpuaug fit --config configs/" in header
    assert f"configs/{name}.yaml" in header


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("overlays", [[], ["multigpu"], ["bf16"], ["multigpu", "bf16"]], ids="+".join)
def test_print_config(base: str, overlays: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *options(base, *overlays), "--data.train=/data/train", "--print_config"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["data"]["init_args"]["train"] == "/data/train"
    assert printed["data"]["init_args"]["dtype"] == ("bfloat16" if "bf16" in overlays else "float32")
    assert printed["trainer"]["precision"] == ("bf16-mixed" if "bf16" in overlays else None)
    assert printed["trainer"]["strategy"] == ("ddp" if "multigpu" in overlays else "auto")
    assert printed["model"]["init_args"]["label_smoothing"] == 0.1
    assert "num_classes" not in printed["model"]["init_args"]


@pytest.mark.parametrize("names", [["digits"], ["imagenet_resnet50", "bf16"], ["imagenet_vits"]], ids="+".join)
def test_two_steps_of_training(names: list[str], tiny: list[str], tmp_path: Path) -> None:
    small = list(tiny)
    if "imagenet_vits" in names:  # no ResNet takes what this one says about its model
        small = ["--model.model=test_vit" if option.startswith("--model.model") else option for option in small]
        small = [option if "image_size" not in option else "--data.image_size=160" for option in small]
    root = f"--trainer.default_root_dir={tmp_path}"
    assert main(["fit", *options(*names), *small, root, "--trainer.logger=false"]) == 0
    assert (tmp_path / "config.yaml").is_file()
