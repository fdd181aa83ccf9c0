"""Tables for the reader and documents for the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_gpuaug.bench.environment import Environment

SCHEMA_VERSION = 1


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under their columns, numbers to the right."""
    texts = [list(columns), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    lines = []
    for row in texts:
        cells = zip(row, widths, numeric, strict=True)
        lines.append("  ".join(c.rjust(w) if number else c.ljust(w) for c, w, number in cells).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
    return str(value)


def document(
    title: str, environment: Environment, settings: dict[str, Any], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """What `--json` writes: `schema`, `title`, `environment`, `settings`, `rows`."""
    return {
        "schema": SCHEMA_VERSION,
        "title": title,
        "environment": environment,
        "settings": settings,
        "rows": rows,
    }


def write_json(found: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a document; its folder is made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(found, indent=2) + "\n")
