"""NVIDIA's driver and the GPUs, as NVML tells: without CUDA, so that a broken torch cannot hide them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lightning_gpuaug.devices import has_jpeg_decoder


@dataclass(frozen=True)
class Card:
    """One GPU.

    Attributes:
        name: "NVIDIA H200".
        capability: CUDA compute capability, (9, 0).
        jpeg_engine: whether it decodes JPEGs in hardware.
        in_mig: whether it is divided into instances.
    """

    name: str
    capability: tuple[int, int]
    jpeg_engine: bool = False
    in_mig: bool = False


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver.

    Attributes:
        version: "580.95.05"; None where there is no driver, or it does not answer.
        cuda: the newest CUDA that it runs, (13, 0).
        cards: all GPUs of the machine, also those that this process does not see.
        trouble: why there is no answer.
        traces: whether something of a driver is there (a device file, a kernel module): a GPU was meant to be here.
    """

    version: str | None = None
    cuda: tuple[int, int] = (0, 0)
    cards: tuple[Card, ...] = field(default_factory=tuple)
    trouble: str = ""
    traces: bool = False


def driver() -> Driver:
    """Ask NVML."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(trouble=str(error), traces=_traces())
    try:
        number = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return Driver(
            _text(pynvml.nvmlSystemGetDriverVersion()),
            (number // 1000, number % 1000 // 10),
            tuple(_card(handle) for handle in handles),
            traces=True,
        )
    except pynvml.NVMLError as error:
        return Driver(trouble=str(error), traces=True)
    finally:
        pynvml.nvmlShutdown()


def _card(handle: object) -> Card:
    import pynvml

    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    return Card(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        capability=(int(capability[0]), int(capability[1])),
        jpeg_engine=has_jpeg_decoder((int(capability[0]), int(capability[1]))),
        in_mig=_in_mig(handle),
    )


def _in_mig(handle: object) -> bool:
    import pynvml

    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # not a card that can be divided
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _traces() -> bool:
    return Path("/proc/driver/nvidia").exists() or any(Path("/dev").glob("nvidia[0-9]*"))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
