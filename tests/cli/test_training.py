"""`gpuaug fit` and its kin: nothing that the user wrote is lost in silence."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
import yaml
from lightning.pytorch import LightningDataModule
from lightning.pytorch.callbacks import LearningRateMonitor, RichModelSummary

from lightning_gpuaug import Classifier, ImageDataModule, ImageFolder, Throughput
from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.digits import DigitsTree


class OtherData(LightningDataModule):
    """A data module without ImageDataModule's arguments, and without `num_classes`."""

    def __init__(self, val: str = "") -> None:
        super().__init__()
        self.val = val


def config(folder: Path, text: str, name: str = "c.yaml") -> str:
    (folder / name).write_text(text)
    return f"--config={folder / name}"


def build(*args: str) -> Any:
    return main(["fit", *args], run=False)


# ---- short and long names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["data.batch_size", "data.init_args.batch_size"])
def test_short_and_long_names(key: str, tiny: list[str]) -> None:
    options = [option for option in tiny if "batch_size" not in option]
    cli = build(*options, f"--{key}=5")
    assert isinstance(cli.datamodule, ImageDataModule)
    assert isinstance(cli.model, Classifier)
    assert cli.datamodule.batch_size == 5


def test_yaml_short_form_and_source_by_short_name(tree: DigitsTree, tmp_path: Path) -> None:
    text = f"""
data:
  train: {{class_path: ImageFolder, init_args: {{root: {tree.train}}}}}
  batch_size: 010
  train_recipe: {{crop: {{scale: [0.5, 1.0]}}, hflip: 0.25}}
model: {{model: test_resnet, lr: 1e-3}}
trainer: {{accelerator: cpu, logger: false}}
"""
    cli = build(config(tmp_path, text))
    assert isinstance(cli.datamodule._given["train"], ImageFolder)
    assert cli.datamodule.batch_size == 10
    assert cli.datamodule.train_recipe.crop.scale == (0.5, 1.0)
    assert cli.datamodule.train_recipe.hflip == 0.25
    assert cli.model.hparams["lr"] == 0.001


def test_num_classes_follows_the_data(tiny: list[str]) -> None:
    assert build(*tiny).model.num_classes == 10


# ---- conflicts ---------------------------------------------------------------------------------------------------


def error_of(capsys: pytest.CaptureFixture[str], *args: str, code: int = 2) -> str:
    capsys.readouterr()
    assert main(list(args)) == code
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_duplicate_key_names_file_key_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = config(tmp_path, "data:\n  train: /a\n  batch_size: 8\n  train: /b\n")
    error = error_of(capsys, "fit", option, "--model.model=test_resnet")
    assert error == (
        f"gpuaug fit: error: {tmp_path / 'c.yaml'}: key `data.train` is given twice, on lines 2 and 4; keep one"
    )


def test_num_classes_conflict_names_both(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "fit", config(tmp_path, "model: {num_classes: 16}"), *tiny)
    assert "model.num_classes is 16" in error
    assert "10 classes" in error
    assert build(config(tmp_path, "model: {num_classes: 10}"), *tiny).model.num_classes == 10


@pytest.mark.parametrize("second", ["--data.batch_size=9", "--data.init_args.batch_size=9"])
def test_option_given_twice(second: str, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of(capsys, "fit", *tiny, second)
    assert "given twice, as '8' and '9'" in error


def test_same_option_twice_with_one_value_is_no_conflict(tiny: list[str]) -> None:
    assert build(*tiny, "--data.batch_size", "8").datamodule.batch_size == 8


def test_both_forms_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    option = config(tmp_path, "data:\n  train: /a\n  init_args:\n    train: /b\n")
    assert error_of(capsys, "fit", option, "--model.model=test_resnet") == (
        f"gpuaug fit: error: {tmp_path / 'c.yaml'}: data: `train` stands beside init_args, which mixes the short and "
        "the long form; move it into init_args, or leave init_args out"
    )


@pytest.mark.parametrize(
    ("option", "needle"),
    [
        ("--data.train_recipe.hflip=2", "TrainRecipe.hflip must be a probability in 0..1, got 2.0"),
        ("--data.seed=-1", "seed must be in"),
        ("--model.optimizer=nope", "nope"),
        ("--data.on_bad_image=ignore", "ignore"),
    ],
)
def test_a_wrong_value_is_named(option: str, needle: str, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["fit", *tiny, option]) == 2
    assert needle in capsys.readouterr().err


def test_missing_folder_is_named(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = [option for option in tiny if not option.startswith("--data.train=")]
    assert "/no/such/folder" in error_of(capsys, "fit", *options, "--data.train=/no/such/folder")


# ---- several configurations --------------------------------------------------------------------------------------


def test_second_config_replaces_callbacks_and_throughput_survives(tiny: list[str], tmp_path: Path) -> None:
    first = config(tmp_path, "throughput: {warmup_batches: 3}\ntrainer: {callbacks: [LearningRateMonitor]}", "1.yaml")
    second = config(tmp_path, "trainer: {callbacks: [RichModelSummary]}", "2.yaml")
    options = [option for option in tiny if "model_summary" not in option]
    callbacks = build(first, second, *options).trainer.callbacks
    assert not any(isinstance(callback, LearningRateMonitor) for callback in callbacks)
    assert any(isinstance(callback, RichModelSummary) for callback in callbacks)
    assert [callback.warmup_batches for callback in callbacks if isinstance(callback, Throughput)] == [3]


def test_a_second_throughput_is_refused(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "set its options under `throughput:`" in error_of(capsys, "fit", *tiny, "--trainer.callbacks+=Throughput")


def test_another_data_class_runs_and_dropped_arguments_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    option = config(tmp_path, "data: {train: /a, val: /v, batch_size: 4}\nmodel: {model: test_resnet, num_classes: 3}")
    capsys.readouterr()
    cli = build(option, f"--data={__name__}.OtherData", "--trainer.accelerator=cpu", "--trainer.logger=false")
    assert isinstance(cli.datamodule, OtherData)
    assert cli.datamodule.val == "/v"
    assert cli.model.num_classes == 3
    (note,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gpuaug: note:")]
    assert "'train': '/a'" in note
    assert "'batch_size': 4" in note
    assert "'val'" not in note


# ---- running -----------------------------------------------------------------------------------------------------


def test_same_folder_twice_and_saved_config_repeats_the_run(tiny: list[str], tmp_path: Path) -> None:
    run = [*tiny, f"--trainer.default_root_dir={tmp_path}", "--seed_everything=7", "--model.lr=0.01"]
    run += ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={tmp_path}"]
    run += ["--trainer.logger.name=logs", "--trainer.logger.version=a"]
    assert main(["fit", *run]) == 0
    saved = tmp_path / "logs" / "a" / "config.yaml"
    first, losses = saved.read_text(), (tmp_path / "logs" / "a" / "metrics.csv").read_text()
    kept = tmp_path / "kept.yaml"
    kept.write_text(first)
    assert main(["fit", f"--config={kept}"]) == 0  # the same folder again
    assert yaml.safe_load(saved.read_text()) == yaml.safe_load(first)
    columns = [
        [line.split(",")[header.split(",").index("train/loss")] for line in [header, *lines]]
        for header, *lines in (losses.splitlines(), (tmp_path / "logs" / "a" / "metrics.csv").read_text().splitlines())
    ]
    assert columns[0] == columns[1]
    assert any(columns[0][1:])


def test_validate_and_resume_from_a_checkpoint(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*tiny, f"--trainer.default_root_dir={tmp_path}", "--trainer.logger=false", "--model.scheduler=none"]
    assert main(["fit", *run]) == 0
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    assert main(["validate", *run, f"--ckpt_path={checkpoint}"]) == 0
    longer = ["--trainer.max_epochs=2" if "max_epochs" in option else option for option in run]
    assert main(["fit", *longer, f"--ckpt_path={checkpoint}"]) == 0
    error = error_of(capsys, "fit", *longer, "--model.lr=0.5", f"--ckpt_path={checkpoint}")
    assert "model.lr is 0.5" in error
    assert "0.1 in the checkpoint" in error


def test_predict_writes_a_row_for_each_image(
    tree: DigitsTree, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = [*tiny, f"--trainer.default_root_dir={tmp_path}", "--trainer.logger=false"]
    assert main(["fit", *run]) == 0
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    saved = tmp_path / "config.yaml"
    assert main(["predict", f"--config={saved}", f"--data.predict={tree.val}", f"--ckpt_path={checkpoint}"]) == 0
    with (tmp_path / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [
        str(path.relative_to(tree.val)) for path in sorted(tree.val.glob("*/*.jpg"))
    ]
    assert {row["class"] for row in rows} <= {str(digit) for digit in range(10)}
    assert all(0.1 <= float(row["probability"]) <= 1 for row in rows)  # the largest of ten
    assert f"{len(rows)} predictions written to" in capsys.readouterr().out


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork"])
def test_predict_refuses_processes_whose_predictions_do_not_come_back(
    strategy: str, tree: DigitsTree, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option for option in tiny if not option.startswith("--trainer.devices")]
    given += ["--trainer.devices=2", f"--trainer.strategy={strategy}", "--trainer.logger=false"]
    given += [f"--data.predict={tree.val}", f"--trainer.default_root_dir={tmp_path}"]
    assert error_of(capsys, "predict", *given) == (
        f"gpuaug predict: error: trainer.strategy '{strategy}' forks or spawns its processes, and their predictions do "
        "not come back to be written; give --trainer.strategy=ddp"
    )


def test_predict_leaves_a_file_without_rows_too(tree: DigitsTree, tiny: list[str], tmp_path: Path) -> None:
    none = [f"--data.predict={tree.val}", "--trainer.limit_predict_batches=0", "--trainer.logger=false"]
    assert main(["predict", *tiny, *none, f"--trainer.default_root_dir={tmp_path}"]) == 0
    assert (tmp_path / "predictions.csv").read_text().splitlines() == ["file,label,probability,class"]


@pytest.mark.parametrize("word", ["last", "hpc"])
def test_a_checkpoint_that_the_trainer_does_not_find(
    word: str, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Untrained weights are not what somebody wants to validate."""
    error = error_of(capsys, "validate", *tiny, f"--ckpt_path={word}", f"--trainer.default_root_dir={tmp_path}")
    assert error.startswith("gpuaug validate: error: ckpt_path: ")
    assert f'(ckpt_path="{word}")' in error


@patch.dict(os.environ)  # in which Lightning leaves the group's address
def test_a_run_leaves_the_process_group_it_made(tiny: list[str], tmp_path: Path) -> None:
    run = ["fit", *tiny, "--trainer.strategy=ddp", "--trainer.logger=false", f"--trainer.default_root_dir={tmp_path}"]
    assert main(run) == 0
    assert not dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert main(run) == 0
        assert dist.is_initialized()  # not the run's
    finally:
        dist.destroy_process_group()


def test_two_ranks_write_one_config(tiny: list[str], tmp_path: Path) -> None:
    options = [option for option in tiny if not option.startswith("--trainer.devices")]
    options += ["--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.logger=false"]
    command = [sys.executable, "-m", "lightning_gpuaug.cli", "fit", *options, f"--trainer.default_root_dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [path.name for path in tmp_path.rglob("*.yaml")] == ["config.yaml"]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["trainer"]["devices"] in (2, "2")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--data.batch_size=4.0"], "data.batch_size: Expected a <class 'int'>. Got value: 4.0"),
        (["--data.train_recipe.crop.scale=[0.5]"], "data.train_recipe.crop.scale: Expected a tuple with 2 elements."),
        (["--data.bogus=1"], "data: Option 'bogus' is not accepted"),
        (["--model.lr=fast"], "model.lr: Expected a <class 'float'>. Got value: fast"),
        (["--trainer.max_epochs=x"], "trainer.max_epochs: Expected a <class 'int'>, got x"),
        (["--ckpt_path="], "ckpt_path is empty; give it the path of a checkpoint"),
        (["--ckpt_path=best"], "ckpt_path: best is known to nothing but the run that trained"),
        (["--ckpt_path=/no/such.ckpt"], "ckpt_path: no such checkpoint: /no/such.ckpt (seen from "),
        (["--ckpt_path=/no/such/weights.pt"], "ckpt_path: no such checkpoint: /no/such/weights.pt (seen from "),
        (["--trainer.max_epoch=1"], "unrecognized arguments: --trainer.max_epoch=1"),
        (["--trainer.precision=bf16-mixd"], "trainer.precision: Expected a typing.Literal['transformer-engine', "),
        (["--trainer.callbacks+=Nope"], "trainer.callbacks: no known class is called Nope; "),
        (["--model=nope.Model"], "model: No module named 'nope'"),
        (["--trainer.limit_train_batches=2.5"], "You have passed invalid value 2.5 for limit_train_batches"),
    ],
    ids=lambda value: value[0].partition("=")[0] if isinstance(value, list) else "",
)
def test_what_the_parser_refuses_is_one_line(
    options: list[str], line: str, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option for option in tiny if option.partition("=")[0] != options[0].partition("=")[0]]
    capsys.readouterr()
    assert main(["fit", *given, *options]) != 0
    told = [text for text in capsys.readouterr().err.splitlines() if not text.startswith(("Seed set", "INFO"))]
    assert len(told) == 1
    assert told[0].startswith(f"gpuaug fit: error: {line}")


@pytest.mark.parametrize("options", [[], ["--data.train=/data/train"]])
def test_a_fit_without_a_model_says_so(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(capsys, "fit", *options) == "gpuaug fit: error: model.model is required"


def test_a_network_for_another_image_size_is_refused(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [option for option in tiny if not option.startswith("--model.model=")]
    given.append("--model.model=vit_tiny_patch16_224")
    assert error_of(capsys, "fit", *given) == (
        "gpuaug fit: error: data.image_size is 32 but vit_tiny_patch16_224 takes images of 224; "
        "set data.image_size to that, or model.model_args to {img_size: 32}"
    )
    assert build(*given, "--model.model_args={img_size: 32}").datamodule.image_size == 32


def test_what_the_disk_refuses_is_one_line(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = "/sys/kernel/no_such_folder"  # where nobody can make one
    error = error_of(capsys, "fit", *tiny, "--trainer.logger=false", f"--trainer.default_root_dir={folder}", code=1)
    assert error.startswith("gpuaug fit: error: [Errno ")
    assert error.endswith(f": '{folder}'")


def test_a_file_that_is_no_checkpoint_is_one_line(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"fc.weight": torch.zeros(2)}, tmp_path / "weights.pth")
    torch.save({"state_dict": {}, "hyper_parameters": {"folder": tmp_path}}, tmp_path / "objects.ckpt")
    whole = (tmp_path / "weights.pth").read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.ckpt").write_text("model: {model: test_resnet}")
    reasons = {
        "weights.pth": "is not a Trainer's checkpoint: it has no state_dict",
        "objects.ckpt": "cannot be loaded: it is damaged, or holds objects that are not plain values and tensors",
        "cut.ckpt": "cannot be loaded: it is damaged, or holds no checkpoint",
        "text.ckpt": "cannot be loaded: it is damaged, or holds no checkpoint",
    }
    for name, reason in reasons.items():
        path = tmp_path / name
        assert error_of(capsys, "validate", *tiny, f"--ckpt_path={path}") == (
            f"gpuaug validate: error: ckpt_path: {path} {reason}"
        )


def test_without_the_training_data_classes_are_the_checkpoints(
    tree: DigitsTree, tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data to test need not have every class, and folders to predict on say nothing of the labels."""
    run = [*tiny, f"--trainer.default_root_dir={tmp_path}", "--trainer.logger=false"]
    assert main(["fit", *run]) == 0
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    elsewhere = [option for option in run if not option.startswith(("--data.train=", "--data.val="))]
    elsewhere.append(f"--ckpt_path={checkpoint}")
    images = sorted(tree.val.glob("*/*.jpg"))[:3]
    for folder, other in (("3", "new"), ("7", "older"), ("8", "x")):
        for stage, name in (("test", folder), ("predict", other)):
            (tmp_path / stage / name).mkdir(parents=True)
            shutil.copy(images[0], tmp_path / stage / name)
    with pytest.warns(UserWarning, match="no samples of classes '0', '1', '2', '4', '5' and 2 more"):
        assert main(["test", *elsewhere, f"--data.test={tmp_path / 'test'}"]) == 0
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{image}\n" for image in images))
    without_labels = f"{{class_path: FileList, init_args: {{path: {listed}, labels: none}}}}"
    loose = tmp_path / "loose"
    loose.mkdir()
    for image in images:
        shutil.copy(image, loose / f"{image.parent.name}_{image.name}")
    for source in (str(tmp_path / "predict"), str(loose), without_labels):
        assert main(["predict", *elsewhere, f"--data.predict={source}"]) == 0
        with (tmp_path / "predictions.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["class"] for row in rows] == [row["label"] for row in rows]  # digits: both are the same text
        assert len(rows) == 3


def test_a_list_in_place_of_a_folder_says_how_lists_are_given(
    tmp_path: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.txt").write_text("a.jpg 0\nb.jpg 1\n")
    options = [option for option in tiny if not option.startswith("--data.train=")]
    told = error_of(capsys, "fit", *options, f"--data.train={tmp_path / 'list.txt'}")
    assert "begins with 'a.jpg 0'; a list of images is given as {class_path: FileList" in told


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--data.train=/no/such", "no such folder: /no/such"),
        ("--data.decode=gpu", 'decode="gpu" needs batches on a CUDA device, got cpu'),
        ("--data.batch_size=1000", "train data: 0 steps: "),
        ("--model.model=resnet5000", "model must be a timm model name, got 'resnet5000'; nearest: "),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    option: str, line: str, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [have for have in tiny if have.partition("=")[0] != option.partition("=")[0]]
    capsys.readouterr()
    assert main(["fit", *given, option]) == 2
    told = capsys.readouterr().err
    assert line in told
    assert "Traceback" not in told


@pytest.mark.parametrize(("command", "stage"), [("validate", "val"), ("test", "test"), ("predict", "predict")])
def test_a_command_without_its_data_says_which(
    command: str, stage: str, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [option for option in tiny if not option.startswith("--data.val=")]
    capsys.readouterr()
    assert main([command, *given]) == 2
    assert f"has no {stage} data: give it {stage}=" in capsys.readouterr().err
