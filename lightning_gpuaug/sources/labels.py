"""Labels of records: as they stand in the files, and what they mean under a class list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Targets, map_classes

#: What a label's values are: whole numbers, class names, other numbers; or there is no label.
LabelType = Literal["none", "int", "name", "float"]
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
    def of(cls, labels: Iterable[Label | None], name: Name) -> LabelColumn:
        """A column of `labels`, which are all None or all of one type.

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
                own: LabelType = "name" if isinstance(item, str) else "int" if isinstance(item, int) else "float"
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


_TYPES = {"none": "no label", "int": "whole numbers", "name": "class names", "float": "floating-point numbers"}


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
        parts.append(codes[column.values] if kind == "name" else column.values)
    return LabelColumn(kind, np.concatenate(parts), counts, tuple(texts))


@dataclass(frozen=True)
class LabelRule:
    """What the values of a column mean.

    Attributes:
        owner: the source's name, for messages.
        multilabel: a record has any number of classes.
        class_names: what whole numbers stand for, or the names that may occur and their order.
        offset: added to whole numbers.
        labelled: records have labels; False for images alone.
    """

    owner: str
    multilabel: bool
    class_names: tuple[str, ...] | None
    offset: int = 0
    labelled: bool = True

    def targets(self, column: LabelColumn, name: Name) -> tuple[tuple[str, ...] | None, Targets]:
        """Class list (None if unknown) and targets: int64 (N,), or float32 (N, C) when multi-label.

        Raises:
            ValueError: a record's label breaks a rule; names the record.
        """
        count = len(column.counts)
        if not self.labelled:
            return self.class_names, np.full(count, -1, dtype=np.int64)
        if column.type == "float" and self.multilabel:
            return self.class_names, self._vectors(column, name)
        if not self.multilabel and (column.counts != 1).any():
            i = int(np.argmax(column.counts != 1))
            raise ValueError(
                f"{name(i)}: a label must be one value ({self.owner}.multilabel=True for several), "
                f"got {int(column.counts[i])}"
            )
        classes, ids = self._ids(column, name)
        if not self.multilabel:
            return classes, ids
        if classes is None:
            if column.type == "none":
                raise ValueError(f"{self.owner}: no record has a label; class_names must say which classes there are")
            raise ValueError(
                f"{self.owner}.multilabel with whole numbers needs class_names: how many classes are there?"
            )
        table = np.zeros((count, len(classes)), dtype=np.float32)
        table[np.repeat(np.arange(count), column.counts), ids] = 1.0
        return classes, table

    def _ids(self, column: LabelColumn, name: Name) -> tuple[tuple[str, ...] | None, npt.NDArray[np.int64]]:
        """Class list and class number of each value."""

        def complain(wrong: npt.NDArray[np.bool_], rule: str) -> None:
            if wrong.any():
                value = int(np.argmax(wrong))
                record = int(np.searchsorted(np.cumsum(column.counts), value, side="right"))
                got = column.texts[int(column.values[value])] if column.type == "name" else column.values[value].item()
                offset = f" with label_offset {self.offset}" if self.offset else ""
                raise ValueError(f"{name(record)}: label must be {rule}, got {got!r}{offset}")

        if column.type == "name":
            classes = tuple(sorted(column.texts)) if self.class_names is None else self.class_names
            index = {text: i for i, text in enumerate(classes)}
            codes = np.array([index.get(text, -1) for text in column.texts], dtype=np.int64)
            ids = codes[column.values]
            complain(ids < 0, f"one of the {len(classes)} classes")
            return classes, ids
        ids = column.values.astype(np.int64, copy=False)
        if column.type == "float":
            complain(ids != column.values, "a whole number (multilabel=True for a vector of numbers)")
        if self.offset:
            ids = ids + self.offset
        if self.class_names is None:
            complain(ids < 0, "a class from 0")
            return None, ids
        complain((ids < 0) | (ids >= len(self.class_names)), f"in 0..{len(self.class_names) - 1}")
        positions = {text: i for i, text in enumerate(self.class_names)}
        for value in np.unique(column.values):
            place = positions.get(str(value))
            if place is not None and place != value + self.offset:
                complain(column.values == value, "a position, but class_names has a class of that name elsewhere")
        return self.class_names, ids

    def _vectors(self, column: LabelColumn, name: Name) -> npt.NDArray[np.float32]:
        width = int(column.counts[0]) if self.class_names is None else len(self.class_names)
        if (column.counts != width).any():
            i = int(np.argmax(column.counts != width))
            raise ValueError(f"{name(i)}: label must have {width} values, one a class, got {int(column.counts[i])}")
        return column.values.reshape(len(column.counts), width).astype(np.float32)


def translated(own: tuple[str, ...] | None, targets: Targets, wanted: Sequence[str], where: str) -> Targets:
    """`targets` under the class list `own` as targets under the (training) class list `wanted`, by name.

    Whole numbers without names are positions in `wanted`.

    Raises:
        ValueError: a class with samples is not in `wanted`.

    Warns:
        UserWarning: some of `wanted` have no samples.
    """
    if targets.ndim == 2:
        if own is None:
            if targets.shape[1] != len(wanted):
                raise ValueError(f"{where}: {targets.shape[1]} values a label, {len(wanted)} training classes")
            return targets
        used = np.flatnonzero(targets.any(axis=0))
        order = map_classes([own[i] for i in used], wanted, where)
        table = np.zeros((len(targets), len(wanted)), dtype=np.float32)
        table[:, order] = targets[:, used]
        return table
    used, codes = np.unique(targets, return_inverse=True)
    if own is None:
        if len(used) and used[-1] >= len(wanted):
            raise ValueError(f"{where}: label {int(used[-1])} is no position among the {len(wanted)} training classes")
        own = tuple(wanted)
    order = map_classes([own[i] for i in used], wanted, where)
    return order[codes.reshape(-1)]
