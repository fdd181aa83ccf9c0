"""The report's section about the GPUs: one small chart a metric, one line a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from lightning_gpuaug.callbacks.report_charts import COLORS, THIRD, Line, Points, legend, line_chart
from lightning_gpuaug.callbacks.report_format import percent, with_unit
from lightning_gpuaug.callbacks.run_record import GpuRecord, RunRecord

BINS = 300
"""Moments at which many ranks are compared."""


@dataclass(frozen=True)
class _Metric:
    name: str  # as in the record
    title: str
    unit: str


_CHARTS = (
    _Metric("utilization_pct", "GPU utilization", "%"),
    _Metric("sm_active_pct", "SMs active", "%"),
    _Metric("tensor_active_pct", "Tensor cores active", "%"),
    _Metric("sm_occupancy_pct", "SM occupancy", "%"),
    _Metric("dram_bandwidth_pct", "DRAM bandwidth", "%"),
    _Metric("memory_utilization_pct", "Memory utilization", "%"),
    _Metric("jpeg_decoder_pct", "JPEG decoder (NVJPG)", "%"),
    _Metric("video_decoder_pct", "Video decoder (NVDEC)", "%"),
    _Metric("memory_used_gib", "Memory used", "GiB"),
    _Metric("pcie_rx_gb_per_s", "PCIe to the GPU", "GB/s"),
    _Metric("pcie_tx_gb_per_s", "PCIe from the GPU", "GB/s"),
    _Metric("power_w", "Power", "W"),
    _Metric("temperature_c", "Temperature", "°C"),
    _Metric("sm_clock_mhz", "SM clock", "MHz"),
    _Metric("memory_clock_mhz", "Memory clock", "MHz"),
    _Metric("throttled_pct", "Throttled", "%"),
)


def gpu_section(records: Sequence[RunRecord], origin: float, end: float, spans: list[tuple[float, float]]) -> str:
    """HTML of the section; empty when no rank watched a GPU.

    Args:
        records: of all ranks.
        origin: the time axis's 0, seconds since 1970.
        end: its end, seconds after `origin`.
        spans: stretches to shade, seconds after `origin`.
    """
    watched = [(record.rank, record.gpu) for record in records if record.gpu is not None and record.gpu.samples]
    if not watched:
        return ""
    figures, flat = [], []
    for metric in _CHARTS:
        known = [(rank, gpu) for rank, gpu in watched if metric.name in gpu.mean]
        if not known:
            continue
        if all(not any(gpu.timeline.columns[metric.name]) for _, gpu in known):
            flat.append(metric.title)
            continue
        figures.append(_figure(metric, known, origin, end, spans))
    names = _lines_of("", [(rank, []) for rank, _ in watched], end)
    key = legend(names) if len(names) > 1 else ""
    below = []
    if flat:
        below.append(f"Always 0: {', '.join(flat)}.")
    below += _throttling([gpu for _, gpu in watched])
    text = f'<p class="soft" style="margin-top:10px">{escape(" ".join(below))}</p>' if below else ""
    return f'<h2>GPU{"s" if len(watched) > 1 else ""} {key}</h2><div class="charts">{"".join(figures)}</div>{text}'


def _figure(
    metric: _Metric,
    known: Sequence[tuple[int, GpuRecord]],
    origin: float,
    end: float,
    spans: list[tuple[float, float]],
) -> str:
    by_rank = [(rank, points(gpu.timeline.times, gpu.timeline.columns[metric.name], origin)) for rank, gpu in known]
    mean = sum(gpu.mean[metric.name] for _, gpu in known) / len(known)
    chart = line_chart(
        _lines_of(metric.title, by_rank, end),
        metric.unit,
        end,
        THIRD,
        top=100.0 if metric.unit == "%" else None,
        limit=_limit(metric.name, [gpu for _, gpu in known]),
        spans=spans,
    )
    return (
        f'<figure class="card"><figcaption><h3>{metric.title}</h3><span class="unit">{metric.unit}</span>'
        f'<span class="mean"><small>mean</small> {with_unit(mean, metric.unit)}</span></figcaption>{chart}</figure>'
    )


def _limit(metric: str, gpus: Sequence[GpuRecord]) -> tuple[str, float] | None:
    limits = {
        "power_w": ("limit", [gpu.power_limit_w for gpu in gpus]),
        "memory_used_gib": ("total", [gpu.memory_total_gib for gpu in gpus]),
    }
    name, values = limits.get(metric, ("", []))
    return (name, values[0]) if values and values[0] is not None and len(set(values)) == 1 else None


def _throttling(gpus: Sequence[GpuRecord]) -> list[str]:
    """A sentence on what held the clocks down, if anything did."""
    reasons = dict.fromkeys(reason for gpu in gpus for reason in gpu.throttled)
    shares = [
        f"{reason} {percent(sum(gpu.throttled.get(reason, 0.0) for gpu in gpus) / len(gpus))}" for reason in reasons
    ]
    return [f"Clocks held down: {', '.join(shares)} of the samples."] if shares else []


def points(times: Sequence[float], values: Sequence[float | None], origin: float) -> Points:
    """A record's column as points of a chart."""
    return [(time - origin, value) for time, value in zip(times, values, strict=True)]


def rank_lines(by_rank: Sequence[tuple[int, Points]], end: float) -> list[Line]:
    """One line a rank, or, of more ranks than there are colours, the highest, the mean and the lowest of all."""
    return _lines_of("", by_rank, end)


def _lines_of(title: str, by_rank: Sequence[tuple[int, Points]], end: float) -> list[Line]:
    if len(by_rank) == 1:
        return [Line(title, by_rank[0][1])]
    if len(by_rank) <= COLORS:
        return [Line(f"rank {rank}", line, index) for index, (rank, line) in enumerate(by_rank)]
    grid: list[list[float]] = [[] for _ in range(BINS)]
    for _, line in by_rank:
        own: list[list[float]] = [[] for _ in range(BINS)]
        for time, value in line:
            if value is not None:
                own[min(BINS - 1, max(0, int(time / end * BINS)))].append(value)
        for bin_, values in zip(grid, own, strict=True):
            if values:
                bin_.append(sum(values) / len(values))
    middles = [((index + 0.5) * end / BINS, values) for index, values in enumerate(grid) if values]
    return [
        Line(f"highest of {len(by_rank)} ranks", [(time, max(values)) for time, values in middles], 1),
        Line("mean", [(time, sum(values) / len(values)) for time, values in middles], 0),
        Line("lowest", [(time, min(values)) for time, values in middles], 2),
    ]
