"""What every benchmark prints beside its figures: the machine, the versions, the command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("torch", "torchvision", "lightning", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "timm", "numpy")


def environment() -> dict[str, Any]:
    """Hardware, versions and command of this run."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "gpu": gpu,
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "max_connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"),
        **versions,
    }


def publish(title: str, columns: list[str], rows: list[list[Any]], output: str | None) -> None:
    """Print a table, and write it with the environment as JSON if `output` is a path."""
    texts = [columns, *[[f"{cell:,.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    print(f"\n{title}")
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    env = environment()
    print(", ".join(f"{key} {value}" for key, value in env.items() if value is not None), flush=True)
    if output:
        records = [dict(zip(columns, row, strict=True)) for row in rows]
        Path(output).write_text(json.dumps({"title": title, "environment": env, "rows": records}, indent=1) + "\n")
