"""The report: the records of all ranks as one HTML page that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

from lightning_gpuaug.callbacks.report_format import duration, number, percent, with_unit
from lightning_gpuaug.callbacks.report_gpu import gpu_section
from lightning_gpuaug.callbacks.report_tables import notes_list, ranks_table, surroundings_tables
from lightning_gpuaug.callbacks.report_throughput import throughput_section, throughputs
from lightning_gpuaug.callbacks.run_record import DoctorRecord, RunRecord

# Shares of the time spent waiting for data: below the one all is well, above the other it is not.
_KEEPS_UP, _STARVES = 0.01, 0.05


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
            throughput_section(records, origin, end, spans),
            gpu_section(records, origin, end, spans),
            ranks_table(records),
            surroundings_tables(records),
            notes_list(records),
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
    known = [part.data_wait_fraction for _, part in throughputs(records) if part.data_wait_fraction is not None]
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

    parts = [part for _, part in throughputs(records)]
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
