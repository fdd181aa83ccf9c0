"""The report: the records of all ranks as one HTML page that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

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
from lightning_gpuaug.callbacks.report_format import duration, number, percent, with_unit
from lightning_gpuaug.callbacks.report_gpu import gpu_section, points, rank_lines
from lightning_gpuaug.callbacks.run_record import DoctorRecord, RunRecord, ThroughputRecord

_KEEPS_UP, _STARVES = (
    0.01,
    0.05,
)  # shares of the time spent waiting: below the one all is well, above the other it is not

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


def page(records: Sequence[RunRecord]) -> str:
    """The whole page.

    Args:
        records: of one fit, by rank; at least one. Ranks may be missing.
    """
    first = records[0]
    origin, end = _time_axis(records)
    spans = [(max(0.0, span.start - origin), min(end, span.end - origin)) for span in first.spans]
    body = "".join(
        (
            _header(records),
            _verdict(records),
            _tiles(records),
            _throughput(records, origin, end, spans),
            gpu_section(records, origin, end, spans),
            _ranks(records),
            _tables(records),
            _notes(records),
        )
    )
    here = Path(__file__)
    style = here.with_name("report.css").read_text(encoding="utf-8")
    script = here.with_name("report.js").read_text(encoding="utf-8")
    title = escape(first.settings.get("model", "Training"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}: training report</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{style}</style></head>'
        f'<body><main>{body}</main><div id="tip"></div><script>\n{script}</script></body></html>\n'
    )


def _time_axis(records: Sequence[RunRecord]) -> tuple[float, float]:
    """Where the time axis begins (seconds since 1970), and its length."""
    origin = min(record.started for record in records)
    return origin, max(max(record.finished for record in records) - origin, 1e-3)


def _throughputs(records: Sequence[RunRecord]) -> list[tuple[int, ThroughputRecord]]:
    return [(record.rank, record.throughput) for record in records if record.throughput is not None]


def _on_gpu(records: Sequence[RunRecord]) -> bool:
    return records[0].device.startswith("cuda")


# ---- what matters most ----------------------------------------------------------------------------------------------


def _header(records: Sequence[RunRecord]) -> str:
    first = records[0]
    world = f"{first.world_size} rank{'s' if first.world_size > 1 else ''}"
    gpu = next((record.gpu.name for record in records if record.gpu is not None and record.gpu.name), None)
    if gpu and first.world_size > 1:
        gpu = f"{first.world_size} × {gpu}"
    ran = duration(max(record.finished for record in records) - first.started)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(first.started))
    facts = [when, f"ran for {ran}", gpu or f"{world} on {first.device.partition(':')[0]}", first.host]
    line = " · ".join(escape(fact) for fact in facts)
    return (
        f'<header><div><h1>{escape(first.settings.get("model", "Training"))}</h1><p class="soft">{line}</p></div>'
        '<button id="theme" type="button" hidden></button></header>'
    )


def _verdict(records: Sequence[RunRecord]) -> str:
    error = next((record.error for record in records if record.error), None)
    stopped = ""
    if error:
        stopped = f'<div class="facts"><span>The fit was ended by <b>{escape(error)}</b></span></div>'
    doctor = next((record.doctor for record in records if record.doctor is not None), None)
    if doctor is not None:
        kind = "good" if doctor.bound_by == "model" else "bad"
        return _verdict_card(kind, doctor.verdict[:1].upper() + doctor.verdict[1:], _doctor_facts(doctor) + stopped)
    wait = _wait_share(records)
    if wait is None:
        text = "How fast this run trained is not known: add Throughput() to the Trainer's callbacks."
        return _verdict_card("", text, stopped)
    device = "GPU" if _on_gpu(records) else "device"
    several = f"{device}s" if records[0].world_size > 1 else device
    if wait < _KEEPS_UP:
        return _verdict_card(
            "good", f"The data keeps up: the {several} waited for it {percent(wait)} of the time.", stopped
        )
    text = (
        f"The {several} waited for data {percent(wait)} of the time. "
        f"Without the wait the run could be {percent(wait / (1.0 - wait)) if wait < 1 else 'much'} faster at most."
    )
    hint = '<div class="facts"><span>InputDoctor() in the Trainer\'s callbacks tells which setting helps.</span></div>'
    return _verdict_card("bad" if wait > _STARVES else "", text, hint + stopped)


def _verdict_card(kind: str, text: str, more: str) -> str:
    return f'<div class="card verdict {kind}"><p class="text">{escape(text)}</p>{more}</div>'


def _doctor_facts(doctor: DoctorRecord) -> str:
    facts = []
    if doctor.knob:
        facts.append(f"Setting <b><code>{escape(doctor.knob)}</code></b>")
    if doctor.expected_gain is not None:
        facts.append(f"Expected gain <b>{'+' if doctor.expected_gain >= 0 else ''}{percent(doctor.expected_gain)}</b>")
    if doctor.img_per_s is not None:
        facts.append(f"Now <b>{number(doctor.img_per_s)} img/s</b> a device")
    if doctor.img_per_s_without_input is not None:
        facts.append(f"Without the input pipeline <b>{number(doctor.img_per_s_without_input)} img/s</b>")
    details = "".join(f"<li>{escape(detail)}</li>" for detail in doctor.details)
    spans = "".join(f"<span>{fact}</span>" for fact in facts)
    return f'<div class="facts">{spans}</div>' + (f"<ul>{details}</ul>" if details else "")


def _wait_share(records: Sequence[RunRecord]) -> float | None:
    known = [part.data_wait_fraction for _, part in _throughputs(records) if part.data_wait_fraction is not None]
    return sum(known) / len(known) if known else None


def _tiles(records: Sequence[RunRecord]) -> str:
    tiles = []

    def tile(name: str, value: float | None, unit: str, more: str = "") -> None:
        if value is None:
            return
        text = number(value, 3 if value < 1000 else 4)
        tiles.append(
            f'<div class="card tile"><div class="name">{name}</div><div class="value">{text} <small>{escape(unit)}'
            f'</small></div><div class="more">{escape(more) or "&nbsp;"}</div></div>'
        )

    parts = [part for _, part in _throughputs(records)]
    if parts:
        rates = [part.img_per_s for part in parts if part.img_per_s is not None]
        complete = len(rates) == records[0].world_size
        each = f"{number(sum(rates) / len(rates))} a device" if len(rates) > 1 else ""
        tile("Images per second", sum(rates) if complete else None, "img/s", each)
        p95 = _mean([part.step_ms_p95 for part in parts])
        p50 = _mean([part.step_ms_p50 for part in parts])
        if p50 is not None:
            tile("Step time, median", p50, "ms", "" if p95 is None else f"95 % within {number(p95)} ms")
        else:
            tile("Step time, mean", _mean([part.step_ms for part in parts]), "ms")
        wait = _wait_share(records)
        tile("Waiting for data", None if wait is None else 100.0 * wait, "%", "of the training time")
        mfu = _mean([part.mfu for part in parts])
        tile("Model FLOPs utilization", None if mfu is None else 100.0 * mfu, "%", "of the dense peak")
    gpus = [record.gpu for record in records if record.gpu is not None and record.gpu.samples]
    if gpus:
        sm = _mean([gpu.mean.get("sm_active_pct") for gpu in gpus])
        busy = _mean([gpu.mean.get("utilization_pct") for gpu in gpus])
        tile("GPU utilization", busy, "%", "" if sm is None else f"SMs active {with_unit(sm, '%')}")
        power, limit = _mean([gpu.mean.get("power_w") for gpu in gpus]), _mean([gpu.power_limit_w for gpu in gpus])
        tile("Power a GPU", power, "W", "" if limit is None else f"of {with_unit(limit, 'W')}")
        used = [max(filter(None, gpu.timeline.columns.get("memory_used_gib", [])), default=None) for gpu in gpus]
        most, total = max(filter(None, used), default=None), _mean([gpu.memory_total_gib for gpu in gpus])
        tile("Memory, most", most, "GiB", "" if total is None else f"of {with_unit(total, 'GiB')}")
    if parts:
        tile("Images", float(sum(part.images for part in parts)), "", "delivered in this fit")
    columns = len(tiles) if len(tiles) <= 6 else 4
    return f'<div class="tiles" style="--columns: {columns}">{"".join(tiles)}</div>' if tiles else ""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# ---- throughput -----------------------------------------------------------------------------------------------------


def _throughput(records: Sequence[RunRecord], origin: float, end: float, spans: list[tuple[float, float]]) -> str:
    parts = _throughputs(records)
    if not parts:
        return ""
    figures = []
    rates = [(rank, _ratio(part, "images", "seconds", origin)) for rank, part in parts]
    waits = [(rank, _ratio(part, "wait_seconds", "seconds", origin, 100.0)) for rank, part in parts]
    steps = [(rank, _ratio(part, "seconds", "steps", origin, 1000.0)) for rank, part in parts]
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
        waits = [(part.data_wait_fraction, rank) for rank, part in _throughputs(records)]
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
        if len(_throughputs(records)) <= _BARS or doctor is not None
        else f'<span class="legend">the {_BARS} ranks that waited most</span>'
    )
    return (
        f'<h2>Where the time goes {which}</h2><div class="card shares">{cells}<span class="legend">{names}</span></div>'
    )


# ---- tables ---------------------------------------------------------------------------------------------------------


def _ranks(records: Sequence[RunRecord]) -> str:
    if len(records) < 2:
        return ""
    heads = (
        "rank",
        "host",
        "device",
        "GPU",
        "img/s",
        "median step",
        "p95 step",
        "waiting",
        "utilization",
        "power",
        "hottest",
    )
    rows = []
    for record in records:
        part, gpu = record.throughput or ThroughputRecord(0), record.gpu
        mean = gpu.mean if gpu else {}
        heat = max(filter(None, gpu.timeline.columns.get("temperature_c", [])), default=None) if gpu else None
        texts = (record.host, record.device, (gpu.name if gpu else None) or "—")
        numbers = (
            number(part.img_per_s), with_unit(part.step_ms_p50, "ms"), with_unit(part.step_ms_p95, "ms"),
            percent(part.data_wait_fraction), with_unit(mean.get("utilization_pct"), "%"),
            with_unit(mean.get("power_w"), "W"), with_unit(heat, "°C"),
        )  # fmt: skip
        cells = "".join(f"<td>{escape(text)}</td>" for text in texts)
        cells += "".join(f'<td class="n">{text}</td>' for text in numbers)
        rows.append(f"<tr><th>{record.rank}</th>{cells}</tr>")
    head = "".join(f'<th class="{"n" if index > 3 else ""}">{name}</th>' for index, name in enumerate(heads))
    return (
        f'<h2>Ranks</h2><div class="card scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _tables(records: Sequence[RunRecord]) -> str:
    first = records[0]
    environment = {name: _differing(name, records) for name in first.environment}
    gpu = first.gpu
    if gpu is not None:
        known = {
            "GPU": gpu.name, "GPU memory": gpu.memory_total_gib and with_unit(gpu.memory_total_gib, "GiB"),
            "power limit": gpu.power_limit_w and with_unit(gpu.power_limit_w, "W"), "driver": gpu.driver,
        }  # fmt: skip
        environment |= {name: str(value) for name, value in known.items() if value}
    return (
        f'<div class="pair"><div><h2>Versions and hardware</h2>{_table(environment)}</div>'
        f"<div><h2>Settings</h2>{_table(first.settings)}</div></div>"
    )


def _differing(name: str, records: Sequence[RunRecord]) -> str:
    """Rank 0's value, and the others where they are not the same."""
    own = records[0].environment[name]
    others = [(record.rank, record.environment.get(name, "—")) for record in records[1:]]
    return "; ".join([own, *(f"rank {rank}: {value}" for rank, value in others if value != own)])


def _table(rows: dict[str, str]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
    return f'<div class="card scroll"><table><tbody>{cells}</tbody></table></div>'


def _notes(records: Sequence[RunRecord]) -> str:
    several = records[0].world_size > 1
    notes: dict[str, list[int]] = {}
    for record in records:
        for note in [*record.notes, *(record.gpu.notes if record.gpu else ())]:
            notes.setdefault(note, []).append(record.rank)
    missing = sorted(set(range(records[0].world_size)) - {record.rank for record in records})
    lines = [f"No record of rank {', '.join(map(str, missing))}: not shown anywhere on this page."] if missing else []
    for note, ranks in notes.items():
        where = f" (rank {', '.join(map(str, ranks))})" if several and len(ranks) < len(records) else ""
        lines.append(f"{note}{where}")
    skipped = max((part.warmup_batches for _, part in _throughputs(records)), default=0)
    if skipped:
        lines.append(
            f"Rates and times leave out the first {skipped} batches, validation, and what lies between epochs."
        )
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>Notes</h2><div class="card"><ul class="notes">{items}</ul></div>' if lines else ""
