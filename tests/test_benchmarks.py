"""The scripts in benchmarks/: they import, explain themselves, and share one way to describe the machine."""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in ("__init__", "report"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    main = importlib.import_module(f"benchmarks.{name}").main
    with contextlib.suppress(SystemExit):
        main()
    assert "usage: " in capsys.readouterr().out


def test_what_the_benchmarks_share_is_defined_once() -> None:
    places: dict[str, list[str]] = {"environment": [], "time_calls": [], "copy_timing": [], "images_per_second": []}
    for folder in ("benchmarks", "lightning_gpuaug"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name in places:
                    places[node.name].append(path.name)
    assert places == {
        "environment": ["environment.py"],
        "time_calls": ["timing.py"],
        "copy_timing": ["timing.py"],
        "images_per_second": ["timing.py"],
    }
