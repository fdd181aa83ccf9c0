"""Imports go down only; each foreign library has one door."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "lightning_gpuaug"
NAME = PACKAGE.name

# The higher may import the lower, and its own level.
LEVELS = {
    "cli": 6,
    "bench": 5, "doctor": 5,
    "data": 4, "resume": 4, "training_state": 4, "announce": 4, "steps_ahead": 4, "classifier": 4, "callbacks": 4,
    "tools": 4,
    "loader": 3, "augment": 3, "bad_images": 3, "finish": 3, "hw_decoder": 3, "prepare": 3,
    "compat": 3,
    "pipeline": 2, "ops": 2, "plan": 2, "sources": 2, "grid": 2,
    "recipe": 1, "ranges": 1, "timings": 1, "turns": 1, "cuda_queues": 1, "arguments": 1, "devices": 1,
}  # fmt: skip
# `bench` measures beside others, and imports them in functions alone (tests/bench/test_loader_bench.py).
DOORS = {"nvidia.dali": {"pipeline", "bench"}, "timm": {"classifier", "bench"}, "torchmetrics": {"classifier"}}
PEERS = {"cli/peers.py": {"timm"}, "cli/origins.py": {"timm"}}  # files that compare with a library may import it
ALONE = {"ops": {"torch"}, "recipe": set(), "cuda_queues": {"torch"}, "ranges": {"torch"}}

FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Every absolute module name that a file imports, function bodies and TYPE_CHECKING included."""
    package = [NAME, *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            if base == NAME:  # `from lightning_gpuaug import ops` imports the room
                for alias in node.names:
                    yield f"{NAME}.{alias.name}", node.lineno
            else:
                yield base, node.lineno


def violations(path: Path, names: Iterator[tuple[str, int]]) -> list[str]:
    own, found = room(path), []
    for name, line in names:
        where = f"{path.name}:{line} imports {name}"
        if name.startswith(f"{NAME}."):
            other = name.split(".")[1]
            if other not in LEVELS:
                found.append(f"{where}, a room without a level")
            elif other != own and LEVELS[other] > LEVELS[own]:
                found.append(f"{where}, which lies above {own}")
            elif own in ALONE and other not in (own, *ALONE):
                found.append(f"{where}, but {own} stands alone")
            continue
        top = name.split(".")[0]
        for library, rooms in DOORS.items():
            may = own in rooms or library in PEERS.get(str(path.relative_to(PACKAGE)), ())
            if (name == library or name.startswith(f"{library}.")) and not may:
                found.append(f"{where}, which only {sorted(rooms)} may")
        if own in ALONE and top not in (*ALONE[own], *sys.stdlib_module_names):
            found.append(f"{where}, but {own} may use {sorted(ALONE[own]) or 'the standard library'} alone")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    assert room(path) in LEVELS, f"{room(path)} has no level: give it one"
    assert violations(path, imported(path)) == []


@pytest.mark.parametrize(
    ("room_file", "source", "complaint"),
    [
        ("sources/x.py", "from lightning_gpuaug.data import ImageDataModule", "above"),
        ("callbacks/x.py", "import nvidia.dali.fn as fn", "only"),
        ("cli/x.py", "def f():\n    import timm", "only"),
        ("ops/x.py", "import numpy", "alone"),
        ("recipe.py", "import torch", "alone"),
        ("sources/x.py", "from ..loader import Loader", "above"),
    ],
)
def test_the_rule_bites(
    room_file: str, source: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / room_file
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    found = violations(path, imported(path))
    assert len(found) == 1
    assert complaint in found[0]
