"""The page: complete by itself, well-formed, right numbers in the right places, and what it looks like in a browser."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug.callbacks.report_charts import HALF, THIRD, Line, histogram_chart, line_chart, share_bar
from lightning_gpuaug.callbacks.report_format import (
    clock,
    duration,
    nice_ticks,
    number,
    percent,
    time_ticks,
    with_unit,
)
from lightning_gpuaug.callbacks.report_page import page
from lightning_gpuaug.callbacks.run_record import Histogram, RunRecord, Series
from tests.callbacks.run_examples import DOCTOR, NOTE, record

# ---- numbers --------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"), (float("nan"), "—"), (0.0, "0"), (12_345.6, "12,346"), (123.45, "123"), (12.345, "12.3"),
        (1.0, "1.00"), (0.01234, "0.0123"), (-3.14159, "-3.14"),
    ],
)  # fmt: skip
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


def test_shares_and_units() -> None:
    assert [plain(percent(share)) for share in (1.0, 0.428, 0.0314, 0.00042, 0.0, None)] == [
        "100 %", "43 %", "3.1 %", "0.042 %", "0 %", "—"
    ]  # fmt: skip
    assert plain(with_unit(512.3, "W")) == "512 W"
    assert with_unit(None, "W") == "—"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.35, "350 ms"), (4.2, "4.2 s"), (42, "42 s"), (3600, "1 h"), (3605, "1 h"), (4800, "1 h 20 min"),
     (93_600, "1 d 2 h"), (119.6, "2 min")],
)  # fmt: skip
def test_duration(seconds: float, text: str) -> None:
    assert plain(duration(seconds)) == text


@pytest.mark.parametrize("top", [0.003, 0.9, 1.0, 7.3, 100.0, 141.0, 12_912.0, 3.2e9])
def test_ticks_cover_the_values_in_round_steps(top: float) -> None:
    ticks = nice_ticks(top)
    assert ticks[0] == 0
    assert ticks[-2] < top <= ticks[-1] * (1 + 1e-9)
    assert 2 <= len(ticks) <= 6
    assert f"{ticks[1]:.0e}"[0] in "125"


@pytest.mark.parametrize(
    ("end", "labels"),
    [
        (0.05, ["0", "0.01 s", "0.02 s", "0.03 s", "0.04 s", "0.05 s"]),
        (47, ["0", "10 s", "20 s", "30 s", "40 s"]),
        (130, ["0", "30 s", "1:00", "1:30", "2:00"]),
        (1800, ["0", "5 min", "10 min", "15 min", "20 min", "25 min", "30 min"]),
        (9000, ["0", "30 min", "1:00 h", "1:30 h", "2:00 h", "2:30 h"]),
        (90_000, ["0", "6 h", "12 h", "18 h", "24 h"]),
        (10 * 86_400, ["0", "2 d", "4 d", "6 d", "8 d", "10 d"]),
    ],
)
def test_time_axis(end: float, labels: list[str]) -> None:
    ticks = time_ticks(end)
    assert [plain(clock(tick, ticks[1])) for tick in ticks] == labels


# ---- charts ---------------------------------------------------------------------------------------------------------


def stroke(svg: str, label: str) -> list[tuple[float, float]]:
    [path] = re.findall(rf'data-label="{label}" d="([^"]*)"', svg)
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+),([-\d.]+)", path)]


def test_a_line_is_where_its_values_are() -> None:
    svg = line_chart([Line("a", [(0.0, 0.0), (50.0, 80.0), (100.0, 20.0)]), Line("b", [])], "%", 100.0, HALF, top=100.0)
    left, right, low, high = HALF.x(0), HALF.x(1), HALF.y(0), HALF.y(1)
    points = [(left, low), ((left + right) / 2, low - 0.8 * (low - high)), (right, low - 0.2 * (low - high))]
    assert np.allclose(stroke(svg, "a"), points, atol=0.01)
    # What the pointer's tooltip computes values with.
    assert f'data-end="100" data-top="100" data-unit="%" data-x0="{left:.1f}" data-x1="{right:.1f}"' in svg


def test_gaps_break_a_line_and_lone_points_are_dots() -> None:
    svg = line_chart([Line("a", [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 3.0)])], "W", 4.0, THIRD)
    [path] = re.findall(r'data-label="a" d="([^"]*)"', svg)
    assert path.count("M") == 2
    assert len(stroke(svg, "a")) == 2 + 2


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(0.0, None)]])
def test_nothing_to_draw_draws_axes(points: list[tuple[float, float | None]]) -> None:
    assert line_chart([Line("a", points)], "W", 0.0, THIRD).count('class="tick') >= 2


def test_bars_are_as_high_as_their_counts_and_the_rest_stands_apart() -> None:
    svg = histogram_chart(Histogram([10.0, 12.0, 14.0, 16.0, 90.0], [1, 40, 8, 3]), "ms", [("median", 13.0)], HALF)
    bars = re.findall(
        r'<rect class="(bar[ a-z]*)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"><title>([^<]*)', svg
    )
    assert [kind for kind, *_ in bars] == ["bar", "bar", "bar", "bar rest"]
    heights = np.array([float(height) for *_, height, _ in bars])
    assert heights[1:] / heights[1] == pytest.approx(np.array([40, 8, 3]) / 40, abs=0.01)
    assert float(bars[3][1]) > float(bars[2][1]) + float(bars[2][2]) + 5  # not beside the others
    assert bars[1][4] == "12.0 – 14.0 ms: 40 steps, 77\u00a0%"
    assert ">&gt; 16.0<" in svg
    assert "median 13.0 ms" in svg


def test_equal_steps_are_one_bar() -> None:
    assert histogram_chart(Histogram([5.0, 5.006], [100]), "ms", [], HALF).count('class="bar"') == 1


def test_shares_add_up_to_the_bar() -> None:
    widths = re.findall(r'width="([\d.]+)"', share_bar([("a", 0.7, "c0"), ("b", 0.25, "c1"), ("c", 0.05, "c2")]))
    assert [float(width) for width in widths] == [700, 250, 50]


# ---- the page -------------------------------------------------------------------------------------------------------


class Checked(HTMLParser):
    """Raises where tags do not match; collects text by enclosing tag."""

    VOID = frozenset({"meta", "br", "rect", "line", "path", "i"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.classes: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes.append(dict(attrs).get("class") or "")
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes.append(dict(attrs).get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and not {"style", "script"} & set(self.open):
            self.text.append(plain(data))

    @property
    def whole(self) -> str:
        return " ".join(" ".join(self.text).split())


EXAMPLES = {
    "one rank with a doctor": [dataclasses.replace(record(), doctor=DOCTOR)],
    "four ranks": [record(rank, 4, wait=0.05 + 0.03 * rank) for rank in range(4)],
    "many ranks, one missing": [record(rank, 12, wait=0.003) for rank in range(12) if rank != 5],
    "a CPU": [dataclasses.replace(record(), gpu=None, device="cpu")],
    "nothing measured": [dataclasses.replace(record(), gpu=None, throughput=None)],
    "a GPU alone": [dataclasses.replace(record(), throughput=None)],
    "ended by an error": [record(error="RuntimeError: a <b>bold</b> one")],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_is_well_formed_and_needs_nothing_else(name: str) -> None:
    text = page(EXAMPLES[name])
    Checked(text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|\ssrc=|<link|<img|fetch\(|XMLHttp", text)
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", text.lower())
    assert len(text) < 2_000_000


def test_the_doctors_verdict_comes_first() -> None:
    shown = Checked(page(EXAMPLES["one rank with a doctor"])).whole
    assert DOCTOR.verdict in shown
    assert shown.index(DOCTOR.verdict) < shown.index("Images per second")
    for fact in ("hw_decoder_load 0.65 → 1.0", "+37 %", "2,610 img/s", "3,570 img/s", "decode 21 %", "model 73 %"):
        assert fact in shown
    assert all(detail in shown for detail in DOCTOR.details)


@pytest.mark.parametrize(
    ("wait", "kind", "text"),
    [
        (
            0.2,
            "bad",
            "The GPU waited for data 20 % of the time. Without the wait the run could be 25 % faster at most.",
        ),
        (0.03, "", "The GPU waited for data 3.0 % of the time."),
        (0.004, "good", "The data keeps up: the GPU waited for it 0.40 % of the time."),
        (None, "", "How fast this run trained is not known: add Throughput()"),
    ],
)
def test_without_a_doctor_the_wait_is_told(wait: float | None, kind: str, text: str) -> None:
    example = record()
    assert example.throughput is not None
    measured = dataclasses.replace(example.throughput, data_wait_fraction=wait)
    checked = Checked(page([dataclasses.replace(example, throughput=measured)]))
    assert text in checked.whole
    assert f"card verdict {kind}" in checked.classes
    assert ("InputDoctor()" in checked.whole) == (wait is not None and wait > 0.01)


def test_rates_of_all_ranks_are_added() -> None:
    records = EXAMPLES["four ranks"]
    shown = Checked(page(records)).whole
    total = sum(one.throughput.img_per_s or 0 for one in records if one.throughput)
    assert f"Images per second {total:,.0f} img/s {total / 4:,.0f} a device" in shown
    # The line of all ranks: at the last log the sum of their last rates.
    last = sum(
        one.throughput.timeline.columns["images"][-1] / one.throughput.timeline.columns["seconds"][-1]  # type: ignore[operator]
        for one in records
        if one.throughput
    )
    text = page(records)
    [chart] = re.findall(r'<svg class="timed"[^>]*data-unit="img/s".*?</svg>', text)
    top, y0, y1 = (float(re.findall(rf'data-{name}="([\d.]+)"', chart)[0]) for name in ("top", "y0", "y1"))
    [label] = re.findall(r'data-label="([^"]*)"', chart)
    assert label == "all ranks"
    assert (stroke(chart, label)[-1][1] - y0) / (y1 - y0) * top == pytest.approx(last, rel=1e-3)
    for rank in range(4):
        assert f"rank {rank}" in shown


def test_a_missing_rank_is_named_and_no_total_is_invented() -> None:
    shown = Checked(page(EXAMPLES["many ranks, one missing"])).whole
    assert "No record of rank 5" in shown
    assert "11 of 12 ranks" in shown
    assert "img/s" in shown  # in the ranks' table
    assert not re.search(r"Images per second [\d,]+ img/s", shown)
    assert "highest of 11 ranks" in shown


def test_gpu_numbers_that_never_move_from_zero_take_no_chart() -> None:
    shown = Checked(page([record()])).whole
    assert "Always 0: Video decoder (NVDEC)." in shown
    assert shown.count("SM clock") == 1
    assert "PCIe from the GPU" not in shown  # never known
    assert "Clocks held down: power cap 8.1 % of the samples." in shown
    assert NOTE in shown


def test_an_error_and_everything_else_is_escaped() -> None:
    checked = Checked(page(EXAMPLES["ended by an error"]))
    assert "RuntimeError: a <b>bold</b> one" in checked.whole
    assert '64 cores <of> "some" kind' in checked.whole


def test_what_differs_between_ranks_is_shown() -> None:
    ranks = [record(0, 2), record(1, 2)]
    ranks[1] = dataclasses.replace(ranks[1], environment={**ranks[1].environment, "torch": "2.11.0"}, notes=["odd"])
    shown = Checked(page(ranks)).whole
    assert "2.14.1; rank 1: 2.11.0" in shown
    assert "odd (rank 1)" in shown


def test_an_empty_timeline_has_no_chart() -> None:
    example = record()
    assert example.throughput is not None
    short = dataclasses.replace(example.throughput, timeline=Series(), step_ms_histogram=None)
    shown = Checked(page([dataclasses.replace(example, throughput=short)])).whole
    assert "Step time, median" in shown
    assert "Step times" not in shown


# ---- in a browser ---------------------------------------------------------------------------------------------------

BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None
)
DARK, LIGHT = "--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium (apt-get install chromium-headless-shell)")


def browse(path: Path, *options: str) -> str:
    assert BROWSER is not None
    quiet = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={path.parent / 'profile'}",
    )
    done = subprocess.run(
        [BROWSER, *quiet, *options, path.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def screenshot(records: list[RunRecord], folder: Path, scheme: str, size: str = "1200,2600") -> np.ndarray:
    path, picture = folder / "report.html", folder / "report.png"
    path.write_text(page(records), encoding="utf-8")
    browse(path, scheme, f"--window-size={size}", f"--screenshot={picture}")
    return np.asarray(Image.open(picture).convert("RGB")).astype(int)


@needs_browser
def test_it_is_drawn_light_and_dark(tmp_path: Path) -> None:
    pictures = {scheme: screenshot(EXAMPLES["four ranks"], tmp_path, scheme) for scheme in (LIGHT, DARK)}
    light, dark = pictures[LIGHT], pictures[DARK]
    assert light.shape == dark.shape == (2600, 1200, 3)
    assert light[5, 5].min() > 230  # the page's ground
    assert dark[5, 5].max() < 40
    for picture in (light, dark):
        ground = picture[5, 5]
        covered = (np.abs(picture - ground).max(axis=2) > 60).mean(axis=1)  # share of each line with text or charts
        assert (covered[:2400] > 0).mean() > 0.4
        colorful = picture.max(axis=2) - picture.min(axis=2) > 60  # lines and bars, not grey text
        assert 0.005 < colorful.mean() < 0.3


# Runs in the page: the pointer over a chart, then what is where. Its findings are the page's title.
PROBE = """<script>
addEventListener("load", () => {
  const svg = document.querySelector("svg.timed"), box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width * 0.6, clientY: box.top + 50 }));
  const crossed = [...document.querySelectorAll(".cross")].filter((line) => line.style.visibility === "visible");
  const tip = document.getElementById("tip").innerText;
  const outside = [...document.querySelectorAll("svg.timed, .scroll, .tile .value")].filter((e) => {
    const own = e.getBoundingClientRect(), card = e.closest(".card").getBoundingClientRect();
    return own.left < card.left - 1 || own.right > card.right + 1;
  });
  const labels = [...document.querySelectorAll("svg")].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll("text.tick.x")].map((text) => text.getBoundingClientRect());
    return boxes.slice(1).filter((box, index) => box.left < boxes[index].right + 2);
  });
  document.title = JSON.stringify({
    charts: document.documentElement.dataset.ready, crossed: crossed.length, tip, outside: outside.length,
    labels: labels.length, wide: document.documentElement.scrollWidth - innerWidth,
  });
});
</script>"""


@needs_browser
@pytest.mark.parametrize("name", ["four ranks", "one rank with a doctor"])
@pytest.mark.parametrize("width", [1200, 500])
def test_the_pointer_shows_values_and_nothing_overlaps(name: str, width: int, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(EXAMPLES[name]).replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    dom = browse(path, f"--window-size={width},1000", "--dump-dom")
    found = json.loads(html.unescape(re.findall(r"<title>(.*?)</title>", dom)[0]))
    charts = page(EXAMPLES[name]).count('class="timed')
    assert found["charts"] == str(charts)
    assert found["crossed"] == charts
    assert re.search(r"0:(17|18|19):\d\d", found["tip"])  # of 30 minutes
    assert "img/s" in found["tip"]
    assert (found["outside"], found["labels"], found["wide"]) == (0, 0, 0)
