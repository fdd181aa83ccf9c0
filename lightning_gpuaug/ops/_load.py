"""Find and load the native libraries."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

CPU_LIBRARY = "lightning_gpuaug_cpu.so"
CUDA_LIBRARY = "lightning_gpuaug_cuda.so"


@dataclass(frozen=True)
class NativeLibraries:
    """What was loaded, and why the rest was not.

    Attributes:
        cpu: the loaded library of schemas and CPU kernels, or None.
        cuda: the loaded library of CUDA kernels, or None.
        cpu_missing: why there is no CPU library; empty when there is.
        cuda_missing: why there is no CUDA library; empty when there is.
    """

    cpu: Path | None
    cuda: Path | None
    cpu_missing: str
    cuda_missing: str


def native_required() -> bool:
    """Whether `GPUAUG_REQUIRE_NATIVE=1` turns every fallback to plain torch into an error."""
    return os.environ.get("GPUAUG_REQUIRE_NATIVE", "") not in ("", "0")


def load_native() -> NativeLibraries:
    """Load the libraries from `lightning_gpuaug/_native`, or from the folder that `GPUAUG_NATIVE_DIR` names.

    Raises:
        RuntimeError: a library is there and does not load, the CUDA library is there without the CPU library, or there
            is no library and `GPUAUG_REQUIRE_NATIVE=1`.
    """
    override = os.environ.get("GPUAUG_NATIVE_DIR")
    folder = Path(override) if override else Path(__file__).resolve().parent.parent / "_native"
    cpu, cuda = folder / CPU_LIBRARY, folder / CUDA_LIBRARY
    if not cpu.is_file():
        if cuda.is_file():
            raise RuntimeError(f"{cuda} is there without {cpu.name}, which it needs; rebuild with `pip install .`")
        missing = f"{cpu} not found (not built)"
        if native_required():
            raise RuntimeError(f"GPUAUG_REQUIRE_NATIVE=1, but the native ops are missing: {missing}")
        return NativeLibraries(None, None, missing, missing)
    _load(cpu)
    if torch.version.cuda is None:
        return NativeLibraries(cpu, None, "", f"torch {torch.__version__} is built without CUDA")
    if not cuda.is_file():
        return NativeLibraries(cpu, None, "", f"{cuda} not found (built without nvcc or with GPUAUG_CUDA=0)")
    _load(cuda)
    return NativeLibraries(cpu, cuda, "", "")


def _load(path: Path) -> None:
    try:
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as error:
        linker = error.__cause__ or error  # torch wraps what the dynamic linker said
        cause = next(iter(str(linker).splitlines()), type(linker).__name__).removeprefix(f"{path}: ")
        raise RuntimeError(
            f"{path} is there but does not load with torch {torch.__version__}: {cause}; rebuild it or remove it"
        ) from error


def require_ops(libraries: NativeLibraries, names: Iterable[str]) -> None:
    """Check that the loaded CPU library, if there is one, has the schemas of these ops.

    Raises:
        RuntimeError: it lacks one, for it was built from another version of the package.
    """
    for name in names:
        if libraries.cpu is not None and not hasattr(torch.ops.lightning_gpuaug, name):
            raise RuntimeError(
                f"{libraries.cpu} was built from another version of this package: it has no {name}; rebuild it with "
                "`pip install .` or remove it"
            )


NATIVE = load_native()
