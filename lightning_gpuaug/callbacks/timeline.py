"""Values over time in bounded memory: the longer it gets, the coarser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightning_gpuaug.callbacks.run_record import Series


@dataclass
class Sums:
    """Sums of values by name, and how many were added to each."""

    total: dict[str, float] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    def add(self, values: Mapping[str, float]) -> None:
        """Add one value to each name's sum."""
        for name, value in values.items():
            self.total[name] = self.total.get(name, 0.0) + value
            self.count[name] = self.count.get(name, 0) + 1

    def merge(self, other: Sums) -> None:
        """Add what `other` has summed."""
        for name, value in other.total.items():
            self.total[name] = self.total.get(name, 0.0) + value
            self.count[name] = self.count.get(name, 0) + other.count[name]

    def means(self) -> dict[str, float]:
        """Mean by name."""
        return {name: value / self.count[name] for name, value in self.total.items()}


@dataclass
class _Row:
    end: float
    sums: Sums


class Timeline:
    """A table of at most `capacity` rows, each of which stands for equally many additions.

    When it is full, neighbours are merged and from then on a row takes twice as many additions: the table of a day is
    as large as that of an hour, and no addition is forgotten.

    Args:
        capacity: rows, an even number.
    """

    def __init__(self, capacity: int = 600) -> None:
        if capacity < 2 or capacity % 2:
            raise ValueError(f"capacity must be an even number ≥ 2, got {capacity}")
        self._capacity = capacity
        self._rows: list[_Row] = []
        self._per_row = 1
        self._in_last = 0

    def add(self, time: float, values: Mapping[str, float]) -> None:
        """Add a moment's values; times must not descend."""
        if self._rows and self._in_last < self._per_row:
            row = self._rows[-1]
            row.end = time
        else:
            if len(self._rows) == self._capacity:
                self._halve()
                self._per_row *= 2
            row = _Row(time, Sums())
            self._rows.append(row)
            self._in_last = 0
        row.sums.add(values)
        self._in_last += 1

    def sums(self) -> Series:
        """Each row's sums."""
        return self._series([row.sums.total for row in self._rows])

    def means(self) -> Series:
        """Each row's means."""
        return self._series([row.sums.means() for row in self._rows])

    def overall(self) -> dict[str, float]:
        """Mean of all additions, by name."""
        everything = Sums()
        for row in self._rows:
            everything.merge(row.sums)
        return everything.means()

    def _halve(self) -> None:
        merged = []
        for first, second in zip(self._rows[::2], self._rows[1::2], strict=True):
            first.sums.merge(second.sums)
            merged.append(_Row(second.end, first.sums))
        self._rows = merged

    def _series(self, rows: list[dict[str, float]]) -> Series:
        names = dict.fromkeys(name for row in rows for name in row)  # in the order of their first appearance
        return Series([row.end for row in self._rows], {name: [row.get(name) for row in rows] for name in names})
