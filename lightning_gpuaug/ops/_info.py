"""Which backend serves the ops, and how it was built."""

from __future__ import annotations

import json
from typing import Literal

import torch

from lightning_gpuaug.ops._load import NATIVE


def backend(device: torch.device | str) -> Literal["native-cuda", "native-cpu", "torch"]:
    """The backend that serves the ops on `device`: a native one, or `"torch"` for the plain-torch fallback."""
    kind = torch.device(device).type
    if kind == "cpu" and NATIVE.cpu is not None:
        return "native-cpu"
    if kind == "cuda" and NATIVE.cuda is not None:
        return "native-cuda"
    return "torch"


def build_info() -> dict[str, str | None]:
    """How the native ops were built; every value that does not apply is None.

    Returns:
        `cpu_library`, `cuda_library`: paths of the loaded libraries; `cpu_missing`, `cuda_missing`: why there is none;
        `compiler`: the C++ compiler; `torch_target`: the oldest torch that can load them; `torch_headers`: the torch
        they were built against; `torch`: the torch that runs now; `cuda`: the CUDA toolkit; `cuda_archs`: the compute
        capabilities with machine code, and the one with PTX.
    """
    info: dict[str, str | None] = {
        "cpu_library": str(NATIVE.cpu) if NATIVE.cpu else None,
        "cuda_library": str(NATIVE.cuda) if NATIVE.cuda else None,
        "cpu_missing": NATIVE.cpu_missing or None,
        "cuda_missing": NATIVE.cuda_missing or None,
        "compiler": None,
        "torch_target": None,
        "torch_headers": None,
        "torch": str(torch.__version__),
        "cuda": None,
        "cuda_archs": None,
    }
    if NATIVE.cpu:
        info.update(json.loads(torch.ops.lightning_gpuaug.build_info()))
    if NATIVE.cuda:
        info.update(json.loads(torch.ops.lightning_gpuaug.cuda_build_info()))
    return info
