"""YAML: duplicate keys are found, and values mean what they look like."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.strict_yaml import DuplicateKeyError, load, read


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", (1, 3)),
        ("data:\n  train: x\n  val: y\n  train: z\n", "data.train", (2, 4)),
        ("data: {train: x, train: x}\n", "data.train", (1, 1)),
        ("t:\n  callbacks:\n  - a: 1\n    b: 2\n    a: 3\n", "t.callbacks[0].a", (3, 5)),
        ("a: 1\n'a': 2\n", "a", (1, 2)),
        ("data.batch_size: 4\ndata:\n  batch_size: 16\n", "data.batch_size", (1, 3)),
        ("trainer: {max_epochs: 3}\ntrainer.max_epochs: 3\n", "trainer.max_epochs", (1, 2)),
        ("data:\n  r.crop.scale: 1\n  r: {crop: {\n    scale: 2}}\n", "data.r.crop.scale", (2, 4)),
    ],
)
def test_duplicate_key(text: str, key: str, lines: tuple[int, int]) -> None:
    with pytest.raises(DuplicateKeyError) as caught:
        load(text, of_options=True)
    assert str(caught.value) == f"key `{key}` is given twice, on lines {lines[0]} and {lines[1]}; keep one"


def test_a_dictionary_of_somebodys_own_may_have_any_keys(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: {layers: {layer4.0: 1, layer4: {c: 2}}, extra: {class_path: a, other: 3}}\n")
    assert read(path)["model"] == {
        "layers": {"layer4.0": 1, "layer4": {"c": 2}},
        "extra": {"class_path": "a", "other": 3},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.seed: 16\ndata: {batch_size: 4}\n", "key `data.seed` on line 1 stands beside `data` on line 2"),
        ("data: {batch_size: 4}\n\ndata.r.hflip: 1\n", "key `data.r.hflip` on line 3 stands beside `data` on line 1"),
        ("data: Class\ndata.seed: 1\n", "key `data.seed` on line 2 stands beside `data` on line 1"),
        ("data: {a.b: 1, a: {c: 2}}\n", "key `data.a.b` on line 1 stands beside `data.a` on line 1"),
    ],
)
def test_parts_of_one_thing_in_two_places_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(TypeError) as caught:
        read(tmp_path / "c.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'c.yaml'}: {message}; write it inside `")


def test_dotted_keys_of_a_file_come_nested(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data.train: x\ndata.r.hflip: 0.1\nmodel: {model_args: {a: 1, a.b: 2}}\n")
    wanted = {"data": {"train": "x", "r": {"hflip": 0.1}}, "model": {"model_args": {"a": 1, "a.b": 2}}}
    assert read(tmp_path / "c.yaml") == wanted


def test_same_key_in_two_mappings_is_fine() -> None:
    assert load("a: {x: 1}\nb: {x: 2}\n") == {"a": {"x": 1}, "b": {"x": 2}}


def test_merge_keys_still_work() -> None:
    assert load("base: &b {x: 1}\nc:\n  <<: *b\n  y: 2\n")["c"] == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E5", 1e5), ("2.5e-4", 2.5e-4), ("-.5", -0.5), ("1.", 1.0), ("0.0", 0.0), (".inf", math.inf),
        ("7", 7), ("-3", -3), ("0", 0), ("1_000", 1000),
        ("010", "010"), ("007", "007"), ("0x1F", "0x1F"),
        ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("None", None),
        ("2026-01-01", "2026-01-01"), ("12:30", "12:30"), ("1e", "1e"), (".", "."),
    ],
)  # fmt: skip
def test_scalars(text: str, value: object) -> None:
    got = load(f"key: {text}")["key"]
    assert got == value
    assert type(got) is type(value)


def test_what_is_not_yaml_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError):
        load("a: [1, 2")


@pytest.mark.parametrize("command", ["fit", "audit", "preview"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"data: [\n", "is not YAML: line 2: expected the node content"),
        (b"a: b: c\n", "is not YAML: line 1: mapping values are not allowed here"),
        (b"data:\n\ttrain: x\n", "is not YAML: line 2: found character '\\t'"),
        (b"data: {train: 'a\x01'}\n", "is not YAML: unacceptable character"),
        (b"\xff\xfe\0", "is not YAML: 'utf-8' codec can't decode"),
        (b"data: &a {train: *a}\n", "is not YAML: it is nested too deeply, or holds itself"),
        (b"- 1\n", "a configuration must be a mapping, got list"),
        (b"a: 1\na: 2\n", "key `a` is given twice"),
        (
            b"data: {seed: 1, init_args: {}}\n",
            "data: `seed` stands beside init_args, which mixes the short and the long",
        ),
        (b"data: {train: {class_path: A, root: x}}\n", "data.train: `root` stands beside class_path; "),
        (
            b"trainer: {callbacks: [{class_path: A, y: 1}]}\n",
            "trainer.callbacks[0]: `y` stands beside class_path; arguments of a class go into init_args",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(
    command: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "bad.yaml"
    config.write_bytes(content)
    assert main([command, f"--config={config}"]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"gpuaug {command}: error: {config}: {message}")
