"""The report's tables: the ranks side by side, versions, hardware, settings, and notes on what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lightning_gpuaug.callbacks.report_format import number, percent, with_unit
from lightning_gpuaug.callbacks.report_throughput import throughputs
from lightning_gpuaug.callbacks.run_record import RunRecord, ThroughputRecord


def ranks_table(records: Sequence[RunRecord]) -> str:
    """A row a rank; empty for one rank."""
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


def surroundings_tables(records: Sequence[RunRecord]) -> str:
    """Versions and hardware, and the settings."""
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


def notes_list(records: Sequence[RunRecord]) -> str:
    """What is missing and why; empty where nothing is."""
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
    skipped = max((part.warmup_batches for _, part in throughputs(records)), default=0)
    if skipped:
        lines.append(
            f"Rates and times leave out the first {skipped} batches, validation, and what lies between epochs."
        )
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>Notes</h2><div class="card"><ul class="notes">{items}</ul></div>' if lines else ""
