"""What every benchmark tells beside its figures: the machine, the versions, the command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import torch

from lightning_gpuaug import cuda_queues, ops

PACKAGES = (
    "torch", "torchvision", "lightning", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "timm", "kornia", "numpy",
    "pillow",
)  # fmt: skip

Environment = dict[str, str | int | None]


def environment() -> Environment:
    """Hardware, versions and command of this run; None for what does not apply."""
    found: Environment = {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "gpu": None,
        "compute_capability": None,
        "multiprocessors": None,
        "l2_bytes": None,
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "max_connections": cuda_queues.in_force(),
        "backend": ops.backend("cuda" if torch.cuda.is_available() else "cpu"),
        "cuda_archs": ops.build_info()["cuda_archs"],
    }
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        found["gpu"] = card.name
        found["compute_capability"] = f"{card.major}.{card.minor}"
        found["multiprocessors"] = card.multi_processor_count
        found["l2_bytes"] = card.L2_cache_size
    return found | versions()


def versions() -> dict[str, str]:
    """Installed version of each package that the figures may depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def one_line(found: Environment) -> str:
    """The environment for a reader: `key value, key value`, without what does not apply."""
    return ", ".join(f"{key} {value}" for key, value in found.items() if value is not None)


def machine(found: Environment) -> str:
    """The small print of a chart."""
    gpu = f"{found['gpu']}, " if found["gpu"] else ""
    return f"{gpu}{found['cpu']} ({found['cpus']} CPUs), torch {found['torch']}, {found['backend']}"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
