"""Tables, and what the environment tells."""

from __future__ import annotations

import json
from pathlib import Path

from lightning_gpuaug.bench.environment import environment, machine, one_line
from lightning_gpuaug.bench.report import document, table, write_json


def test_columns_are_aligned_numbers_to_the_right() -> None:
    text = table(["what", "img/s"], [["ours", 12345.6], ["a longer name", 7.25], ["none", None]])
    assert text.splitlines() == [
        "what            img/s",
        "ours           12,346",
        "a longer name    7.25",
        "none                -",
    ]


def test_the_environment_is_flat_and_goes_into_json(tmp_path: Path) -> None:
    facts = environment()
    assert all(isinstance(value, str | int | None) for value in facts.values())
    assert {"gpu", "cpu", "cpus", "python", "torch", "cuda", "backend", "command", "max_connections"} <= set(facts)
    assert "None" not in one_line(facts)
    assert str(facts["cpus"]) in machine(facts)
    write_json(document("t", facts, {"a": 1}, [{"b": 2.0}]), tmp_path / "new" / "x.json")
    assert json.loads((tmp_path / "new" / "x.json").read_text()) == {
        "schema": 1, "title": "t", "environment": facts, "settings": {"a": 1}, "rows": [{"b": 2.0}],
    }  # fmt: skip
