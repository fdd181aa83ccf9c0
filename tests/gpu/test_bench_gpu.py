"""`gpuaug bench` and `gpuaug doctor` where there is a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_gpuaug import Synthetic
from lightning_gpuaug.cli import main

# Lightning's own use of jsonargparse, as in tests/cli/conftest.py.
_BESIDE_THE_POINT = r"ignore:(?s).*(deprecated in v4|JsonargparseDeprecationWarning|JSONARGPARSE_DEPRECATION_WARNINGS)"
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings(_BESIDE_THE_POINT)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    source = Synthetic(length=256, height=120, width=160, cache_dir=tmp_path_factory.mktemp("jpeg"))
    root = Path(source.paths[0]).parent.parent
    return [f"--data.train={root}", "--data.batch_size=32", "--data.image_size=64", "--seconds=0.1"]


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    capsys.readouterr()
    code = main([*args, "--json"])
    out = capsys.readouterr().out
    assert code in (0, 1) if args[0] == "doctor" else code == 0, out
    found: dict[str, Any] = json.loads(out)
    return found


def test_loader_and_its_stages(data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chart = tmp_path / "l.png"
    options = ["--rounds=1", "--workers=2", "--data.hw_decoder_load=1.0", f"--chart={chart}"]
    found = printed(capsys, "bench", "loader", *data, *options)
    assert found["settings"]["decode"] == "gpu"
    assert found["missing"] == {}
    assert [row["kind"] for row in found["rows"]] == ["loader", *["peer"] * 3, *["stage"] * 5]
    assert all(row["img_per_s"] > 0 for row in found["rows"])
    assert chart.exists()


def test_tune_varies_where_images_are_decoded(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuned.yaml"
    found = printed(capsys, "bench", "loader", *data, "--tune", "--budget=60", f"--overlay={path}")
    assert {row["decode"] for row in found["rows"]} == {"cpu", "gpu"}
    written = yaml.safe_load(path.read_text())["data"]
    assert written == {k: v for k, v in found["best"].items() if k != "hw_decoder_load" or written["decode"] == "gpu"}


def test_augment_is_checked_against_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "bench", "augment", "--batch=8", "--size=32", "--only-ours")
    assert found["settings"]["device"].startswith("cuda")
    assert any("CUDA graph" in row["what"] for row in found["rows"])
    assert all(row["median_us"] > 0 for row in found["rows"])


def test_doctor_tries_both_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "doctor", "--seconds=1")
    levels = {finding["check"]: finding["level"] for finding in found["findings"]}
    for check in ("driver", "torch", "dali", "native ops", "cuda queues", "decoding on the CPU", "decoding on the GPU"):
        assert levels[check] in ("ok", "note"), found
