"""A data source of a configuration that is none: one line that names the field, the class or the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.cli import main

WRONG = [
    ("{class_path: WebDataset, init_args: {urls: x, imge: jpg}}", ": WebDataset has no field imge; nearest: image"),
    (
        "{class_path: WebDataset, init_args: {urls: x, missing: ignore}}",
        ".missing: Expected a typing.Literal['raise', 'skip']. Got value: ignore",
    ),
    ("{class_path: ImageFolder, init_args: {root: x, qq: 1}}",
     ": ImageFolder has no field qq; there are root, exclude, strict, class_names"),
    ("{class_path: TFRecord, init_args: {paths: x, label_offset: x}}",
     ".label_offset: Expected a <class 'int'>. Got value: x"),
    ("{class_path: TFRecrd, init_args: {paths: x}}", ": no source is called TFRecrd; nearest: TFRecord"),
    ("{class_path: lightning_gpuaug.sources.TFRecrd}",
     ": no source is called lightning_gpuaug.sources.TFRecrd; nearest: TFRecord"),
    ("{class_path: Qqq}", ": no source is called Qqq; there are LMDB, Examples, FileList, ImageFolder, NumpyFolder, "),
    ("{class_path: torch.nn.Linear}", ": Import path torch.nn.Linear does not correspond to a subclass of Source"),
    ("{root: x}", ": a source is {class_path: …, init_args: {…}}, got {'root': 'x'}"),
    ("{class_path: ImageFolder, init_args: {root: ''}}", ": ImageFolder.root must be the path of a folder, got ''"),
    ("{class_path: Synthetic, init_args: {num_classes: -3}}", ": Synthetic.num_classes must be a whole number in 1.."),
    ("''", " is empty; give it a folder or a source, or leave it out"),
]  # fmt: skip


def line_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert main([*args]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set")]
    return line


@pytest.mark.parametrize(("source", "line"), WRONG)
def test_on_the_command_line(source: str, line: str, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given = [option for option in tiny if not option.startswith("--data.train=")]
    told = line_of(capsys, "fit", *given, f"--data.train={source.strip(chr(39))}")
    assert told.startswith(f"gpuaug fit: error: data.train{line}")


@pytest.mark.parametrize(("source", "line"), WRONG)
def test_in_a_file(source: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text(f"data: {{train: {source}, batch_size: 4}}\n")
    told = line_of(capsys, "audit", f"--config={tmp_path / 'c.yaml'}")
    assert told.startswith(f"gpuaug audit: error: data.train{line}")


def test_of_a_stage_that_does_not_tell_the_classes(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is looked at until the run begins."""
    told = line_of(capsys, "predict", *tiny, "--data.predict={class_path: Synthetic, init_args: {num_classes: -3}}")
    assert told.startswith("gpuaug predict: error: data.predict: Synthetic.num_classes must be a whole number in 1..")


@pytest.mark.parametrize("option", ["--data.train.init_args.missing=skp", "--data.train.missing=skp"])
def test_a_field_alone(option: str, tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert line_of(capsys, "fit", *tiny, option) == (
        "gpuaug fit: error: data.train.missing: fields of a source are given with the source, in a file or as "
        "--data.train='{class_path: …, init_args: {missing: …}}', got 'skp' alone"
    )
