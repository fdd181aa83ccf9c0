"""A timeline forgets nothing and stays small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_gpuaug.callbacks.timeline import Timeline


@given(st.lists(st.one_of(st.none(), st.integers(-100, 100)), max_size=200), st.sampled_from([2, 4, 10]))
def test_sums_are_those_of_all_additions(values: list[int | None], capacity: int) -> None:
    timeline = Timeline(capacity)
    for time, value in enumerate(values):
        timeline.add(float(time), {"always": 1.0} | ({} if value is None else {"sometimes": float(value)}))
    series = timeline.sums()
    assert len(series.times) <= capacity
    assert series.times == sorted(set(series.times))
    assert series.times[-1:] == [float(time) for time in range(len(values))][-1:]
    assert sum(row or 0 for row in series.columns.get("always", [])) == len(values)
    known = [value for value in values if value is not None]
    assert sum(row or 0 for row in series.columns.get("sometimes", [])) == sum(known)
    assert ("sometimes" in series.columns) == bool(known)
    if known:
        assert timeline.overall()["sometimes"] == pytest.approx(sum(known) / len(known))


def test_rows_are_as_fine_as_fits() -> None:
    timeline = Timeline(4)
    for time in range(4):
        timeline.add(time, {"x": time})
    assert timeline.means().columns == {"x": [0, 1, 2, 3]}
    timeline.add(4, {"x": 4})
    assert (timeline.means().times, timeline.means().columns) == ([1, 3, 4], {"x": [0.5, 2.5, 4]})
    timeline.add(5, {"y": 7})
    assert timeline.means().times == [1, 3, 5]
    assert timeline.means().columns == {"x": [0.5, 2.5, 4], "y": [None, None, 7]}


@pytest.mark.parametrize("capacity", [0, 3, -2])
def test_capacity_is_even(capacity: int) -> None:
    with pytest.raises(ValueError, match="even number"):
        Timeline(capacity)
