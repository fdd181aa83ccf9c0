"""`gpuaug audit`: a configuration's plans, walked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightning_gpuaug import data as data_module
from lightning_gpuaug.cli import main
from lightning_gpuaug.plan import Indices, Plan
from tests.tools.broken import write_tree


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    write_tree(tmp_path / "train", good=11)
    write_tree(tmp_path / "val", good=4)
    return [f"--data.train={tmp_path / 'train'}", f"--data.val={tmp_path / 'val'}", "--data.batch_size=3"]


def test_a_sound_configuration_is_0(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *options]) == 0
    out = capsys.readouterr().out
    assert "1→2→1" in out
    assert "broken" not in out
    assert main(["audit", *options, "--world", "[1,3]", "--epochs=3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["stage"], row["worlds"]) for row in rows] == [
        ("train", [1]), ("train", [3]), ("train", [1, 3, 1]), ("val", [1]), ("val", [3]),
    ]  # fmt: skip
    assert [row["left_out"] for row in rows] == [1, 4, 1, 0, 0]
    assert rows[0]["epochs"] == 3
    assert rows[3]["samples"] == 8
    assert all(row["missing"] == row["twice"] == 0 for row in rows)


def test_a_configuration_file_and_its_seed(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("seed_everything: 5\ntrainer: {devices: 8}\nmodel: {model: none}\ndata: {batch_size: 7}\n")
    assert main(["audit", "--config", str(config), *options[:2], "--world", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["batch_size"] == 7
    assert [row["worlds"] for row in rows] == [[2], [2]]


def test_worlds_that_are_too_large_are_refused_if_asked_for(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *options, "--world", "8"]) == 1
    captured = capsys.readouterr().out
    assert "refused" in captured
    assert "22 samples do not fill one batch" in captured


@dataclass(frozen=True)
class Forgets(Plan):
    def batch(self, epoch: int, step: int, consumed: int = 0) -> Indices:
        rows = super().batch(epoch, step, consumed)
        return rows[rows != 4]


def test_a_broken_promise_is_1(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_module, "Plan", Forgets)
    assert main(["audit", *options, "--world", "[1,2]"]) == 1
    out = capsys.readouterr().out
    assert "broken" in out
    assert "val, 1 rank(s): epoch 0: 1 samples missing (0 may be), the first is 4" in out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--epochs=0"], "--epochs must be at least 1"),
        (["--world=[2,2]"], "--world must be numbers of ranks from 1, each once"),
        (["--data.batch_size=0"], "batch_size"),
    ],
)
def test_wrong_usage_is_2(
    options: list[str], more: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *options, *more]) == 2
    assert complaint in capsys.readouterr().err


def test_no_data_is_2_and_missing_data_is_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["audit"]) == 2
    assert "no data" in capsys.readouterr().err
    assert main(["audit", f"--data.train={tmp_path / 'none'}"]) == 1
    assert "no such folder" in capsys.readouterr().err
