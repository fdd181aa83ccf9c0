"""What the labels of records mean under a class list."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Targets, map_classes
from lightning_gpuaug.sources.labels import LabelColumn, Name

#: What a label that is a whole number says: a position in the class list, or a name; "auto" refuses what may be either.
LabelMeaning = Literal["auto", "index", "name"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS = 20
"""A longer number does not fit 64 bits, and Python refuses to convert thousands of digits."""


@dataclass(frozen=True)
class LabelRule:
    """What the values of a column mean.

    Attributes:
        owner: the source's name, for messages.
        multilabel: a record has any number of classes.
        class_names: what whole numbers stand for, or the names that may occur and their order.
        offset: added to whole numbers.
        labelled: records have labels; False for images alone.
        meaning: of whole numbers, and of texts that look like them.
    """

    owner: str
    multilabel: bool
    class_names: tuple[str, ...] | None
    offset: int = 0
    labelled: bool = True
    meaning: LabelMeaning = "auto"

    def targets(self, column: LabelColumn, name: Name) -> tuple[tuple[str, ...] | None, Targets]:
        """Class list (None if unknown) and targets: int64 (N,), or float32 (N, C) when multi-label.

        Raises:
            ValueError: a record's label breaks a rule; names the record.
        """
        count = len(column.counts)
        if not self.labelled:
            return self.class_names, np.full(count, -1, dtype=np.int64)
        self._require_clear(column, name)
        column = self.read(column, name)
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
        if self.meaning == "auto" and column.type == "int" and _may_be_vectors(column, len(classes)):
            rule = f'may be class numbers ({self.owner}.labels="index") or a vector, one a class'
            raise ValueError(f"{name(0)}: the label of {len(classes)} zeros and ones {rule}, which must be 0.0 and 1.0")
        table = np.zeros((count, len(classes)), dtype=np.float32)
        table[np.repeat(np.arange(count), column.counts), ids] = 1.0
        return classes, table

    def positions_in(
        self, classes: tuple[str, ...], column: LabelColumn, kept: npt.NDArray[np.int64] | None, name: Name
    ) -> Targets:
        """Whole numbers, one a record, as positions in `classes`, int64.

        Args:
            classes: the class list.
            column: of all records.
            kept: the records that count, None for all; the others may have any number.
            name: of a record.

        Raises:
            ValueError: a record's number is no position, or may be the name of another class; names the record.
        """
        rule = dataclasses.replace(self, class_names=classes)
        if kept is None:
            return rule.targets(column, name)[1]
        return rule.targets(column.take(kept), lambda i: name(int(kept[i])))[1]

    def _require_clear(self, column: LabelColumn, name: Name) -> None:
        """Refuse labels that may be positions in `class_names`, or names that stand elsewhere in it.

        Raises:
            ValueError: there is one; names the record.
        """
        if self.class_names is None or self.meaning != "auto":
            return
        if column.type in ("none", "name") or (column.type == "float" and self.multilabel):
            return  # names, or vectors
        texts = _distinct(column)
        if not all(_is_integer(text) for _, text in texts):
            return  # `read` finds names
        exact = {text: i for i, text in enumerate(self.class_names) if _is_integer(text)}
        alike: dict[int, list[int]] = {}  # several, where classes are called 1 and 01
        for text, i in exact.items():
            alike.setdefault(int(text), []).append(i)
        for value, text in texts:
            number = int(text)
            named = [exact[text]] if text in exact else alike.get(number, [])
            if any(position != number + self.offset for position in named):
                rule = f'may be a position or a class name; say {self.owner}.labels="index" or "name"'
                raise _error(column, column.values == value, name, f"label {text!r} {rule}")

    def read(self, column: LabelColumn, name: Name) -> LabelColumn:
        """The column with texts read as numbers where they are, and numbers taken for names where they are.

        Raises:
            ValueError: a record's label is neither, or one where another's is the other; names the record.
        """
        if column.type == "none":
            return column
        if self.meaning == "name" and not (column.type == "float" and self.multilabel):
            return self._as_names(column, name)
        if column.type == "text" and self.meaning == "auto":
            return self._told_apart(column, name)
        if column.type == "text" or (column.type == "name" and self.meaning == "index"):
            return self._as_numbers(column, name)
        return column

    def _as_names(self, column: LabelColumn, name: Name) -> LabelColumn:
        if column.type == "float" and (wrong := column.values != np.floor(column.values)).any():
            raise _error(column, wrong, name, "label must be a whole number or a class name")
        distinct = _distinct(column)
        codes = np.searchsorted(np.array([value for value, _ in distinct]), column.values)
        return LabelColumn("name", codes, column.counts, tuple(text for _, text in distinct))

    def _as_numbers(self, column: LabelColumn, name: Name) -> LabelColumn:
        for code, text in enumerate(column.texts):
            if not _is_integer(text) or not -(2**63) <= int(text) < 2**63:
                raise _error(column, column.values == code, name, f"label must be a 64-bit class number, got {text!r}")
        return LabelColumn("int", np.array([int(text) for text in column.texts])[column.values], column.counts)

    def _told_apart(self, column: LabelColumn, name: Name) -> LabelColumn:
        """Texts as numbers if all are, as names if none is, or if the class list has any of them."""
        texts = column.texts
        integers = [_is_integer(text) for text in texts]
        numbers = [_NUMBER.fullmatch(text) is not None for text in texts]
        if all(integers):
            return self._as_numbers(column, name)
        if not (any(integers) or all(numbers)) or any(text in texts for text in self.class_names or ()):
            return dataclasses.replace(column, type="name")
        if self.multilabel and all(numbers):
            return LabelColumn("float", np.array([float(text) for text in texts])[column.values], column.counts)
        decimal = next((code for code in range(len(texts)) if numbers[code] and not integers[code]), None)
        code = integers.index(not integers[0]) if decimal is None else decimal
        rule = f'all labels must be class numbers, or all class names ({self.owner}.labels="name" if numbers are names)'
        raise _error(column, column.values == code, name, f"{rule}, got {texts[code]!r}")

    def _ids(self, column: LabelColumn, name: Name) -> tuple[tuple[str, ...] | None, npt.NDArray[np.int64]]:
        """Class list and class number of each value."""

        def complain(wrong: npt.NDArray[np.bool_], rule: str) -> None:
            if wrong.any():
                value = column.values[int(np.argmax(wrong))]
                got = column.texts[int(value)] if column.type == "name" else value.item()
                offset = f" with label_offset {self.offset}" if self.offset else ""
                raise _error(column, wrong, name, f"label must be {rule}, got {got!r}{offset}")

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
            moved = ids + self.offset
            complain((moved > ids) != (self.offset > 0), "within 64 bits")
            ids = moved
        if self.class_names is None:
            complain(ids < 0, "a class from 0")
            return None, ids
        complain((ids < 0) | (ids >= len(self.class_names)), f"in 0..{len(self.class_names) - 1}")
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


def _is_integer(text: str) -> bool:
    return len(text) <= _DIGITS and _INTEGER.fullmatch(text) is not None


def _distinct(column: LabelColumn) -> list[tuple[float, str]]:
    """(value, text) of each distinct value, in the order of the values."""
    if column.type in ("text", "name"):
        return list(enumerate(column.texts))
    values = np.unique(column.values).tolist()
    return [(value, str(value) if column.type == "int" else f"{value:.0f}") for value in values]


def _may_be_vectors(column: LabelColumn, classes: int) -> bool:
    """Whether whole numbers may be meant as a 0 or 1 for each of the classes."""
    return classes > 1 and bool(
        ((column.values == 0) | (column.values == 1)).all() and (column.counts == classes).all()
    )


def _error(column: LabelColumn, wrong: npt.NDArray[np.bool_], name: Name, problem: str) -> ValueError:
    """`problem`, of the record with the first of the wrong values."""
    record = int(np.searchsorted(np.cumsum(column.counts), int(np.argmax(wrong)), side="right"))
    return ValueError(f"{name(record)}: {problem}")
