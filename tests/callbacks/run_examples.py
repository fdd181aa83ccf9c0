"""Run records as they come out of a fit, for the report's tests and for looking at."""

from __future__ import annotations

import math
import random

from lightning_gpuaug.callbacks.run_record import (
    DoctorRecord,
    GpuRecord,
    Histogram,
    RunRecord,
    Series,
    Span,
    ThroughputRecord,
)

START = 1_795_000_000.0
DOCTOR = DoctorRecord(
    verdict="Decoding holds this run back: the GPU waits 27 % of the time. Give the hardware decoder all JPEGs.",
    bound_by="decode",
    knob="hw_decoder_load 0.65 → 1.0",
    expected_gain=0.37,
    img_per_s=2610.0,
    img_per_s_without_input=3570.0,
    lost={"read": 0.02, "decode": 0.21, "augment": 0.01, "transfer": 0.005, "host": 0.025},
    details=["The CPU threads were 61 % busy.", "Storage gave 1.4 GB/s; it was never waited for."],
)
CPU = '64 cores <of> "some" kind'
NOTE = "PCIe: Insufficient Permissions"


def record(
    rank: int = 0, world: int = 1, seconds: float = 1800.0, wait: float = 0.27, error: str | None = None
) -> RunRecord:
    """A rank's record with everything in it; its numbers are the same every time."""
    dice = random.Random(rank)
    rows = 180
    times = [START + 10 + (seconds - 12) * (index + 1) / rows for index in range(rows)]
    shares = [
        min(0.95, max(0.0, wait * (1 + 0.3 * math.sin(index / 9)) + dice.gauss(0, 0.01))) for index in range(rows)
    ]
    steps = 50
    columns: dict[str, list[float | None]] = {
        "images": [steps * 256.0] * rows,
        "steps": [float(steps)] * rows,
        "seconds": [steps * 0.0717 / (1 - share) for share in shares],
        "wait_seconds": [steps * 0.0717 / (1 - share) * share for share in shares],
    }
    columns["step_seconds"] = columns["seconds"]
    whole = sum(value or 0 for value in columns["seconds"])
    bins = 40
    counts = [
        int(2000 * math.exp(-(((i - 11) / 4) ** 2)) + 300 * math.exp(-(((i - 24) / 6) ** 2))) for i in range(bins)
    ]
    return RunRecord(
        run_id="example",
        rank=rank,
        world_size=world,
        host="node-07",
        device=f"cuda:{rank}",
        started=START,
        finished=START + seconds,
        error=error,
        settings={"model": "Classifier (resnet50)", "precision": "bf16-mixed", "strategy": "ddp", "batch size": "256"},
        environment={
            "lightning-gpuaug": "0.1.0",
            "torch": "2.14.1",
            "CUDA": "13.0",
            "CPU": '64 cores <of> "some" kind',
        },
        spans=[Span("validation", START + seconds * at, START + seconds * (at + 0.03)) for at in (0.3, 0.63, 0.96)],
        throughput=ThroughputRecord(
            images=rows * steps * 256,
            warmup_batches=10,
            img_per_s=rows * steps * 256 / whole,
            step_ms=1000 * whole / rows / steps,
            step_ms_p50=97.3,
            step_ms_p95=131.8,
            data_wait_fraction=sum(value or 0 for value in columns["wait_seconds"]) / whole,
            mfu=0.312,
            timeline=Series(times, columns),
            step_ms_histogram=Histogram([70 + 2.0 * i for i in range(bins + 1)] + [412.0], [*counts, 37]),
        ),
        gpu=gpu(rank, seconds, wait),
        doctor=None,
    )


def bell(x: float) -> float:
    return math.exp(-x * x)


def gpu(rank: int, seconds: float, wait: float) -> GpuRecord:
    """What NVML may say of a GPU that waits."""
    dice = random.Random(100 + rank)
    rows = 400
    times = [START + 10 + (seconds - 12) * (index + 1) / rows for index in range(rows)]
    busy = [100 * (1 - wait * (1 + 0.3 * math.sin(index / 20))) - 3 * rank for index in range(rows)]

    def near(factor: float, spread: float, offset: float = 0.0) -> list[float | None]:
        return [max(0.0, value * factor + offset + dice.gauss(0, spread)) for value in busy]

    def capped(values: list[float | None]) -> list[float | None]:
        return [min(100.0, value or 0.0) for value in values]

    columns: dict[str, list[float | None]] = {
        "utilization_pct": capped(near(1.05, 3)),
        "sm_active_pct": capped(near(0.95, 2)),
        "tensor_active_pct": capped(near(0.42, 2)),
        "sm_occupancy_pct": capped(near(0.5, 2)),
        "dram_bandwidth_pct": capped(near(0.6, 3)),
        "memory_utilization_pct": capped(near(0.5, 3)),
        "jpeg_decoder_pct": capped(near(0.8, 4)),
        "video_decoder_pct": [0.0] * rows,
        "memory_used_gib": [min(61.0, 12.0 + index) for index in range(rows)],
        "pcie_rx_gb_per_s": near(0.03, 0.05),
        "power_w": near(5.2, 8, 90),
        "temperature_c": [41 + 22 * (1 - math.exp(-index / 40)) + dice.gauss(0, 0.4) for index in range(rows)],
        "sm_clock_mhz": [1980.0 - (60 if index % 37 < 3 else 0) for index in range(rows)],
        "memory_clock_mhz": [3201.0] * rows,
        "throttled_pct": [100.0 if index % 37 < 3 else 0.0 for index in range(rows)],
    }
    columns["temperature_c"][200:206] = [None] * 6
    return GpuRecord(
        name="NVIDIA H200",
        uuid=f"GPU-0000{rank}",
        driver="580.65.06",
        memory_total_gib=140.4,
        power_limit_w=700.0,
        interval_s=1.0,
        samples=rows,
        timeline=Series(times, columns),
        mean={name: sum(value or 0 for value in values) / rows for name, values in columns.items()},
        throttled={"power cap": 0.081},
        notes=[NOTE],
    )
