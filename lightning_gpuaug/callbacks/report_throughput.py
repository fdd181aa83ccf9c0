"""The report's section about throughput: rates, waits and step times over time, and where the time goes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lightning_gpuaug.callbacks.report_charts import (
    HALF,
    WIDE,
    Frame,
    Line,
    Points,
    histogram_chart,
    legend,
    line_chart,
    share_bar,
)
from lightning_gpuaug.callbacks.report_format import percent
from lightning_gpuaug.callbacks.report_gpu import points, rank_lines
from lightning_gpuaug.callbacks.run_record import RunRecord, ThroughputRecord

_BARS = 8
"""Ranks of which the waiting is drawn: those that waited most."""

_PART_COLORS = {
    "model": "work",
    "read": "c0",
    "decode": "c1",
    "input": "c1",
    "augment": "c3",
    "transfer": "c5",
    "host": "c4",
}


def throughputs(records: Sequence[RunRecord]) -> list[tuple[int, ThroughputRecord]]:
    """Rank and section of those that measured their throughput."""
    return [(record.rank, record.throughput) for record in records if record.throughput is not None]


def throughput_section(
    records: Sequence[RunRecord], origin: float, end: float, spans: list[tuple[float, float]]
) -> str:
    """HTML of the section; empty when no rank measured its throughput.

    Args:
        records: of all ranks.
        origin: the time axis's 0, seconds since 1970.
        end: its end, seconds after `origin`.
        spans: stretches to shade, seconds after `origin`.
    """
    parts = throughputs(records)
    if not parts:
        return ""
    figures = []
    rates = [(rank, _ratio(part, "images", "seconds", origin)) for rank, part in parts]
    waits = [(rank, _ratio(part, "wait_seconds", "seconds", origin, 100.0)) for rank, part in parts]
    steps = [(rank, _ratio(part, "step_seconds", "steps", origin, 1000.0)) for rank, part in parts]
    shaded = "shaded: validation" if spans else ""
    if any(line for _, line in rates):
        world = records[0].world_size
        label = "" if world == 1 else "all ranks" if len(rates) == world else f"{len(rates)} of {world} ranks"
        everything = Line(label or "images per second", _sum_of_lines([line for _, line in rates]))
        chart = line_chart([everything], "img/s", end, WIDE, spans=spans)
        figures.append(_figure("wide", "Images per second", label, chart, shaded))
    if any(line for _, line in waits):
        lines = rank_lines(waits, end)
        chart = line_chart(lines, "%", end, HALF, top=100.0, spans=spans)
        figures.append(_figure("half", "Waiting for data", "% of the time", chart, _key(lines)))
        lines = rank_lines(steps, end)
        chart = line_chart(lines, "ms", end, HALF, spans=spans)
        figures.append(_figure("half", "Step time", "ms, mean", chart, _key(lines)))
    rank, part = parts[0]
    if part.step_ms_histogram is not None and any(part.step_ms_histogram.counts):
        known = (("median", part.step_ms_p50), ("95 % within", part.step_ms_p95))
        marks = [(name, value) for name, value in known if value is not None]
        chart = histogram_chart(part.step_ms_histogram, "ms", marks, Frame(1080, 220))
        which = f", rank {rank}" if len(parts) > 1 else ""
        figures.append(_figure("wide", "Step times", f"steps by ms{which}", chart))
    return f'<h2>Throughput</h2><div class="charts">{"".join(figures)}</div>{_waiting(records)}'


def _figure(size: str, title: str, unit: str, chart: str, note: str = "") -> str:
    more = note if note.startswith("<") else f'<span class="legend">{note}</span>' if note else ""
    caption = f'<h3>{title}</h3><span class="unit">{escape(unit)}</span>'
    aside = f'<span style="margin-left:auto">{more}</span>' if more else ""
    return f'<figure class="card {size}"><figcaption>{caption}{aside}</figcaption>{chart}</figure>'


def _key(lines: Sequence[Line]) -> str:
    return legend(lines) if len(lines) > 1 else ""


def _ratio(part: ThroughputRecord, over: str, under: str, origin: float, scale: float = 1.0) -> Points:
    columns = part.timeline.columns
    if over not in columns or under not in columns:
        return []
    values = [
        scale * (a or 0.0) / b if b else None for a, b in zip(columns[over], columns[under], strict=True)
    ]  # fmt: skip
    return points(part.timeline.times, values, origin)


def _sum_of_lines(lines: Sequence[Points]) -> Points:
    """Sum at the first line's times, of each line its value nearest in time: ranks log the same steps."""
    first, rest = lines[0], [[(time, value) for time, value in line if value is not None] for line in lines[1:]]
    if not all(rest):
        return []  # a rank without a rate: no sum of all
    summed: Points = []
    places = [0] * len(rest)
    for moment, value in first:
        total = value
        for index, line in enumerate(rest):
            place = places[index]
            while place + 1 < len(line) and abs(line[place + 1][0] - moment) <= abs(line[place][0] - moment):
                place += 1
            places[index] = place
            if total is not None:
                total += line[place][1] or 0.0
        summed.append((moment, total))
    return summed


def _waiting(records: Sequence[RunRecord]) -> str:
    """Bars that divide the training time: what the doctor found, and each rank's wait."""
    rows: list[tuple[str, str, str]] = []
    keys: dict[str, str] = {}
    doctor = next((record.doctor for record in records if record.doctor is not None), None)
    if doctor is not None and doctor.lost:
        shares = {"model": max(0.0, 1.0 - sum(doctor.lost.values())), **doctor.lost}
        drawn = [(name, share, _PART_COLORS.get(name, "c7")) for name, share in shares.items() if share > 0]
        keys.update({f"{name} {percent(share)}": color for name, share, color in drawn})
        rows.append(("this run", share_bar(drawn), ""))
    else:
        waits = [(part.data_wait_fraction, rank) for rank, part in throughputs(records)]
        most = sorted(((wait, rank) for wait, rank in waits if wait is not None), reverse=True)[:_BARS]
        for wait, rank in sorted(most, key=lambda row: row[1]):
            bar = share_bar([("training", 1.0 - wait, "work"), ("waiting for data", wait, "wait")])
            rows.append((f"rank {rank}", bar, percent(wait)))
        keys = {"training": "work", "waiting for data": "wait"}
    if not rows:
        return ""
    cells = "".join(f'<span class="name">{name}</span>{bar}<span>{share}</span>' for name, bar, share in rows)
    names = "".join(f'<span class="key"><i class="{color}"></i>{escape(name)}</span>' for name, color in keys.items())
    which = (
        ""
        if len(throughputs(records)) <= _BARS or doctor is not None
        else f'<span class="legend">the {_BARS} ranks that waited most</span>'
    )
    return (
        f'<h2>Where the time goes {which}</h2><div class="card shares">{cells}<span class="legend">{names}</span></div>'
    )
