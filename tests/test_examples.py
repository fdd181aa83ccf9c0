"""The examples run, on a tiny tree, and do what they say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from lightning_gpuaug.cli.digits import DigitsTree, write_digits

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SMALL = ["--image-size", "32", "--batch-size", "16"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval.*"),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks on a busy machine: threads would spend their time waiting for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> DigitsTree:
    return write_digits(tmp_path_factory.mktemp("digits"), limit=80)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_drop_in(tree: DigitsTree, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = load("drop_in").main(["--train", str(tree.train), "--val", str(tree.val), "--epochs", "1", *SMALL])
    n_train = len(list(tree.train.glob("*/*.jpg")))
    assert trainer.global_step == n_train // 16
    assert 0.0 <= float(trainer.callback_metrics["val/top1"]) <= 1.0
    assert "images/s" in capsys.readouterr().out


def test_plain_loop(tree: DigitsTree, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = load("plain_loop").main(["--train", str(tree.train), "--val", str(tree.val), "--epochs", "2", *SMALL])
    n_val = len(list(tree.val.glob("*/*.jpg")))
    assert (accuracy * n_val) == pytest.approx(round(accuracy * n_val))
    assert f"on {n_val} images" in capsys.readouterr().out


def test_fabric(tree: DigitsTree) -> None:
    seen = load("fabric").main(["--train", str(tree.train), "--epochs", "2", *SMALL])
    n_train = len(list(tree.train.glob("*/*.jpg")))
    assert seen == 2 * (n_train // 16) * 16


def test_fabric_on_two_processes(tree: DigitsTree) -> None:
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / "fabric.py"), "--train", str(tree.train)]
    command += ["--epochs", "2", "--devices", "2", *SMALL]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    steps = len(list(tree.train.glob("*/*.jpg"))) // 2 // 16
    told = [line for line in done.stdout.splitlines() if line.startswith("epoch ")]
    assert told == [f"epoch {epoch}: {steps} steps on each of 2 devices" for epoch in range(2)]


def test_profile_any_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--images", "64", "--image-size", "16", "--batch-size", "4", "--workers", "0", "--folder", str(tmp_path)]
    report = load("profile_any_run").main(small)
    assert report.path == tmp_path / "report.html"
    assert "YourModel" in report.path.read_text()
    assert f"open {report.path}" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80
