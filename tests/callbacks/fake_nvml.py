"""NVML's stand-in: the real module's constants, structures and errors, without a driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30
GPU, MIG = "GPU-11111111-2222-3333-4444-555555555555", "MIG-99999999-8888-7777-6666-555555555555"

# What a Hopper GPU at work says, in NVML's own units, by function.
ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
    "nvmlSystemGetDriverVersion": lambda: "580.65.06",
    "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
    "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(total=141 * GIB, used=20 * GIB),
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=93, memory=41),
    "nvmlDeviceGetPowerUsage": lambda handle: 512_345,
    "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    "nvmlDeviceGetClockInfo": lambda handle, kind: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[kind],
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0x4 | 0x1,
    "nvmlDeviceGetJpgUtilization": lambda handle: [77, 1_000_000],
    "nvmlDeviceGetDecoderUtilization": lambda handle: [0, 1_000_000],
    "nvmlDeviceGetPcieThroughput": lambda handle, counter: {
        pynvml.NVML_PCIE_UTIL_RX_BYTES: 2_500_000, pynvml.NVML_PCIE_UTIL_TX_BYTES: 500_000,
    }[counter],
    "nvmlDeviceGetMigMode": lambda handle: [0, 0],
    "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=0),
}  # fmt: skip

NUMBERS = [name for name in ANSWERS if name.startswith("nvmlDeviceGet") and name not in (
    "nvmlDeviceGetName", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMigMode"
)]  # fmt: skip
"""Functions that are asked in every round."""


class FakeNvml:
    """Counts its calls, and from which threads they come.

    Args:
        errors: NVML error code by function; from the `after`-th call of that function on.
        gpus: UUIDs that are there.
        answers: other answers, by function.
    """

    def __init__(
        self,
        errors: dict[str, int] | None = None,
        after: int = 0,
        gpus: tuple[str, ...] = (GPU,),
        answers: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.errors, self.after, self.gpus = errors or {}, after, gpus
        self.answers = {
            **ANSWERS,
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetHandleByUUID": self._handle,
            **(answers or {}),
        }
        self.calls: dict[str, int] = {}
        self.threads: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            return getattr(pynvml, name)  # constants, structures, errors

        def call(*args: Any) -> Any:
            self.threads.add(threading.get_ident())
            self.calls[name] = self.calls.get(name, 0) + 1
            if name in self.errors and self.calls[name] > self.after:
                raise pynvml.NVMLError(self.errors[name])
            return self.answers[name](*args)

        return call

    def _handle(self, uuid: str) -> str:
        if uuid not in self.gpus:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid
