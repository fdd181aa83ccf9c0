"""What a run ran on and how it was set: text for the report's tables. Starts no process."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

_PACKAGES = (
    "lightning-gpuaug", "torch", "lightning", "torchvision", "timm", "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
)  # fmt: skip

# Attributes of a data module or data loader that say how fast it can be, where it has them.
_DATA = ("batch_size", "image_size", "num_threads", "num_workers", "prefetch", "prefetch_factor", "pin_memory",
         "persistent_workers", "decode", "hw_decoder_load", "dtype", "channels_last", "drop_last")  # fmt: skip


def surroundings(device: torch.device) -> dict[str, str]:
    """Versions and hardware of this process.

    Args:
        device: on which it trains.
    """
    found = {name: version for name in _PACKAGES if (version := _version(name)) is not None}
    found["Python"] = platform.python_version()
    if torch.version.cuda:
        found["CUDA"] = str(torch.version.cuda)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["GPU"] = f"{properties.name}, compute capability {properties.major}.{properties.minor}"
        found["cuDNN"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
    found["CPU"] = f"{_cpu()}, {_cores()} cores for this process, {os.cpu_count()} in all"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found["memory"] = f"{memory:,.0f} GiB"
    found["system"] = platform.platform()
    return found


def settings(trainer: pl.Trainer, pl_module: pl.LightningModule) -> dict[str, str]:
    """How the run was set."""
    chosen: dict[str, Any] = {
        "model": _model(pl_module),
        "data": _data(trainer),
        "parameters": f"{sum(parameter.numel() for parameter in pl_module.parameters()):,}",
        "precision": trainer.precision,
        "strategy": type(trainer.strategy).__name__,
        "ranks": trainer.world_size,
        "nodes": trainer.num_nodes,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "epochs": f"{trainer.current_epoch} of {trainer.max_epochs}" if trainer.max_epochs else None,
        "optimizer steps": f"{trainer.global_step:,}",
        "cudnn.benchmark": torch.backends.cudnn.benchmark if torch.cuda.is_available() else None,
        **_data_settings(trainer),
    }
    return {name: str(value) for name, value in chosen.items() if value is not None}


def _model(pl_module: pl.LightningModule) -> str:
    inner = pl_module.hparams.get("model") or pl_module.hparams.get("model_name")
    name = type(pl_module).__name__
    return f"{name} ({inner})" if isinstance(inner, str) else name


def _data(trainer: pl.Trainer) -> str | None:
    if trainer.datamodule is not None:  # type: ignore[attr-defined]
        return type(trainer.datamodule).__name__  # type: ignore[attr-defined]
    return None if trainer.train_dataloader is None else type(trainer.train_dataloader).__name__


def _data_settings(trainer: pl.Trainer) -> dict[str, Any]:
    sources = (trainer.datamodule, trainer.train_dataloader)  # type: ignore[attr-defined]
    chosen = {}
    for name in _DATA:
        values = (getattr(source, name, None) for source in sources)
        plain = next((value for value in values if isinstance(value, str | int | float)), None)
        if plain is not None:
            chosen[name] = plain
    return chosen


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
