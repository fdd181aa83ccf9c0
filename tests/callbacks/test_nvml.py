"""One GPU's numbers: units, the handle, MIG, GPM, and every way in which NVML says no."""

from __future__ import annotations

import builtins
import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from lightning_gpuaug.callbacks import nvml
from lightning_gpuaug.callbacks.nvml import NvmlDevice, NvmlUnavailable, device_uuids
from tests.callbacks.fake_nvml import GIB, GPU, MIG, NUMBERS, FakeNvml

UUID = GPU.removeprefix("GPU-")


def test_numbers_have_the_units_that_their_names_say() -> None:
    device = NvmlDevice(FakeNvml(), [GPU])
    reading = device.read()
    assert reading.values == pytest.approx({
        "utilization_pct": 93, "memory_utilization_pct": 41, "memory_used_gib": 20, "power_w": 512.345,
        "temperature_c": 61, "sm_clock_mhz": 1980, "memory_clock_mhz": 3201, "throttled_pct": 100,
        "jpeg_decoder_pct": 77, "video_decoder_pct": 0, "pcie_rx_gb_per_s": 2.5, "pcie_tx_gb_per_s": 0.5,
    })  # fmt: skip
    assert set(reading.values) <= set(nvml.METRICS)
    assert reading.throttled_by == ("power cap",)
    assert device.notes == []
    assert device.description == nvml.Description("NVIDIA H200", GPU, "580.65.06", 141.0, 700.0, False)


@pytest.mark.parametrize(("bits", "by", "value"), [(0x0, (), 0), (0x1, (), 0), (0x2, (), 0), (0x3 | 0x20 | 0x40, (
    "thermal, by the driver", "thermal, by the hardware"), 100)])  # fmt: skip
def test_idling_and_clocks_that_the_user_set_are_no_throttling(bits: int, by: tuple[str, ...], value: float) -> None:
    fake = FakeNvml(answers={"nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: bits})
    reading = NvmlDevice(fake, [GPU]).read()
    assert (reading.throttled_by, reading.values["throttled_pct"]) == (by, value)


# ---- the handle ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "visible", "names"),
    [
        (0, None, [f"GPU-{UUID}", f"MIG-{UUID}"]),
        (1, "3,1", [f"GPU-{UUID}", f"MIG-{UUID}"]),  # reordered: the numbers are not looked at
        (0, f"{GPU},{GPU}", [f"GPU-{UUID}", f"MIG-{UUID}"]),
        (0, "-1", [f"GPU-{UUID}", f"MIG-{UUID}"]),
        (0, MIG, [MIG, f"GPU-{UUID}", f"MIG-{UUID}"]),
        (1, f"0, {MIG}", [MIG, f"GPU-{UUID}", f"MIG-{UUID}"]),
        (4, MIG, [f"GPU-{UUID}", f"MIG-{UUID}"]),
    ],
)
def test_names_of_a_cuda_device(index: int, visible: str | None, names: list[str]) -> None:
    assert device_uuids(index, UUID, visible) == names


def test_the_handle_is_the_uuids_among_several_gpus() -> None:
    other = "GPU-00000000-0000-0000-0000-000000000000"
    fake = FakeNvml(
        gpus=(other, GPU),
        answers={"nvmlDeviceGetTemperature": lambda handle, sensor: {other: 30, GPU: 80}[handle]},
    )
    assert NvmlDevice(fake, [GPU]).read().values["temperature_c"] == 80


# ---- MIG -------------------------------------------------------------------------------------------------------------


def mig(**arguments: Any) -> FakeNvml:
    """Two names: the GPU, in MIG mode, and its instance of 18 GiB, of which utilization is not supported."""
    answers: dict[str, Any] = {
        "nvmlDeviceGetMigMode": lambda handle: [1, 1],
        "nvmlDeviceGetMemoryInfo": lambda handle, version=None: SimpleNamespace(
            total=(18 if handle == MIG else 141) * GIB, used=(7 if handle == MIG else 99) * GIB
        ),
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetUUID": lambda handle: handle,
        **arguments.pop("answers", {}),
    }
    unsupported = {name: pynvml.NVML_ERROR_NOT_SUPPORTED for name in NUMBERS if name != "nvmlDeviceGetMemoryInfo"}
    return FakeNvml(unsupported, gpus=(GPU, MIG), answers=answers, **arguments)


def only(place: int) -> Any:
    """`nvmlDeviceGetMigDeviceHandleByIndex` where the one instance has this number."""

    def by_index(handle: str, index: int) -> str:
        if index != place:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return MIG

    return by_index


@pytest.mark.parametrize("names", [[MIG, GPU], ["GPU-" + MIG.removeprefix("MIG-"), MIG]])
def test_a_mig_instance_gives_its_own_memory_and_nothing_else(names: list[str]) -> None:
    device = NvmlDevice(mig(), names)
    assert device.read().values == {"memory_used_gib": 7.0}
    assert device.description.memory_total_gib == 18.0
    assert device.notes == [f"{MIG} is a MIG instance: NVML gives its memory alone"]


def test_the_only_instance_of_a_gpu_is_found() -> None:
    fake = mig(answers={"nvmlDeviceGetMigDeviceHandleByIndex": only(3)})
    device = NvmlDevice(fake, [GPU])
    assert (device.description.uuid, device.read().values) == (MIG, {"memory_used_gib": 7.0})


def test_one_of_several_instances_is_not_guessed() -> None:
    fake = mig(answers={"nvmlDeviceGetMigDeviceHandleByIndex": lambda handle, index: f"MIG-{index}"})
    with pytest.raises(NvmlUnavailable, match=r"divided into 7 MIG instances .* CUDA_VISIBLE_DEVICES=MIG"):
        NvmlDevice(fake, [GPU])
    assert fake.calls["nvmlShutdown"] == 1


# ---- no -------------------------------------------------------------------------------------------------------------


def test_what_is_not_supported_or_not_permitted_is_absent_and_asked_once() -> None:
    fake = FakeNvml({
        "nvmlDeviceGetJpgUtilization": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetDecoderUtilization": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetPcieThroughput": pynvml.NVML_ERROR_NO_PERMISSION,
    })  # fmt: skip
    device = NvmlDevice(fake, [GPU])
    for _ in range(5):
        values = device.read().values
        assert not {"jpeg_decoder_pct", "video_decoder_pct", "pcie_rx_gb_per_s"} & set(values)
        assert values["power_w"] == pytest.approx(512.345)
    assert device.notes == ["JPEG decoder, video decoder: Not Supported", "PCIe: Insufficient Permissions"]
    assert fake.calls["nvmlDeviceGetJpgUtilization"] == 1


def test_a_passing_failure_costs_a_sample_and_a_lasting_one_the_number() -> None:
    fake = FakeNvml({"nvmlDeviceGetPowerUsage": pynvml.NVML_ERROR_TIMEOUT}, after=1)
    device = NvmlDevice(fake, [GPU])
    seen = ["power_w" in device.read().values]
    seen += ["power_w" in device.read().values for _ in range(2)]
    fake.after = 1000
    seen += ["power_w" in device.read().values]
    fake.after = 4
    seen += ["power_w" in device.read().values for _ in range(2)]
    assert (seen, device.notes) == ([True, False, False, True, False, False], [])
    assert "power_w" not in device.read().values
    assert device.notes == ["power: Timeout"]
    device.read()
    assert fake.calls["nvmlDeviceGetPowerUsage"] == 7


def test_nothing_left() -> None:
    device = NvmlDevice(FakeNvml(dict.fromkeys(NUMBERS, pynvml.NVML_ERROR_GPU_IS_LOST), after=1), [GPU])
    assert not device.exhausted
    assert device.read().values
    device.read()  # clocks are asked twice a round, so some numbers outlive the first
    assert device.read().values == {}
    assert device.exhausted
    assert [note.rpartition(": ")[2] for note in device.notes] == ["GPU is lost"] * len(device.notes)


@pytest.mark.parametrize(
    ("fake", "names", "message"),
    [
        (FakeNvml({"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}), [GPU], "NVML does not start: .*Not Found"),
        (FakeNvml({"nvmlInit": pynvml.NVML_ERROR_UNKNOWN}), [GPU], "NVML does not start: Unknown Error"),
        (FakeNvml(), ["GPU-x", "MIG-x"], "NVML does not know GPU-x or MIG-x: Not Found"),
    ],
)
def test_no_device(fake: FakeNvml, names: list[str], message: str) -> None:
    with pytest.raises(NvmlUnavailable, match=message):
        NvmlDevice(fake, names)


def test_a_description_has_what_there_is() -> None:
    fake = FakeNvml(dict.fromkeys(
        ("nvmlDeviceGetName", "nvmlSystemGetDriverVersion", "nvmlDeviceGetEnforcedPowerLimit"),
        pynvml.NVML_ERROR_NOT_SUPPORTED,
    ))  # fmt: skip
    assert NvmlDevice(fake, [GPU]).description == nvml.Description(None, GPU, None, 141.0, None, False)


def test_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pynvml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NvmlUnavailable, match="pip install nvidia-ml-py"):
        nvml.load()


# ---- GPM ------------------------------------------------------------------------------------------------------------


class Gpm:
    """The performance monitors: a snapshot is the number of the call that took it; NVML's own structures."""

    def __init__(self) -> None:
        self.freed = 0
        self.asked: list[tuple[int, int]] = []
        self._taken: dict[int, int] = {}  # by address
        self._allocated = 0
        self.answers = {
            "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": self.allocate,
            "nvmlGpmSampleGet": self.take,
            "nvmlGpmMetricsGet": self.metrics,
            "nvmlGpmSampleFree": self.free,
        }

    def allocate(self) -> Any:
        self._allocated += 1
        return ctypes.cast(self._allocated * 4096, pynvml.c_nvmlGpmSample_t)

    def take(self, handle: str, sample: Any) -> None:
        self._taken[address(sample)] = max(self._taken.values(), default=0) + 1

    def free(self, sample: Any) -> None:
        del self._taken[address(sample)]
        self.freed += 1

    def metrics(self, request: Any) -> None:
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        self.asked.append((self._taken[address(request.sample1)], self._taken[address(request.sample2)]))
        for entry in request.metrics[: request.numMetrics]:
            entry.nvmlReturn = 0 if entry.metricId != 5 else pynvml.NVML_ERROR_NOT_SUPPORTED
            entry.value = float("nan") if entry.metricId == 3 else entry.metricId + 0.5


def address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def test_gpm_compares_each_round_with_the_one_before() -> None:
    gpm = Gpm()
    fake = FakeNvml(answers=gpm.answers)
    device = NvmlDevice(fake, [GPU])
    first = device.read().values
    assert "sm_active_pct" not in first
    assert first["pcie_rx_gb_per_s"] == 2.5  # from the slow way, which takes 20 ms, for want of a second snapshot
    for _ in range(3):
        values = device.read().values
    assert gpm.asked == [(1, 2), (2, 3), (3, 4)]
    assert values["sm_active_pct"] == 2.5
    assert values["dram_bandwidth_pct"] == 10.5
    assert values["pcie_tx_gb_per_s"] == pytest.approx(20.5 * 2**20 / 1e9)  # MiB/s
    assert values["pcie_rx_gb_per_s"] == pytest.approx(21.5 * 2**20 / 1e9)
    assert not {"tensor_active_pct", "sm_occupancy_pct"} & set(values)  # not supported; not a number
    assert fake.calls["nvmlDeviceGetPcieThroughput"] == 2
    device.close()
    assert (gpm.freed, fake.calls["nvmlShutdown"]) == (2, 1)


def test_a_failed_snapshot_is_not_compared() -> None:
    gpm = Gpm()
    fake = FakeNvml({"nvmlGpmSampleGet": pynvml.NVML_ERROR_TIMEOUT}, after=2, answers=gpm.answers)
    device = NvmlDevice(fake, [GPU])
    device.read()
    device.read()
    assert "sm_active_pct" not in device.read().values
    fake.after = 1000
    assert "sm_active_pct" in device.read().values
    assert gpm.asked == [(1, 2), (2, 3)]


def test_without_permission_for_gpm_the_rest_stays() -> None:
    fake = FakeNvml({"nvmlGpmSampleGet": pynvml.NVML_ERROR_NO_PERMISSION}, answers=Gpm().answers)
    device = NvmlDevice(fake, [GPU])
    device.read()
    assert device.read().values["pcie_rx_gb_per_s"] == 2.5
    assert device.notes == ["SM, tensor and DRAM activity (GPM): Insufficient Permissions"]
