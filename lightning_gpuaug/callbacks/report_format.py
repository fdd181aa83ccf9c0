"""Numbers, durations and axes as a reader wants them."""

from __future__ import annotations

import math

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_TIME_STEPS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
    7200, 10800, 21600, 43200, 86400,
)  # fmt: skip


def number(value: float | None, digits: int = 3) -> str:
    """With about `digits` significant digits and thousands separators: 12,345; 12.3; 0.0123. None is an em dash."""
    if value is None or not math.isfinite(value):
        return "—"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 12)}f}"


def with_unit(value: float | None, unit: str, digits: int = 3) -> str:
    """A number and its unit, with a space that does not break."""
    text = number(value, digits)
    return text if value is None or not unit else f"{text}\u00a0{unit}"


def percent(share: float | None) -> str:
    """A share (0..1) in per cent: 42 %, 3.1 %, 0.04 %."""
    return "—" if share is None else with_unit(100.0 * share, "%", 2)


def duration(seconds: float) -> str:
    """Two units at most: 2 d 3 h, 1 h 20 min, 42 s, 350 ms."""
    if seconds < 1:
        return f"{round(seconds * 1000)}\u00a0ms"
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    left = round(seconds)
    parts = []
    for unit, size in units:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}\u00a0{unit}")
        elif parts:
            break  # 1 h, not 1 h 5 s
    return " ".join(parts[:2])


def nice_ticks(top: float, most: int = 5) -> list[float]:
    """0 and multiples of a round step, the last one ≥ `top`; at most `most` + 1 numbers.

    Args:
        top: largest value to cover, > 0.
        most: steps.
    """
    rough = top / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * step for step in (*_STEPS, 20.0) if size * step >= rough * (1 - 1e-9))
    count = max(1, math.ceil(top / step - 1e-9))
    return [step * i for i in range(count + 1)]


def time_ticks(end: float, most: int = 6) -> list[float]:
    """0 and multiples of a step that clocks know, up to `end` seconds."""
    step = next((step for step in _TIME_STEPS if end / step <= most), None)
    if step is None:
        step = 86400.0 * nice_ticks(end / 86400.0, most)[1]
    return [step * i for i in range(math.floor(end / step + 1e-9) + 1)]


def clock(seconds: float, step: float) -> str:
    """A tick's label, as fine as the step between ticks: 0, 30 s, 1:30, 1 h, 1:20 h, 2 d."""
    if seconds == 0:
        return "0"
    if step >= 86400:
        return f"{seconds / 86400:g}\u00a0d"
    if step < 1:
        return f"{seconds:.3g}\u00a0s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if whole < 60:
        return f"{whole}\u00a0s"
    if step < 60:
        return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
    if hours:
        return f"{hours}:{minutes:02}\u00a0h" if minutes or step < 3600 else f"{hours}\u00a0h"
    return f"{minutes}\u00a0min"
