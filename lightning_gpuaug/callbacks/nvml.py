"""The only door to NVML: one GPU's numbers, each as long as the driver gives it.

NVML says no in many ways: there is no library (a container without it), a number does not exist for this GPU or MIG
instance, the process may not see it, or it worked and stops working (a container whose cgroup was reloaded). Whatever
it is, a number that cannot be had is absent, never 0, and a sentence says why.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

GIB = 2.0**30

METRICS = (
    "utilization_pct", "memory_utilization_pct", "memory_used_gib", "power_w", "temperature_c", "sm_clock_mhz",
    "memory_clock_mhz", "throttled_pct", "jpeg_decoder_pct", "video_decoder_pct", "pcie_rx_gb_per_s",
    "pcie_tx_gb_per_s", "sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_bandwidth_pct",
)  # fmt: skip
"""Names of all numbers, in the order in which ranks add them up."""

THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, by the driver",
    0x40: "thermal, by the hardware",
    0x80: "power brake",
    0x100: "display clock",
}
"""Reasons that hold clocks down against the user's will (nvml.h, nvmlClocksThrottleReasons); idling is none of them."""

# GPM metrics (nvml.h, nvmlGpmMetricId_t): our name, and what NVML's number is multiplied with.
_GPM = {
    2: ("sm_active_pct", 1.0),
    3: ("sm_occupancy_pct", 1.0),
    5: ("tensor_active_pct", 1.0),
    10: ("dram_bandwidth_pct", 1.0),
    20: ("pcie_tx_gb_per_s", 2.0**20 / 1e9),  # MiB/s
    21: ("pcie_rx_gb_per_s", 2.0**20 / 1e9),
}

_TRIES = 3
"""Rounds in a row in which a number may fail for a passing reason before it is given up."""


class NvmlUnavailable(RuntimeError):
    """There is no NVML, or it does not know the device; the message says so in a sentence."""


def load() -> ModuleType:
    """The module `pynvml` of nvidia-ml-py.

    Raises:
        NvmlUnavailable: it is not installed.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from error
    module: ModuleType = pynvml
    return module


def device_uuids(index: int, uuid: str, visible: str | None) -> list[str]:
    """Names under which NVML may know a CUDA device, the likeliest first.

    Args:
        index: CUDA's number of the device in this process.
        uuid: as CUDA tells it, without a prefix. CUDA's numbers mean nothing to NVML, which knows no
            `CUDA_VISIBLE_DEVICES`.
        visible: the environment's `CUDA_VISIBLE_DEVICES`; a MIG instance that it names is taken by that name, for
            CUDA may give the uuid of the whole GPU instead.
    """
    names = [f"GPU-{uuid}", f"MIG-{uuid}"]
    chosen = (visible or "").split(",")
    if index < len(chosen) and chosen[index].strip().startswith("MIG-"):
        names.insert(0, chosen[index].strip())
    return names


@dataclass(frozen=True)
class Reading:
    """One round of numbers.

    Attributes:
        values: by name (`METRICS`); what could not be read is missing.
        throttled_by: what holds the clocks down now (`THROTTLE_REASONS`); None when that is not known.
    """

    values: dict[str, float]
    throttled_by: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Description:
    """What does not change. None: not known."""

    name: str | None
    uuid: str
    driver: str | None
    memory_total_gib: float | None
    power_limit_w: float | None
    is_mig: bool


@dataclass
class _Probe:
    """One call, and what comes of it."""

    what: str
    metrics: tuple[str, ...]
    read: Callable[[], Mapping[str, float]]
    failures: int = 0


class NvmlDevice:
    """One GPU or MIG instance. All calls are made by the thread that uses this; the training thread makes none.

    Args:
        nvml: the module `pynvml`, or a stand-in with its functions.
        uuids: names to try (`device_uuids`).

    Raises:
        NvmlUnavailable: NVML does not start, or knows none of the names.
    """

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        self._nvml = nvml
        self._errors = (nvml.NVMLError, AttributeError)  # the latter: an nvidia-ml-py too old to have the function
        self._gpm_samples: list[Any] = []  # NVML's two snapshots, the older one first
        self._gpm_taken = 0
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise NvmlUnavailable(f"NVML does not start: {error}") from error
        try:
            self._handle, uuid = self._find(uuids)
            self.description = self._describe(uuid)
        except BaseException:
            self.close()
            raise
        self.notes: list[str] = []
        """Why what is missing is missing, a sentence for each reason; it grows."""
        self._throttled_by: tuple[str, ...] | None = None
        self._probes = self._all_probes()

    @property
    def exhausted(self) -> bool:
        """Whether nothing can be read any more."""
        return not self._probes

    def read(self) -> Reading:
        """One round. Numbers that need two rounds (GPM) are missing in the first. Raises nothing that NVML raises."""
        values: dict[str, float] = {}
        given_up: dict[str, list[str]] = {}
        self._throttled_by = None
        for probe in list(self._probes):
            if values.keys() >= set(probe.metrics):
                continue  # GPM has told it already
            try:
                values.update(probe.read())
                probe.failures = 0
            except self._errors as error:
                probe.failures += 1
                if self._is_final(error) or probe.failures >= _TRIES:
                    self._probes.remove(probe)
                    given_up.setdefault(str(error), []).append(probe.what)
        self.notes += [f"{', '.join(what)}: {reason}" for reason, what in given_up.items()]
        return Reading(values, self._throttled_by)

    def close(self) -> None:
        """Let NVML go."""
        with contextlib.suppress(*self._errors):  # it may be gone already
            for sample in self._gpm_samples:
                self._nvml.nvmlGpmSampleFree(sample)
            self._nvml.nvmlShutdown()

    def _is_final(self, error: Any) -> bool:
        nvml = self._nvml
        return isinstance(error, AttributeError) or error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED,
        )  # fmt: skip

    def _find(self, uuids: Sequence[str]) -> tuple[Any, str]:
        for uuid in uuids:
            try:
                handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            except self._nvml.NVMLError as error:
                reason = str(error)
                continue
            if not uuid.startswith("MIG-") and self._in_mig_mode(handle):
                return self._only_instance(handle)
            return handle, uuid
        raise NvmlUnavailable(f"NVML does not know {' or '.join(uuids)}: {reason}")

    def _in_mig_mode(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._errors:
            return False  # a GPU without MIG

    def _only_instance(self, gpu: Any) -> tuple[Any, str]:
        """The MIG instance of a GPU that has just one; with several there is no telling which is ours."""
        nvml, instances = self._nvml, []
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
            try:
                instances.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
            except nvml.NVMLError:
                continue  # numbers may have gaps
        if len(instances) != 1:
            raise NvmlUnavailable(
                f"the GPU is divided into {len(instances)} MIG instances and CUDA does not say which one this is; "
                "name it in CUDA_VISIBLE_DEVICES=MIG-…"
            )
        return instances[0], str(nvml.nvmlDeviceGetUUID(instances[0]))

    def _describe(self, uuid: str) -> Description:
        nvml, handle = self._nvml, self._handle

        def known(read: Callable[[], Any]) -> Any:
            try:
                return read()
            except self._errors:
                return None

        memory = known(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).total)
        limit = known(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        return Description(
            name=known(lambda: nvml.nvmlDeviceGetName(handle)),
            uuid=uuid,
            driver=known(nvml.nvmlSystemGetDriverVersion),
            memory_total_gib=None if memory is None else memory / GIB,
            power_limit_w=None if limit is None else limit / 1000.0,
            is_mig=uuid.startswith("MIG-"),
        )

    # ---- the numbers ---------------------------------------------------------------------------------------------

    def _all_probes(self) -> list[_Probe]:
        nvml, handle = self._nvml, self._handle

        def memory() -> dict[str, float]:
            return {"memory_used_gib": nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used / GIB}

        def utilization() -> dict[str, float]:
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            return {"utilization_pct": float(rates.gpu), "memory_utilization_pct": float(rates.memory)}

        def power() -> dict[str, float]:
            return {"power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0}

        def temperature() -> dict[str, float]:
            return {"temperature_c": float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))}

        def clocks() -> dict[str, float]:
            return {
                "sm_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                "memory_clock_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            }

        def throttling() -> dict[str, float]:
            bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            self._throttled_by = tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
            return {"throttled_pct": 100.0 if self._throttled_by else 0.0}

        def jpeg_decoder() -> dict[str, float]:
            return {"jpeg_decoder_pct": float(nvml.nvmlDeviceGetJpgUtilization(handle)[0])}

        def video_decoder() -> dict[str, float]:
            return {"video_decoder_pct": float(nvml.nvmlDeviceGetDecoderUtilization(handle)[0])}

        def pcie() -> dict[str, float]:  # NVML watches the bus for 20 ms each; in KB/s
            rx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
            tx = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
            return {"pcie_rx_gb_per_s": rx / 1e6, "pcie_tx_gb_per_s": tx / 1e6}

        memory_probe = _Probe("memory", ("memory_used_gib",), memory)
        if self.description.is_mig:
            # The rest exists for the whole GPU only, which this process shares with others.
            self.notes.append(f"{self.description.uuid} is a MIG instance: NVML gives its memory alone")
            return [memory_probe]
        probes = [
            memory_probe,
            _Probe("utilization", ("utilization_pct", "memory_utilization_pct"), utilization),
            _Probe("power", ("power_w",), power),
            _Probe("temperature", ("temperature_c",), temperature),
            _Probe("clocks", ("sm_clock_mhz", "memory_clock_mhz"), clocks),
            _Probe("throttle reasons", ("throttled_pct",), throttling),
            _Probe("JPEG decoder", ("jpeg_decoder_pct",), jpeg_decoder),
            _Probe("video decoder", ("video_decoder_pct",), video_decoder),
            _Probe("PCIe", ("pcie_rx_gb_per_s", "pcie_tx_gb_per_s"), pcie),
        ]
        if self._has_gpm():
            gpm = _Probe("SM, tensor and DRAM activity (GPM)", tuple(name for name, _ in _GPM.values()), self._read_gpm)
            probes.insert(0, gpm)
        return probes

    def _has_gpm(self) -> bool:
        """Whether the GPU has performance monitors that NVML reads (Hopper and newer)."""
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except self._errors:
            return False

    def _read_gpm(self) -> dict[str, float]:
        """Means since the round before, from two snapshots of the GPU's counters."""
        nvml = self._nvml
        if not self._gpm_samples:
            self._gpm_samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        nvml.nvmlGpmSampleGet(self._handle, self._gpm_samples[0])  # over the older one
        self._gpm_samples.reverse()
        self._gpm_taken += 1
        if self._gpm_taken < 2:
            return {}
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = self._gpm_samples
        request.numMetrics = len(_GPM)
        for place, metric in enumerate(_GPM):
            request.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        values = {}
        for place, (name, unit) in enumerate(_GPM.values()):
            value = float(request.metrics[place].value)
            if request.metrics[place].nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(value):
                values[name] = value * unit
        return values
