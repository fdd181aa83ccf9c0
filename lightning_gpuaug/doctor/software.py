"""Versions that have to fit together: driver, torch, DALI, the native libraries."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Iterator, Mapping

from lightning_gpuaug.doctor.cards import Driver
from lightning_gpuaug.doctor.finding import Finding, note, ok, problem

_FLAVOURS = {"nvidia-dali-cuda120": 12, "nvidia-dali-cuda130": 13}
_OLDEST_DALI, _TOO_NEW_DALI = (2, 4), (3,)


def check_driver(driver: Driver) -> Finding:
    """The driver and what it drives."""
    if driver.version is None:
        if driver.traces:
            return problem(
                "driver",
                f"there are signs of an NVIDIA GPU, but the driver does not answer: {driver.trouble}",
                "see whether nvidia-smi works; after a driver update reboot, in a container use --gpus all",
            )
        return note("driver", "no NVIDIA GPU here", "none is needed: the CPU decodes and trains, slower")
    cuda = ".".join(map(str, driver.cuda))
    names = [card.name for card in driver.cards]
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "no GPU"
    found = f"driver {driver.version} (CUDA {cuda}): {counted}"
    if not driver.cards:
        return problem("driver", found, "the driver sees no GPU: look at dmesg and lspci")
    if any(card.in_mig for card in driver.cards):
        return note(
            "driver",
            f"{found}, divided (MIG)",
            "an instance has a share of the JPEG engines: measure with gpuaug bench",
        )
    return ok("driver", found)


def check_torch(version: str, built_for: str | None, available: bool, count: int, driver: Driver) -> Finding:
    """Whether torch can use the GPUs that the driver sees.

    Args:
        version: of torch.
        built_for: torch.version.cuda.
        available: torch.cuda.is_available().
        count: torch.cuda.device_count().
        driver: as NVML tells.
    """
    found = f"torch {version}, " + (f"built for CUDA {built_for}" if built_for else "built without CUDA")
    if available:
        hidden = len(driver.cards) - count
        found += f", uses {count} GPU(s)"
        if hidden > 0 and not any(card.in_mig for card in driver.cards):
            return note("torch", f"{found} of {len(driver.cards)}", "CUDA_VISIBLE_DEVICES or the job hides the others")
        return ok("torch", found)
    if not driver.cards:
        return ok("torch", found)
    if built_for is None:
        return problem(
            "torch",
            f"{found}, and there is a GPU",
            "install a CUDA build: pip install torch --index-url https://download.pytorch.org/whl/"
            f"{'cu130' if driver.cuda[0] >= 13 else 'cu126'}",
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return note("torch", f"{found}; CUDA_VISIBLE_DEVICES={visible!r} hides every GPU", "unset it to use them")
    if _major(built_for) > driver.cuda[0]:
        return problem(
            "torch",
            f"{found}, but the driver runs CUDA {driver.cuda[0]}.{driver.cuda[1]} at most",
            f"update the driver, or install a torch built for CUDA {driver.cuda[0]}",
        )
    return problem(
        "torch",
        f"{found}, and does not see the GPU",
        "run python -c 'import torch; torch.cuda.init()' for CUDA's own words; look at CUDA_VISIBLE_DEVICES "
        f"({'unset' if visible is None else repr(visible)}) and the permissions of /dev/nvidia*",
    )


def check_dali(installed: Mapping[str, str], driver: Driver) -> Finding:
    """Which flavour of DALI is installed, and whether the driver can run it.

    Args:
        installed: versions of the DALI packages that there are.
        driver: as NVML tells.
    """
    fitting = "nvidia-dali-cuda120" if driver.cuda[0] < 13 else "nvidia-dali-cuda130"
    if not installed:
        return problem("dali", "not installed", f"pip install {fitting} (also needed to decode on the CPU)")
    found = ", ".join(f"{name} {version}" for name, version in installed.items())
    if len(installed) > 1:
        return problem(
            "dali",
            f"{found}: both are installed, over each other",
            f"pip uninstall -y {' '.join(installed)} && pip install {fitting}",
        )
    (name, version), *_ = installed.items()
    if not _OLDEST_DALI <= _numbers(version) < _TOO_NEW_DALI:
        return problem("dali", found, f'not a version that this package is made for: pip install "{name}>=2.4,<3"')
    needs = _FLAVOURS[name]
    if driver.cards and driver.cuda[0] < needs:
        return problem(
            "dali",
            f"{found}, but the driver runs CUDA {driver.cuda[0]}.{driver.cuda[1]} at most",
            f"pip uninstall -y {name} && pip install {fitting}, or update the driver",
        )
    return ok("dali", found)


def check_native(info: Mapping[str, str | None], driver: Driver) -> Finding:
    """The package's own libraries, and whether they have code for these GPUs.

    Args:
        info: `ops.build_info()`.
        driver: as NVML tells.
    """
    if info["cpu_library"] is None:
        return problem(
            "native ops",
            f"missing, plain torch serves: {info['cpu_missing']}",
            "pip install . in the source tree with a C++17 compiler (and nvcc for the GPU)",
        )
    found = f"CPU library ({info['compiler']}, torch ≥ {info['torch_target']})"
    if info["cuda_library"] is None:
        if driver.cards:
            return problem(
                "native ops",
                f"{found}, no CUDA library: {info['cuda_missing']}",
                "install the CUDA toolkit (nvcc), then pip install . again (GPUAUG_CUDA=1 insists on it)",
            )
        return ok("native ops", found)
    archs = info["cuda_archs"] or ""
    found += f", CUDA library (CUDA {info['cuda']}, archs {archs})"
    lacking = [card for card in driver.cards if not _runs_on(archs, card.capability)]
    if lacking:
        major, minor = lacking[0].capability
        return problem(
            "native ops",
            f"{found}: no code for {lacking[0].name} ({major}.{minor})",
            f"GPUAUG_CUDA_ARCHS={major}{minor} pip install .",
        )
    return ok("native ops", found)


def check_jpeg(driver: Driver) -> Iterator[Finding]:
    """Whether JPEGs are decoded by an engine of their own."""
    if not driver.cards:
        return
    without = [card for card in driver.cards if not card.jpeg_engine]
    if not without:
        yield ok("jpeg engine", "JPEGs can be decoded in hardware (NVJPG)")
        return
    yield note(
        "jpeg engine",
        f"{without[0].name} has none that nvJPEG uses",
        "Huffman decoding stays on the CPU and the rest takes the GPU from training: more CPU threads help, and "
        "smaller stored images; gpuaug bench loader --tune finds the best of both",
    )


def check_queues(in_force: int, wanted: int, driver: Driver) -> Iterator[Finding]:
    """CUDA_DEVICE_MAX_CONNECTIONS: with too few hardware queues decoding waits behind training."""
    if not driver.cards:
        return
    found = f"CUDA_DEVICE_MAX_CONNECTIONS={in_force}"
    if in_force >= wanted:
        yield ok("cuda queues", found)
        return
    yield problem(
        "cuda queues",
        found,
        f"decoding on the GPU waits behind training steps: unset it (the package asks for {wanted}) or export "
        f"CUDA_DEVICE_MAX_CONNECTIONS={wanted}; frameworks that set 1 for their own overlap pay with decoding",
    )


def check_software(driver: Driver) -> Iterator[Finding]:
    """Everything of this page, of this process."""
    import torch

    from lightning_gpuaug import cuda_queues, ops

    yield check_driver(driver)
    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    yield check_torch(torch.__version__, torch.version.cuda, available, count, driver)
    yield check_dali(installed_dali(), driver)
    yield check_native(ops.build_info(), driver)
    yield from check_jpeg(driver)
    yield from check_queues(cuda_queues.in_force(), cuda_queues.WANTED, driver)


def installed_dali() -> dict[str, str]:
    """Version of each flavour of DALI that is installed."""
    found = {}
    for name in _FLAVOURS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _runs_on(archs: str, capability: tuple[int, int]) -> bool:
    """Whether machine code (same major version, not a newer minor one) or PTX of `archs` runs on a GPU.

    Args:
        archs: as `ops.build_info()` tells: "80 90 100 (PTX 100)".
        capability: of the GPU.
    """
    machine, _, rest = archs.partition("(PTX")
    have = [_capability(word) for word in machine.split()]
    ptx = [_capability(word) for word in rest.strip(" )").split()]
    return any(c[0] == capability[0] and c[1] <= capability[1] for c in have) or any(c <= capability for c in ptx)


def _capability(word: str) -> tuple[int, int]:
    digits = re.sub(r"\D", "", word)
    return int(digits[:-1]), int(digits[-1])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _major(version: str) -> int:
    return int(version.partition(".")[0])
