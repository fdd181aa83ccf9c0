"""Labels of records as they stand in the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

#: What a label's values are: whole numbers, class names, texts that may be either, other numbers; or there is no label.
LabelType = Literal["none", "int", "name", "text", "float"]
#: One record's label.
Label = int | str | Sequence[int] | Sequence[str] | Sequence[float]
Name = Callable[[int], str]


@dataclass(frozen=True)
class LabelColumn:
    """Labels of N records, any number of values each.

    Attributes:
        type: of all values.
        values: of all records, one after the other: int64, float64, or positions in `texts`.
        counts: how many each record has, int64 (N,).
        texts: distinct class names.
    """

    type: LabelType
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, labels: Iterable[Label | None], name: Name, texts_are: Literal["name", "text"] = "name") -> LabelColumn:
        """A column of `labels`, which are all None or all of one type; `texts_are` says which type strings are.

        Raises:
            ValueError: they are of several types; names the first record that departs.
        """
        kind: LabelType | None = None
        values: list[float] = []
        counts: list[int] = []
        texts: dict[str, int] = {}
        for i, label in enumerate(labels):
            items = [] if label is None else [label] if isinstance(label, (int, str)) else label
            counts.append(len(items))
            for item in items:
                own: LabelType = texts_are if isinstance(item, str) else "int" if isinstance(item, int) else "float"
                if kind is None:
                    kind = own
                elif own != kind:
                    raise ValueError(f"{name(i)}: labels must be of one type, got {item!r} after {_TYPES[kind]}")
                values.append(texts.setdefault(item, len(texts)) if isinstance(item, str) else item)
        column = np.array(counts, dtype=np.int64)
        if kind == "float":
            return cls(kind, np.array(values, dtype=np.float64), column)
        if too_large := next((v for v in values if not -(2**63) <= v < 2**63), None):
            at = int(np.searchsorted(np.cumsum(column), values.index(too_large), side="right"))
            raise ValueError(f"{name(at)}: label must fit 64 bits, got {too_large}")
        return cls(kind or "none", np.array(values, dtype=np.int64), column, tuple(texts))

    def take(self, records: npt.NDArray[np.int64]) -> LabelColumn:
        """The labels of these records, each of which must have one value, as all others."""
        values, texts = self.values[records], self.texts
        if texts:
            used, values = np.unique(values, return_inverse=True)
            texts = tuple(texts[code] for code in used.tolist())
        return LabelColumn(self.type, values, self.counts[records], texts)


_TYPES = {
    "none": "no label",
    "int": "whole numbers",
    "name": "class names",
    "text": "texts",
    "float": "floating-point numbers",
}


def merge(columns: Sequence[LabelColumn], shards: Sequence[str]) -> LabelColumn:
    """The labels of several shards, one after the other.

    Raises:
        ValueError: shards have labels of different types; names two of them.
    """
    typed = [(column, shard) for column, shard in zip(columns, shards, strict=True) if column.type != "none"]
    counts = np.concatenate([column.counts for column in columns])
    if (counts == 1).all():  # as good as always: then it needs no memory
        counts = np.broadcast_to(np.int64(1), counts.shape)
    if not typed:
        return LabelColumn("none", np.empty(0, dtype=np.int64), counts)
    kind = typed[0][0].type
    for column, shard in typed:
        if column.type != kind:
            raise ValueError(f"{shard}: labels are {_TYPES[column.type]}, but {_TYPES[kind]} in {typed[0][1]}")
    texts: dict[str, int] = {}
    parts = []
    for column, _ in typed:
        codes = np.array([texts.setdefault(text, len(texts)) for text in column.texts], dtype=np.int64)
        parts.append(codes[column.values] if column.texts else column.values)
    return LabelColumn(kind, np.concatenate(parts), counts, tuple(texts))
