"""WebDataset: tar files in which a sample is the members that share a name up to its first dot."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from lightning_gpuaug.sources.index import DataFile, Indexer, ShardIndex, Skips
from lightning_gpuaug.sources.labels import Label, LabelColumn
from lightning_gpuaug.sources.names import NameList
from lightning_gpuaug.sources.records import RecordSource
from lightning_gpuaug.sources.tar import Member, members


@dataclass(frozen=True)
class WebDataset(RecordSource):
    """Images in the tar files of a WebDataset (ustar, GNU or PAX; not compressed).

    Neighbouring members whose names agree up to the first dot of the base name are a sample; what follows the dot,
    in any case, says what a member is. `train/0001.cls` and `train/0001.jpg` are the sample `train/0001`. Hidden
    members are not data. A sample without one of the wanted members is an error that names it, or, with
    `missing="skip"`, left out. A tar without members is fine among others.

    Attributes:
        urls: tar files: a path, a pattern (`*`, `?`, `[…]`, `{a,b}`, `{000..127}`), or several; `s3://` with
            braces alone.
        image: what an image's member is called; several choices are separated by ";".
        label: which member holds the label: "cls" (its text is a class number or a class name, with `multilabel`
            several of them, separated by commas or white space, or numbers with points, one a class), or "json:field"
            (a field of a JSON object, "json:a.b" for one inside of another: a number or a name, with `multilabel` an
            array of them); None for images alone (all targets are -1).
    """

    urls: Sequence[str] | str | os.PathLike[str]
    image: str = "jpg;jpeg;png"
    label: str | None = "cls"

    _patterns_field: ClassVar[str] = "urls"
    _usual_names: ClassVar[str] = "*.tar"

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        super().__post_init__()
        if not isinstance(self.image, str) or not all(self.image.split(";")):
            raise ValueError(f'WebDataset.image must be endings such as "jpg;png", got {self.image!r}')
        if self.label is not None:
            ending, colon, field = str(self.label).partition(":")
            if not ending or (colon and not all(field.split("."))):
                raise ValueError(f'WebDataset.label must be an ending ("cls") or "json:field", got {self.label!r}')
            if ending.lower() in self.image.lower().split(";"):
                raise ValueError(f"WebDataset.label must not be one of the image's endings, got {self.label!r}")
            if ending.lower() == "json" and not colon:
                raise ValueError("WebDataset.label must name a field of the JSON (\"json:label\"), got 'json'")

    @property
    def _labelled(self) -> bool:
        return self.label is not None

    def _indexer(self) -> Indexer:
        return partial(index_tar, image=self.image, label=self.label, multilabel=self.multilabel, missing=self.missing)

    def _index_options(self) -> tuple[str, ...]:
        return self.image.lower(), repr(self.label), repr(self.multilabel)


def index_tar(
    file: DataFile, data: mmap.mmap, image: str, label: str | None, multilabel: bool, missing: str
) -> ShardIndex:
    """Find the samples of a tar.

    Raises:
        ValueError: the tar is damaged; or a sample breaks a rule and `missing` is "raise".
    """
    path = file.name
    images = image.lower().split(";")
    ending, _, field = (label or "").partition(":")
    ending = ending.lower()
    skips = Skips(missing)
    rows, keys, labels = list[tuple[int, int, int]](), list[str](), list[Label | None]()
    seen: set[str] = set()
    for number, (key, parts) in enumerate(_samples(path, data)):
        where = f"{path}:{key}"
        if key in seen:
            raise ValueError(f"{where}: members of one sample must be neighbours, or its name stands twice")
        seen.add(key)
        picture = next((parts[name] for name in images if name in parts), None)
        text = parts.get(ending)
        absent = [*([image] if picture is None else []), *([ending] if label is not None and text is None else [])]
        if picture is None or (label is not None and text is None):
            skips.note(f"{where}: has no {' and no '.join(absent)}; it has {', '.join(sorted(parts))}")
            continue
        value: Label | None = None
        if text is not None and label is not None:
            content = data[text.start : text.start + text.size]
            try:
                value = _from_json(content, field, multilabel) if field else _from_text(content, multilabel)
            except ValueError as error:
                skips.note(f"{where}: {label} {error}")
                continue
        rows.append((number, picture.start, picture.size))
        keys.append(key)
        labels.append(value)
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    column = LabelColumn.of(labels, lambda i: f"{path}:{keys[i]}", "name" if field else "text")
    return ShardIndex(table[:, 1].copy(), table[:, 2].copy(), column, table[:, 0].copy(), NameList.of(keys),
                      skipped=tuple(skips.first), skipped_count=skips.count)  # fmt: skip


def _samples(path: str, data: mmap.mmap) -> Iterator[tuple[str, dict[str, Member]]]:
    """(key, ending in lower case → member) of each run of members with the same key."""
    current: str | None = None
    parts: dict[str, Member] = {}
    for member in members(path, data):
        folder, _, base = member.name.removeprefix("./").rpartition("/")
        stem, _, ending = base.partition(".")
        if not stem:  # hidden
            continue
        key = f"{folder}/{stem}" if folder else stem
        if key != current:
            if current is not None:
                yield current, parts
            current, parts = key, {}
        if ending.lower() in parts:
            raise ValueError(f"{path}:{key}: has two members {ending.lower()!r}")
        parts[ending.lower()] = member
    if current is not None:
        yield current, parts


def _from_text(content: bytes, multilabel: bool) -> Label:
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise ValueError(f"must be UTF-8 text, got {content[:20]!r}") from None
    if "\0" in text:
        raise ValueError(f"must be text, got {content[:20]!r}")
    if not multilabel:
        if not text:
            raise ValueError("must be a class number or name, got nothing")
        return text
    return text.replace(",", " ").split()


def _from_json(content: bytes, field: str, multilabel: bool) -> Label:
    try:
        value: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON: {error}") from None
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            has = f", which has {', '.join(sorted(value)) or 'none'}" if isinstance(value, dict) else ""
            raise ValueError(f"must have the field {name!r}{has}")
        value = value[name]
    items = value if isinstance(value, list) and multilabel else [value]
    kinds = {type(item) for item in items}
    if not kinds <= {int, str, float} or len(kinds - {int} if float in kinds else kinds) > 1:
        wanted = "numbers or names" if multilabel else "a number or a name"
        raise ValueError(f"must be {wanted}, got {json.dumps(value)[:80]}")
    if float in kinds:
        try:
            return [float(item) for item in items]
        except OverflowError:
            raise ValueError(f"must be numbers that a float holds, got {json.dumps(value)[:80]}") from None
    return items if multilabel else items[0]
