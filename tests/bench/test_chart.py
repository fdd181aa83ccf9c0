"""The chart: lengths are the values, on both scales."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug.bench.chart import _OTHER, _OURS, Bar, Panel, bar_chart


def lengths(path: Path, color: tuple[int, int, int]) -> list[int]:
    """Lengths in pixels of the bars of a colour, from the top."""
    pixels = np.asarray(Image.open(path))
    rows = (pixels == color).all(axis=2).sum(axis=1)
    bars = np.split(rows, np.flatnonzero(np.diff(rows > 0)) + 1)
    return [int(np.median(bar)) for bar in bars if bar[0] > 0]


def test_linear_lengths_are_proportional(tmp_path: Path) -> None:
    bars = [Bar("ours", 200.0, "200", True), Bar("other", 100.0, "100", False), Bar("third", 25.0, "25", False)]
    path = bar_chart([Panel(bars, "img/s")], tmp_path / "new" / "c.png", title="t", note="a, b")
    ours, (other, third) = lengths(path, _OURS)[0], lengths(path, _OTHER)
    assert other / ours == pytest.approx(0.5, abs=0.01)
    assert third / ours == pytest.approx(0.125, abs=0.01)


def test_logarithmic_lengths(tmp_path: Path) -> None:
    bars = [Bar(str(value), value, "", False) for value in (10_000.0, 100.0, 10.0)]
    path = bar_chart([Panel(bars, "us", log=True)], tmp_path / "c.png", title="t")
    longest, middle, least = lengths(path, _OTHER)
    assert middle / longest == pytest.approx(2 / 4, abs=0.01)  # from 1, the power of ten below the least
    assert least / longest == pytest.approx(1 / 4, abs=0.01)


def test_each_panel_has_its_scale(tmp_path: Path) -> None:
    panels = [Panel([Bar("a", 5.0, "5", True)], "x"), Panel([Bar("b", 5e6, "5,000,000", False)], "y")]
    path = bar_chart(panels, tmp_path / "c.png", title="t")
    assert lengths(path, _OURS) == pytest.approx(lengths(path, _OTHER), abs=2)


def test_long_labels_and_texts_stay_inside(tmp_path: Path) -> None:
    path = bar_chart(
        [Panel([Bar("w" * 120, 1.0, "w" * 40, True)], "x")], tmp_path / "c.png", title="t", note="n, " * 200
    )
    pixels = np.asarray(Image.open(path))
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 255).all()


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_what_has_no_length_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="finite values above 0, got"):
        Panel([Bar("a", value, "", True)], "x")


def test_no_bars_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Panel([], "x")
