"""A bar chart as a PNG, drawn by Pillow: one bar a row, the value at its end."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_BACKGROUND, _INK, _FAINT = (255, 255, 255), (32, 36, 44), (120, 126, 138)
_OURS, _OTHER, _GRID = (38, 145, 78), (160, 168, 182), (226, 229, 234)
_ROW, _BAR, _MARGIN, _AXIS = 40, 26, 28, 86
_WIDTH = 1500
_PLAIN = str.maketrans({"µ": "u", "×": "x", "–": "-", "…": "..."})
"""Pillow's own font has no more than ASCII."""


@dataclass(frozen=True)
class Bar:
    """One bar.

    Attributes:
        label: left of it.
        value: its length, > 0.
        text: right of it.
        ours: whether it is this package's, and stands out.
    """

    label: str
    value: float
    text: str
    ours: bool


@dataclass(frozen=True)
class Panel:
    """Bars under one scale.

    Attributes:
        bars: at least one, drawn in this order.
        axis: below them: what is measured, its unit, whether more or less is better.
        log: lengths by the logarithm, for values that span decades.
    """

    bars: Sequence[Bar]
    axis: str
    log: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        if not self.bars:
            raise ValueError("Panel.bars must be at least one, got none")
        for bar in self.bars:
            if not 0 < bar.value < math.inf:
                raise ValueError(f"Panel.bars must have finite values above 0, got {bar.value!r} for {bar.label!r}")


def bar_chart(panels: Sequence[Panel], path: str | os.PathLike[str], *, title: str, note: str = "") -> Path:
    """Draw panels of bars, one below the other, to the PNG `path`; its folder is made.

    Args:
        panels: at least one.
        path: the file to write.
        title: above the bars.
        note: small print at the bottom: the machine. Wrapped at commas.
    """
    head, body, small = (ImageFont.load_default(size=size) for size in (28, 21, 16))
    bars = [bar for panel in panels for bar in panel.bars]
    left = _MARGIN + max(int(body.getlength(_plain(bar.label))) for bar in bars) + 16
    right = max(int(body.getlength(_plain(bar.text))) for bar in bars) + _MARGIN + 12
    width = max(_WIDTH, left + right + 500)
    notes = _wrapped(_plain(note), small, width - 2 * _MARGIN)
    top = _MARGIN + 52
    height = top + sum(_ROW * len(panel.bars) + _AXIS for panel in panels) + 24 * len(notes) + _MARGIN
    canvas = Image.new("RGB", (width, height), _BACKGROUND)
    ink = ImageDraw.Draw(canvas)
    ink.text((_MARGIN, _MARGIN - 4), _plain(title), fill=_INK, font=head)
    for panel in panels:
        bottom = top + _ROW * len(panel.bars)
        scale = _Scale.of([bar.value for bar in panel.bars], panel.log, width - left - right)
        for tick in scale.ticks:
            x = left + scale(tick)
            ink.line((x, top, x, bottom), fill=_GRID, width=2)
            ink.text((x, bottom + 6), _number(tick), fill=_FAINT, font=small, anchor="ma")
        for row, bar in enumerate(panel.bars):
            y = top + row * _ROW + (_ROW - _BAR) // 2
            middle = y + _BAR // 2
            ink.text((left - 16, middle), _plain(bar.label), fill=_INK, font=body, anchor="rm")
            end = left + max(3, scale(bar.value))
            ink.rectangle((left, y, end, y + _BAR), fill=_OURS if bar.ours else _OTHER)
            ink.text((end + 10, middle), _plain(bar.text), fill=_INK, font=body, anchor="lm")
        ink.line((left, top, left, bottom), fill=_FAINT, width=2)
        ink.text((left, bottom + 34), _plain(panel.axis) + (", log scale" if panel.log else ""), fill=_INK, font=body)
        top = bottom + _AXIS
    for line, text in enumerate(notes):
        ink.text((_MARGIN, top + 24 * line), text, fill=_FAINT, font=small)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    canvas.save(path, "PNG")
    return Path(path)


@dataclass(frozen=True)
class _Scale:
    """Values to pixels: linear from 0, or the logarithm from a power of ten below the least value."""

    low: float
    high: float
    pixels: int
    log: bool
    ticks: tuple[float, ...]

    @classmethod
    def of(cls, values: list[float], log: bool, pixels: int) -> _Scale:
        high = max(values)
        if log:
            first, last = math.floor(math.log10(min(values)) - 0.05), math.ceil(math.log10(high) - 1e-9)
            ticks = tuple(10.0**power for power in range(first, last + 1) if 10.0**power <= high)
            return cls(10.0**first, high, pixels, log, ticks)
        unit = 10.0 ** math.floor(math.log10(high))
        step = next(unit * part for part in (0.2, 0.25, 0.5, 1.0, 2.0) if high / (unit * part) <= 6)
        return cls(0.0, high, pixels, log, tuple(step * i for i in range(int(high / step + 1e-9) + 1)))

    def __call__(self, value: float) -> float:
        if self.log:
            return self.pixels * math.log(value / self.low) / math.log(self.high / self.low)
        return self.pixels * value / self.high


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or value == 0 else f"{value:g}"


def _plain(text: str) -> str:
    return text.translate(_PLAIN)


def _wrapped(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines: list[str] = []
    for part in text.split(", ") if text else []:
        if lines and font.getlength(f"{lines[-1]}, {part}") <= width:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines
