"""One table of a benchmark, for the reader and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning_gpuaug.bench.environment import environment, one_line
from lightning_gpuaug.bench.report import document, table, write_json

__all__ = ["environment", "publish"]


def publish(title: str, columns: list[str], rows: list[list[Any]], output: str | Path | None) -> None:
    """Print a table, and write it with the environment as JSON if `output` is a path."""
    facts = environment()
    print(f"\n{title}\n{table(columns, rows)}\n{one_line(facts)}", flush=True)
    if output:
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        write_json(document(title, facts, {}, records), output)
