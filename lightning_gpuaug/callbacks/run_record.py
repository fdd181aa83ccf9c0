"""What one rank knows about one fit: the data file between the callbacks that measure and the report that shows it.

A callback that has something to report has a method `run_record()` which returns one of the sections below
(`ThroughputRecord`, `GpuRecord`, `DoctorRecord`), or None when it measured nothing. `Report` asks every callback of the
trainer at the end of the fit, puts the sections into this rank's `RunRecord`, and writes it as JSON to
`<folder>/run_record/rank<rank>.json`. Rank 0 then reads the files of all ranks and writes `<folder>/report.html`.

The rules of `run_record()`:

- It is called in `on_fit_end` (all callbacks have had their `on_train_end`), or in `on_exception`, before or after the
  callback's own `on_exception`. It may be called more than once.
- It must not wait for other ranks: after an exception they may be gone.
- Sections hold plain numbers, strings, and lists and dicts of them. A value that is not known is None, never 0.

Times of day are seconds since 1970 (`time.time()`), shares are 0..1, everything else says its unit in its name.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

VERSION = 1
"""Of the file's layout; a file of another version is refused."""

FOLDER = "run_record"
"""Name of the folder of a run that holds its records."""


@dataclass(frozen=True)
class Series:
    """Numbers over time: a table with one row per moment.

    Attributes:
        times: ends of the rows' spans, seconds since 1970, ascending.
        columns: by name, as many values as there are times; None where a row lacks one.
    """

    times: list[float] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the columns are as long as the times."""
        for name, values in self.columns.items():
            if len(values) != len(self.times):
                raise ValueError(f"column {name!r} must have {len(self.times)} values, got {len(values)}")


@dataclass(frozen=True)
class Histogram:
    """Counts by value.

    Attributes:
        edges: (n + 1) ascending bounds of the bins.
        counts: (n) values in each bin.
    """

    edges: list[float]
    counts: list[int]

    def __post_init__(self) -> None:
        """Check that there is one more edge than there are counts."""
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"edges must be {len(self.counts) + 1} numbers, got {len(self.edges)}")


@dataclass(frozen=True)
class ThroughputRecord:
    """How fast this rank trained.

    Attributes:
        images: images that this rank delivered in this fit, warm-up included.
        warmup_batches: batches at the start that no rate or time includes.
        img_per_s: images per second of this rank.
        step_ms: mean milliseconds from one optimizer step to the next.
        step_ms_p50: median of the same.
        step_ms_p95: 95th percentile of the same.
        data_wait_fraction: share of the time in which the device had nothing to do for lack of a batch.
        mfu: model FLOP/s over the device's dense peak.
        timeline: a row per log, with columns `images`, `seconds` and `wait_seconds`, all of them sums over the measured
            batches since the row before (`seconds` is training time, `wait_seconds` the part of it spent waiting for
            data), and `steps` and `step_seconds`: the steps that ended since then and were measured whole, their time.
        step_ms_histogram: how often a step took how many milliseconds.
    """

    images: int
    warmup_batches: int = 0
    img_per_s: float | None = None
    step_ms: float | None = None
    step_ms_p50: float | None = None
    step_ms_p95: float | None = None
    data_wait_fraction: float | None = None
    mfu: float | None = None
    timeline: Series = field(default_factory=Series)
    step_ms_histogram: Histogram | None = None


@dataclass(frozen=True)
class GpuRecord:
    """What NVML said about this rank's GPU.

    Attributes:
        name: the product's name.
        uuid: `GPU-…` or `MIG-…`.
        driver: the driver's version.
        memory_total_gib: of the device or MIG instance, GiB.
        power_limit_w: enforced limit, W.
        interval_s: seconds between two samples.
        samples: samples taken.
        timeline: a column per metric, named as in the loggers without `gpu/`; means over each row's span.
        mean: mean of each metric over all samples.
        throttled: share of the samples in which clocks were held down, by reason.
        notes: what could not be measured and why, a sentence each.
    """

    name: str | None = None
    uuid: str | None = None
    driver: str | None = None
    memory_total_gib: float | None = None
    power_limit_w: float | None = None
    interval_s: float | None = None
    samples: int = 0
    timeline: Series = field(default_factory=Series)
    mean: dict[str, float] = field(default_factory=dict)
    throttled: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DoctorRecord:
    """What limits this run and what to turn.

    Attributes:
        verdict: one or two plain sentences; the first thing that a reader of the report sees.
        bound_by: one word for the cause: "read", "decode", "augment", "transfer", "host", "input" (one of these, it is
            not known which) or "model" (nothing to gain from the input pipeline).
        knob: the one setting to change, as "hw_decoder_load 0.65 → 1.0".
        expected_gain: images per second to be gained by it: 0.4 is +40 %.
        img_per_s: images per second as the run is, this rank.
        img_per_s_without_input: the same without the input pipeline: the run's headroom.
        lost: share of the run's time lost to each part of the input pipeline, by the names that `bound_by` uses; what
            is missing from 1 is the model's.
        details: further findings, a sentence each.
    """

    verdict: str
    bound_by: str
    knob: str | None = None
    expected_gain: float | None = None
    img_per_s: float | None = None
    img_per_s_without_input: float | None = None
    lost: dict[str, float] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)


Section = ThroughputRecord | GpuRecord | DoctorRecord


@runtime_checkable
class Recorded(Protocol):
    """A callback with something to report."""

    def run_record(self) -> Section | None:
        """This rank's section, or None when nothing was measured; see the module's rules."""


@dataclass(frozen=True)
class Span:
    """A stretch of the fit that was not training.

    Attributes:
        name: what it was: "validation".
        start: seconds since 1970.
        end: seconds since 1970.
    """

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class RunRecord:
    """One rank's file.

    Attributes:
        run_id: the same in all records of one fit, another in every fit.
        rank: of this process, 0..world_size-1.
        world_size: ranks.
        host: the machine's name.
        device: as torch names it: "cuda:0", "cpu".
        started: beginning of the fit, seconds since 1970.
        finished: end of the fit, seconds since 1970.
        error: the exception that ended the fit, in one line; None when it ended by itself.
        settings: the run's settings, as text: precision, strategy, batch size, …
        environment: versions and hardware, as text.
        spans: stretches that were not training.
        notes: what is missing from this record and why, a sentence each.
        throughput: what `Throughput` measured.
        gpu: what `GpuUtilization` measured.
        doctor: what `InputDoctor` found.
    """

    run_id: str
    rank: int
    world_size: int
    host: str
    device: str
    started: float
    finished: float
    error: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    throughput: ThroughputRecord | None = None
    gpu: GpuRecord | None = None
    doctor: DoctorRecord | None = None

    def write(self, folder: Path) -> Path:
        """Write `<folder>/run_record/rank<rank>.json`, whole or not at all; returns its path."""
        path = folder / FOLDER / f"rank{self.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".json.tmp")
        text = json.dumps({"version": VERSION, **dataclasses.asdict(self)}, ensure_ascii=False)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
        return path

    @staticmethod
    def read(path: Path) -> RunRecord:
        """Read a record.

        Raises:
            ValueError: the file is no record, or one of another version.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            version = data.pop("version")
            if version != VERSION:
                raise ValueError(f"version must be {VERSION}, got {version!r}")
            data["spans"] = [Span(**span) for span in data["spans"]]
            data["throughput"] = _throughput(data["throughput"])
            data["gpu"] = _gpu(data["gpu"])
            data["doctor"] = None if data["doctor"] is None else DoctorRecord(**data["doctor"])
            return RunRecord(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a run record: {error}") from error


def read_records(folder: Path, run_id: str | None = None) -> list[RunRecord]:
    """The records of one fit in `folder`, by rank; files that another fit left there are passed over.

    Args:
        folder: of the run.
        run_id: which fit; None takes the newest.

    Raises:
        FileNotFoundError: there is none.
        ValueError: a file is not a run record.
    """
    records = [RunRecord.read(path) for path in sorted((folder / FOLDER).glob("rank*.json"))]
    if run_id is None and records:
        run_id = max(records, key=lambda record: record.finished).run_id
    found = sorted((record for record in records if record.run_id == run_id), key=lambda record: record.rank)
    if not found:
        raise FileNotFoundError(f"no run records in {folder / FOLDER}")
    return found


def _throughput(data: Mapping[str, Any] | None) -> ThroughputRecord | None:
    if data is None:
        return None
    histogram = data["step_ms_histogram"]
    nested = {
        "timeline": Series(**data["timeline"]),
        "step_ms_histogram": None if histogram is None else Histogram(**histogram),
    }
    return ThroughputRecord(**{**data, **nested})


def _gpu(data: Mapping[str, Any] | None) -> GpuRecord | None:
    return None if data is None else GpuRecord(**{**data, "timeline": Series(**data["timeline"])})
