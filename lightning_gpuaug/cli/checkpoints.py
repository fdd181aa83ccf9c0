"""What the training commands want to know of the checkpoint that `ckpt_path` names."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from lightning_gpuaug.cli.errors import UsageError

# What a Trainer looks up by itself.
_WORDS = ("last", "hpc")


@dataclass(frozen=True)
class Checkpoint:
    """Of a checkpoint file.

    Attributes:
        num_classes: of its model, if it says so.
    """

    num_classes: int | None


def read_checkpoint(path: str) -> Checkpoint | None:
    """Read what is needed of the file at `path`, no weights; None where there is no such file for others to judge.

    Those are the Trainer's words ("last", "hpc"), names in a registry, addresses, and the folders that sharded
    strategies write.

    Raises:
        UsageError: no such file, it is no checkpoint, or "best", of which a new process knows nothing.
    """
    if not path:
        raise UsageError("ckpt_path is empty; give it the path of a checkpoint, or leave it out")
    if path == "best" and not Path(path).exists():
        raise UsageError("ckpt_path: best is known to nothing but the run that trained; give the file's path, or last")
    if path in _WORDS or path.startswith("registry") or "://" in path:
        return None
    if not Path(path).exists():
        raise UsageError(f"ckpt_path: no such checkpoint: {path} (seen from {Path.cwd()})")
    if Path(path).is_dir():
        return None
    if not os.access(path, os.R_OK):
        raise UsageError(f"ckpt_path: {path} cannot be read: no permission")
    try:
        # Weights are left on the disk (files from before torch 1.6 cannot be mapped).
        found = torch.load(path, weights_only=True, map_location="cpu", mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever a damaged pickle may raise
        reason = "objects that are not plain values and tensors" if zipfile.is_zipfile(path) else "no checkpoint"
        raise UsageError(f"ckpt_path: {path} cannot be loaded: it is damaged, or holds {reason}") from error
    if not isinstance(found, Mapping) or "state_dict" not in found:
        raise UsageError(f"ckpt_path: {path} is not a Trainer's checkpoint: it has no state_dict")
    parameters = found.get("hyper_parameters")
    number = parameters.get("num_classes") if isinstance(parameters, Mapping) else None
    return Checkpoint(number if isinstance(number, int) and number > 0 else None)
