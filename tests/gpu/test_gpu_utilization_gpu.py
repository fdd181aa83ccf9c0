"""On a GPU: the numbers are those of nvidia-smi and of loads that are known, and watching costs the GPU nothing."""

from __future__ import annotations

import csv
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from lightning_gpuaug import GpuUtilization, ImageDataModule, Report, Synthetic, Throughput
from lightning_gpuaug.callbacks import gpu_utilization, nvml
from lightning_gpuaug.callbacks.nvml import NvmlDevice
from lightning_gpuaug.callbacks.run_record import read_records

pytestmark = [
    pytest.mark.gpu,
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]

needs_smi = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs nvidia-smi")
Readings = list[dict[str, float]]


def names() -> list[str]:
    return gpu_utilization._names(torch.device("cuda:0"))


@pytest.fixture
def device() -> Iterator[NvmlDevice]:
    opened = NvmlDevice(nvml.load(), names())
    if opened.description.is_mig:
        pytest.skip("needs a whole GPU")
    yield opened
    opened.close()


@contextmanager
def load(work: Callable[[], object], pause: float = 0.0) -> Iterator[None]:
    """Do `work` over and over in a thread, synchronising after each, for the time of the block."""
    ending = threading.Event()

    def loop() -> None:
        torch.cuda.synchronize()  # a thread begins without a context, of which cuBLAS warns
        while not ending.is_set():
            work()
            torch.cuda.synchronize()
            time.sleep(pause)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        time.sleep(2.0)  # clocks and NVML's own means settle
        yield
    finally:
        ending.set()
        thread.join()


def read(device: NvmlDevice, rounds: int = 8, interval: float = 0.5) -> Readings:
    device.read()
    readings = []
    for _ in range(rounds):
        time.sleep(interval)
        readings.append(device.read().values)
    return readings


def median(readings: Readings, name: str) -> float:
    return statistics.median(reading[name] for reading in readings)


def matmuls(count: int = 20, size: int = 8192) -> Callable[[], object]:
    """Tensor cores at work: about 2 ms each on an H200."""
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def work() -> None:
        for _ in range(count):
            torch.matmul(a, a, out=out)

    return work


def copies() -> Callable[[], object]:
    """Memory at work: 2 GiB there and back."""
    a = torch.empty(2**29, device="cuda")
    b = torch.empty_like(a)

    def work() -> None:
        for _ in range(20):
            b.copy_(a)

    return work


def smi(*fields: str) -> list[float]:
    """nvidia-smi's values of fields, for this GPU."""
    command = ["nvidia-smi", "-i", names()[0], f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    row = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    return [float(value) for value in row.split(",")]


def test_it_is_this_gpu(device: NvmlDevice) -> None:
    properties = torch.cuda.get_device_properties(0)
    assert device.description.uuid == f"GPU-{properties.uuid}"
    assert device.description.name == properties.name
    assert device.description.memory_total_gib == pytest.approx(properties.total_memory / 2**30, rel=0.05)
    values = read(device, rounds=2)[-1]
    must = {"utilization_pct", "memory_used_gib", "power_w", "temperature_c", "sm_clock_mhz", "memory_clock_mhz"}
    assert values.keys() >= must, device.notes


@needs_smi
def test_the_numbers_are_those_of_nvidia_smi(device: NvmlDevice) -> None:
    fields = ("utilization.gpu", "utilization.memory", "memory.used", "power.draw", "temperature.gpu",
              "clocks.sm", "clocks.mem")  # fmt: skip
    with load(matmuls()):
        ours, theirs = [], []
        device.read()
        for _ in range(6):
            time.sleep(0.3)
            theirs.append(smi(*fields))
            ours.append(device.read().values)
    busy, memory, used, power, heat, sm, mem = (statistics.median(column) for column in zip(*theirs, strict=True))
    assert median(ours, "utilization_pct") == pytest.approx(busy, abs=10)
    assert median(ours, "utilization_pct") > 85
    assert median(ours, "memory_utilization_pct") == pytest.approx(memory, abs=15)
    assert median(ours, "memory_used_gib") * 1024 == pytest.approx(used, abs=700)
    assert median(ours, "power_w") == pytest.approx(power, rel=0.15)
    assert median(ours, "temperature_c") == pytest.approx(heat, abs=4)
    assert median(ours, "sm_clock_mhz") == pytest.approx(sm, rel=0.1)
    assert median(ours, "memory_clock_mhz") == pytest.approx(mem, rel=0.02)


@needs_smi
def test_the_utilization_is_dmons(device: NvmlDevice) -> None:
    command = ["nvidia-smi", "dmon", "-i", names()[0], "-s", "u", "-c", "5"]
    with load(matmuls(count=25), pause=0.05):  # about half of the time
        device.read()
        watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        readings = read(device, rounds=10)
        output = watching.communicate(timeout=60)[0]
    lines = [line.split() for line in output.splitlines()]
    columns = next(line[1:] for line in lines if line[0] == "#" and "sm" in line)
    rows = [dict(zip(columns, line, strict=False)) for line in lines if line[0] != "#"][1:]
    for column, name in (("sm", "utilization_pct"), ("dec", "video_decoder_pct"), ("jpg", "jpeg_decoder_pct")):
        theirs = [float(row[column]) for row in rows if row.get(column, "-") != "-"]
        if theirs and name in readings[0]:
            assert statistics.mean(reading[name] for reading in readings) == pytest.approx(
                statistics.mean(theirs), abs=20
            )


@pytest.fixture
def gpm(device: NvmlDevice) -> NvmlDevice:
    if torch.cuda.get_device_capability(0) < (9, 0):
        pytest.skip("needs Hopper or newer")
    if "sm_active_pct" not in read(device, rounds=2)[-1]:
        pytest.skip(f"the driver gives no GPM numbers: {device.notes}")
    return device


def test_known_loads_move_the_right_numbers(gpm: NvmlDevice) -> None:
    idle = read(gpm, rounds=4)
    with load(matmuls()):
        multiplying = read(gpm)
    with load(copies()):
        copying = read(gpm)
    assert median(idle, "sm_active_pct") < 10
    assert median(multiplying, "sm_active_pct") > 75
    assert median(multiplying, "tensor_active_pct") > 30
    assert median(copying, "tensor_active_pct") < 3
    assert median(copying, "dram_bandwidth_pct") > 50
    assert median(copying, "dram_bandwidth_pct") > 1.5 * median(multiplying, "dram_bandwidth_pct")
    for reading in (*idle, *multiplying, *copying):
        assert all(0 <= value <= 100 for name, value in reading.items() if name.endswith("_pct"))
    assert median(multiplying, "power_w") > 1.5 * median(idle, "power_w")


def test_half_a_load_is_half_an_activity(gpm: NvmlDevice) -> None:
    work = matmuls(count=25)
    work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    with load(work):
        full = median(read(gpm), "sm_active_pct")
    with load(work, pause=seconds):
        half = median(read(gpm), "sm_active_pct")
    assert half == pytest.approx(full / 2, abs=12)


def test_copies_from_the_host_are_seen_on_the_bus(gpm: NvmlDevice) -> None:
    host = torch.empty(2**28, dtype=torch.uint8).pin_memory()
    there = torch.empty_like(host, device="cuda")
    moved = 0

    def work() -> None:
        nonlocal moved
        for _ in range(8):
            there.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        moved += 8 * host.numel()

    with load(work):
        before, begin = moved, time.perf_counter()
        readings = read(gpm)
        rate = (moved - before) / (time.perf_counter() - begin) / 1e9
    assert median(readings, "pcie_rx_gb_per_s") == pytest.approx(rate, rel=0.25)
    assert median(readings, "pcie_tx_gb_per_s") < 0.3 * rate


def test_hardware_jpeg_decoding_is_seen(device: NvmlDevice) -> None:
    if "jpeg_decoder_pct" not in device.read().values:
        pytest.skip(f"no NVJPG numbers: {device.notes}")
    if torch.cuda.get_device_capability(0) not in ((8, 0), (9, 0), (10, 0)):
        pytest.skip("no hardware JPEG decoder")
    data = ImageDataModule(
        train=Synthetic(length=512, num_classes=8, height=512, width=512), batch_size=64, image_size=224, decode="gpu",
        hw_decoder_load=1.0,
    ).setup_for("cuda:0")  # fmt: skip
    loader = data.train_dataloader()
    readings: Readings = []
    end = time.monotonic() + 8
    try:
        while time.monotonic() < end:
            for _ in loader:
                pass
            readings.append(device.read().values)
    finally:
        data.teardown("fit")
    assert max(reading["jpeg_decoder_pct"] for reading in readings) > 5


# ---- in a Trainer ---------------------------------------------------------------------------------------------------


class Busy(pl.LightningModule):
    """Matrix products for a step, with batches that are lists of one tensor."""

    def __init__(self, size: int = 4096, count: int = 4) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(count)))
        self.size = size

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss: torch.Tensor = self.layers(batch[0].expand(4096, self.size)).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def fit(folder: Path, callbacks: list[pl.Callback], steps: int) -> None:
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_steps=steps, precision="bf16-mixed", log_every_n_steps=50,
        logger=CSVLogger(folder, "", ""), callbacks=callbacks, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Busy(), DataLoader(TensorDataset(torch.randn(4000, 1)), batch_size=1))


def test_logged_and_reported(tmp_path: Path) -> None:
    watching = GpuUtilization(interval_s=0.2)
    fit(tmp_path, [watching, Throughput(), Report()], steps=1500)
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    busy = [float(row["gpu/utilization_pct"]) for row in rows if row.get("gpu/utilization_pct")]
    assert statistics.median(busy) > 50
    [record] = read_records(tmp_path)
    assert record.gpu is not None
    assert record.gpu.name == torch.cuda.get_device_name(0)
    assert record.gpu.samples >= 3
    assert record.gpu.mean["memory_used_gib"] > 0.5
    assert torch.cuda.get_device_name(0) in (tmp_path / "report.html").read_text()
    assert not [thread for thread in threading.enumerate() if thread.name == "gpuaug-nvml"]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_the_training_path_never_synchronises(tmp_path: Path) -> None:
    class Guarded(GpuUtilization):
        def on_train_batch_end(self, *args: object) -> None:
            torch.cuda.set_sync_debug_mode("error")
            try:
                super().on_train_batch_end(*args)  # type: ignore[arg-type]
            finally:
                torch.cuda.set_sync_debug_mode("default")

    fit(tmp_path, [Guarded(interval_s=0.1, log_every_n_steps=1)], steps=300)


def test_kernels_run_as_fast_while_they_are_watched() -> None:
    work = matmuls(count=10)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def milliseconds() -> float:
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    for _ in range(60):
        milliseconds()
    times: dict[bool, list[float]] = {True: [], False: []}
    for watched in (False, True) * 4:  # in turns, for the clocks drift
        sampler = gpu_utilization.GpuSampler(nvml.load(), names(), 0.1)
        if watched:
            sampler.start()
        times[watched] += [milliseconds() for _ in range(60)]
        if watched:
            sampler.stop()
    assert statistics.median(times[True]) < 1.02 * statistics.median(times[False])


OTHER = """
import torch
from lightning_gpuaug.callbacks import gpu_utilization, nvml
held = torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda:0")
device = nvml.NvmlDevice(nvml.load(), gpu_utilization._names(torch.device("cuda:0")))
print(device.read().values["memory_used_gib"], device.description.uuid, torch.cuda.get_device_properties(0).uuid)
"""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("visible", ["1,0", "1", "uuid"])
def test_reordered_devices_are_not_mixed_up(visible: str) -> None:
    second = f"GPU-{torch.cuda.get_device_properties(1).uuid}"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": second if visible == "uuid" else visible}
    done = subprocess.run(
        [sys.executable, "-c", OTHER], env=environment, capture_output=True, text=True, check=True, timeout=180
    )
    used, watched, uuid = done.stdout.split()[-3:]
    assert float(used) >= 8
    assert watched == f"GPU-{uuid}" == second
