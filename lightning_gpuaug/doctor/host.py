"""CPU cores that this process may really use, shared memory."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from lightning_gpuaug.doctor.finding import Finding, note, ok, problem

_GIB = 2**30
_SHM_ENOUGH = _GIB
"""Docker's default is 64 MiB; sixteen workers with a few batches of 256 float images want gigabytes."""
_THREADS_MOST = 16
"""What `num_threads="auto"` takes at most (`ImageDataModule`)."""


def cores(affinity: int, machine: int, quota: float | None, gpus: int) -> Finding:
    """Cores: of the machine, allowed by affinity, paid for by the cgroup.

    Args:
        affinity: cores that the process may run on.
        machine: cores that there are.
        quota: cores' worth of time that the cgroup grants; None without a limit.
        gpus: GPUs of this machine that want to be fed.
    """
    found = f"{affinity} of {machine} cores" if affinity < machine else f"{machine} cores"
    if quota is not None:
        found += f", cgroup quota {quota:g}"
    auto = min(_THREADS_MOST, affinity)
    if quota is not None and quota < auto:
        whole = max(1, math.floor(quota))
        return problem(
            "cpu",
            found,
            f'num_threads="auto" sees {affinity} cores and the quota pauses the process when they are used: set '
            f"data.num_threads={whole}, or give the container more CPUs (docker --cpus, Kubernetes limits.cpu)",
        )
    usable = min(affinity, quota) if quota is not None else affinity
    if gpus and usable / gpus < 4:
        return note(
            "cpu",
            f"{found} for {gpus} GPU(s)",
            "fewer than 4 cores a GPU: decode on the GPU (data.decode=gpu, the default there)"
            + ("; taskset, Slurm or the container limit this process" if affinity < machine else ""),
        )
    return ok("cpu", found)


def cgroup_quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float | None:
    """Cores' worth of CPU time that the control groups grant this process, the tightest of them; None for no limit.

    Args:
        root: where control groups are mounted.
        own: which groups this process is in.
    """
    limits = [limit for folder in _groups(root, own) if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _groups(root: Path, own: Path) -> Iterator[Path]:
    """Folders of this process's CPU groups, each with its parents; within a container often the mount itself."""
    yield root
    yield root / "cpu"
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        parts = Path(path.lstrip("/")).parts
        for depth in range(1, len(parts) + 1):
            yield base.joinpath(*parts[:depth])


def _limit(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():  # version 2: "QUOTA PERIOD", "max PERIOD" for none
            quota, period = (folder / "cpu.max").read_text().split()
            return None if quota == "max" else int(quota) / int(period)
        if (folder / "cpu.cfs_quota_us").is_file():  # version 1: -1 for none
            quota_us = int((folder / "cpu.cfs_quota_us").read_text())
            return None if quota_us < 0 else quota_us / int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        pass
    return None


def shared_memory(path: Path = Path("/dev/shm")) -> Finding:
    """Size of /dev/shm, which a torch DataLoader's workers hand their batches through; DALI does without."""
    try:
        total, _, free = shutil.disk_usage(path)
    except OSError:
        return note("shared memory", f"no {path}", "torch DataLoaders with workers need it; ImageDataModule does not")
    found = f"{path}: {_size(total)}, {_size(free)} free"
    if total < _SHM_ENOUGH:
        return note(
            "shared memory",
            found,
            "enough for ImageDataModule; a torch DataLoader with workers dies of a bus error: docker run --shm-size=8g",
        )
    return ok("shared memory", found)


def check_host(gpus: int) -> Iterator[Finding]:
    """Cores and shared memory of this machine, for so many GPUs."""
    yield cores(len(os.sched_getaffinity(0)), os.cpu_count() or 1, cgroup_quota(), gpus)
    yield shared_memory()


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / 2**20:.0f} MiB"
