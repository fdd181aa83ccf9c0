"""Charts as inline SVG, drawn by hand: lines over time, a histogram, bars of shares. Colours are in report.css."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from lightning_gpuaug.callbacks.report_format import clock, nice_ticks, number, percent, time_ticks
from lightning_gpuaug.callbacks.run_record import Histogram

COLORS = 8
"""Line colours in report.css: classes c0 to c7."""

Points = list[tuple[float, float | None]]
"""(seconds since the start, value), in order; None breaks the line."""


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        label: its name.
        points: where it goes.
        color: class of its colour, 0..7.
    """

    label: str
    points: Points
    color: int = 0


@dataclass(frozen=True)
class Frame:
    """A chart's size in its own units, which are pixels where it is shown at full width."""

    width: int
    height: int
    left: int = 52
    right: int = 14
    top: int = 10
    bottom: int = 24

    def x(self, share: float) -> float:
        """From a share of the axis."""
        return self.left + share * (self.width - self.left - self.right)

    def y(self, share: float) -> float:
        """From a share of the axis, upwards."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


WIDE = Frame(1080, 240)
HALF = Frame(530, 190)
THIRD = Frame(346, 150, left=44, right=10)


def line_chart(
    lines: Sequence[Line],
    unit: str,
    end: float,
    frame: Frame,
    *,
    top: float | None = None,
    limit: tuple[str, float] | None = None,
    spans: Sequence[tuple[float, float]] = (),
) -> str:
    """Lines over time. The y axis begins at 0.

    Args:
        lines: what to draw; a single one is filled below.
        unit: of the values, for the pointer's tooltip.
        end: of the time axis, seconds.
        frame: size.
        top: end of the y axis; None takes the largest value.
        limit: a name and a value to mark with a dashed line.
        spans: stretches of time to shade.
    """
    values = [value for line in lines for _, value in line.points if value is not None]
    highest = max([*values, *([limit[1]] if limit else []), 0.0]) or 1.0
    ticks = nice_ticks(highest if top is None else top, 5 if frame.height > 170 else 4)
    ceiling, end = ticks[-1], max(end, 1e-9)
    parts = [_shade(start / end, stop / end, frame) for start, stop in spans]
    parts += [_y_tick(tick, tick / ceiling, frame) for tick in ticks]
    steps = time_ticks(end, 8 if frame.width > 600 else 5 if frame.width > 400 else 4)
    step = steps[1] if len(steps) > 1 else end
    parts += [_x_tick(clock(tick, step), tick / end, frame) for tick in steps]
    if limit:
        y = frame.y(limit[1] / ceiling)
        parts.append(f'<line class="limit" x1="{frame.left}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="limit-label" x="{frame.x(1):.1f}" y="{y - 5:.1f}">{escape(limit[0])}</text>')
    for line in lines:
        pieces = _pieces(line.points, end, ceiling, frame)
        if len(lines) == 1:
            parts += [f'<path class="area c{line.color}" d="{_area(piece, frame)}"/>' for piece in pieces]
        stroke = "".join(_stroke(piece) for piece in pieces)
        parts.append(f'<path class="line c{line.color}" data-label="{escape(line.label)}" d="{stroke}"/>')
    parts.append(f'<line class="cross" y1="{frame.top}" y2="{frame.y(0):.1f}" x1="0" x2="0"/>')
    scale = (
        f'data-end="{end:.6g}" data-top="{ceiling:.6g}" data-unit="{escape(unit)}" data-x0="{frame.x(0):.1f}" '
        f'data-x1="{frame.x(1):.1f}" data-y0="{frame.y(0):.1f}" data-y1="{frame.y(1):.1f}"'
    )
    name = "timed fine" if frame.width < 400 else "timed"
    box = f"0 0 {frame.width} {frame.height}"
    return f'<svg class="{name}" viewBox="{box}" role="img" {scale}>{"".join(parts)}</svg>'


def legend(lines: Sequence[Line]) -> str:
    """Names and colours of lines."""
    items = (f'<span class="key"><i class="c{line.color}"></i>{escape(line.label)}</span>' for line in lines)
    return f'<span class="legend">{"".join(items)}</span>'


def histogram_chart(histogram: Histogram, unit: str, marks: Sequence[tuple[str, float]], frame: Frame) -> str:
    """Counts by value, with marked values.

    A last bin that is much wider than the others holds all the rest; it is drawn as wide as they are, hatched.

    Args:
        histogram: what to draw.
        unit: of its edges.
        marks: names and values to mark with a line.
        frame: size.
    """
    edges, counts = histogram.edges, histogram.counts
    widths = sorted(b - a for a, b in pairwise(edges))
    rest = len(counts) > 2 and edges[-1] - edges[-2] > 3 * widths[len(widths) // 2]
    shown = edges[:-1] if rest else edges
    low, high = shown[0], shown[-1]
    usual = (high - low) / (len(shown) - 1)
    room = high - low + (2.5 * usual if rest else 0.0)

    def place(value: float) -> float:
        return (min(value, high) - low) / room

    ticks = nice_ticks(max(counts), 6)
    parts = [_y_tick(tick, tick / ticks[-1], frame) for tick in ticks if tick == round(tick)]
    total = sum(counts)
    for index, count in enumerate(counts):
        is_rest = rest and index == len(counts) - 1
        start = 1.0 - 1.5 * usual / room if is_rest else place(edges[index])
        stop = 1.0 if is_rest else place(edges[index + 1])
        x, width = frame.x(start) + 0.5, max(1.0, frame.x(stop) - frame.x(start) - 1.0)
        y = frame.y(count / ticks[-1])
        if count:
            y = min(y, frame.y(0) - 1.5)  # one step among thousands is still seen
        what = f"{number(edges[index])} – {number(edges[index + 1])} {unit}: {count:,} steps, {percent(count / total)}"
        parts.append(
            f'<rect class="bar{" rest" if is_rest else ""}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{max(0.0, frame.y(0) - y):.1f}"><title>{escape(what)}</title></rect>'
        )
    step = nice_ticks(high - low, 8)[1]
    first = -(-low // step)  # rounded up
    label = first * step
    # Where the rest's own label stands there is no room for another.
    last = high - (60.0 / (frame.x(1) - frame.x(0)) * room if rest else 0.0)
    while label <= last + 1e-9 * step:
        parts.append(
            _x_tick(number(label, 4).rstrip("0").rstrip(".") if label % 1 else f"{label:,.0f}", place(label), frame)
        )
        label += step
    if rest:
        middle = 1.0 - 0.75 * usual / room
        parts.append(_x_tick(f"> {number(high)}", middle, frame, grid=False))
    for index, (name, value) in enumerate(marks):
        x, y = frame.x(place(value)), frame.top + 10 + 14 * index
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.y(0):.1f}"/>')
        side = "end" if place(value) > 0.75 else "start"
        shift = -5 if side == "end" else 5
        parts.append(
            f'<text class="mark-label" text-anchor="{side}" x="{x + shift:.1f}" y="{y}">{escape(name)} '
            f"{number(value)} {escape(unit)}</text>"
        )
    return f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img">{"".join(parts)}</svg>'


def share_bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """One bar, divided.

    Args:
        parts: name, share (0..1) and colour class of each; the shares' sum is the bar's length.
    """
    x, drawn = 0.0, []
    for name, share, color in parts:
        width = 1000.0 * max(share, 0.0)
        what = f"<title>{escape(name)}: {percent(share)}</title>"
        drawn.append(f'<rect class="{color}" x="{x:.2f}" y="0" width="{width:.2f}" height="20">{what}</rect>')
        x += width
    return f'<svg class="share" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img">{"".join(drawn)}</svg>'


def _pieces(points: Points, end: float, ceiling: float, frame: Frame) -> list[list[tuple[float, float]]]:
    """The line's unbroken pieces in the chart's units."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for time, value in points:
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((frame.x(time / end), frame.y(min(value / ceiling, 1.05))))
    return [piece for piece in pieces if piece]


def _stroke(piece: Sequence[tuple[float, float]]) -> str:
    doubled = piece if len(piece) > 1 else [*piece, *piece]  # a lone point is drawn as a dot
    return "M" + "L".join(f"{x:.2f},{y:.2f}" for x, y in doubled)


def _area(piece: Sequence[tuple[float, float]], frame: Frame) -> str:
    return f"{_stroke(piece)}L{piece[-1][0]:.2f},{frame.y(0):.2f}L{piece[0][0]:.2f},{frame.y(0):.2f}Z"


def _shade(start: float, stop: float, frame: Frame) -> str:
    x, width = frame.x(start), frame.x(stop) - frame.x(start)
    height = frame.y(0) - frame.top
    return f'<rect class="span" x="{x:.1f}" y="{frame.top}" width="{max(width, 0.8):.1f}" height="{height:.1f}"/>'


def _y_tick(value: float, share: float, frame: Frame) -> str:
    y = frame.y(share)
    text = f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
    return (
        f'<line class="{"axis" if share == 0 else "grid"}" x1="{frame.left}" x2="{frame.x(1):.1f}" y1="{y:.1f}" '
        f'y2="{y:.1f}"/><text class="tick y" x="{frame.left - 8}" y="{y + 3.5:.1f}">{text}</text>'
    )


def _x_tick(text: str, share: float, frame: Frame, grid: bool = True) -> str:
    x = frame.x(share)
    line = f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{frame.y(0):.1f}" y2="{frame.y(0) + 4:.1f}"/>'
    return f'{line if grid else ""}<text class="tick x" x="{x:.1f}" y="{frame.y(0) + 17:.1f}">{escape(text)}</text>'
