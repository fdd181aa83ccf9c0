"""The file between the callbacks and the report: what is written is what is read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from lightning_gpuaug.callbacks.run_record import Histogram, RunRecord, Series, read_records
from tests.callbacks.run_examples import DOCTOR, record


@pytest.mark.parametrize("parts", [(), ("throughput",), ("gpu",), ("throughput", "gpu")])
def test_what_is_written_is_read(parts: tuple[str, ...], tmp_path: Path) -> None:
    written = dataclasses.replace(record(rank=3, world=8), doctor=DOCTOR, **dict.fromkeys(parts))
    path = written.write(tmp_path)
    assert path == tmp_path / "run_record" / "rank3.json"
    assert RunRecord.read(path) == written
    assert [file.name for file in path.parent.iterdir()] == ["rank3.json"]


def test_records_are_those_of_one_fit_in_the_order_of_ranks(tmp_path: Path) -> None:
    old = [dataclasses.replace(record(rank, 12), run_id="old", finished=1.0) for rank in range(12)]
    new = [dataclasses.replace(record(rank, 11), run_id="new") for rank in (10, 0, 2)]
    for one in [*old, *new]:
        one.write(tmp_path)
    assert [one.rank for one in read_records(tmp_path)] == [0, 2, 10]
    assert [one.rank for one in read_records(tmp_path, "old")] == [1, 3, 4, 5, 6, 7, 8, 9, 11]
    with pytest.raises(FileNotFoundError, match="no run records in"):
        read_records(tmp_path, "other")
    with pytest.raises(FileNotFoundError, match="no run records in"):
        read_records(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"rnak": 0}, "rnak"),
        ({"gpu": {"nmae": "H200", "timeline": {}}}, "nmae"),
        ({"throughput": {"images": 1}}, "step_ms_histogram"),
    ],
)
def test_another_file_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = record().write(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=f"rank0.json is not a run record: .*{message}"):
        RunRecord.read(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a run record"):
        RunRecord.read(path)


def test_tables_are_rectangular() -> None:
    with pytest.raises(ValueError, match="column 'x' must have 2 values, got 1"):
        Series([1.0, 2.0], {"x": [1.0]})
    with pytest.raises(ValueError, match="edges must be 3 numbers, got 2"):
        Histogram([1.0, 2.0], [1, 2])
