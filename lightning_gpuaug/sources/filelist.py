"""A text or CSV file that lists images and their labels."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Feed, Source, Targets, map_classes, read_only, validated_classes
from lightning_gpuaug.sources.encoded import fixed_paths
from lightning_gpuaug.sources.exclude import excluded_names, kept, validated_exclude
from lightning_gpuaug.sources.label_rule import LabelRule, translated
from lightning_gpuaug.sources.labels import LabelColumn
from lightning_gpuaug.sources.listfile import ListError, Listing, read_listing
from lightning_gpuaug.sources.names import ABSOLUTE, NameList
from lightning_gpuaug.sources.remote import RemoteReader, is_remote, unread_address

Labels = Literal["auto", "index", "name", "none"]

#: `check` looks for at most so many files (evenly spread over the list): on a network drive each costs a round trip.
FILES_CHECKED = 20_000
_STAT_THREADS = 16


@dataclass(frozen=True)
class FileList(Source):
    """Images and labels from a list, in the order of the list; a line that stands twice is two samples.

    Three formats, all UTF-8, blank lines skipped:

    - text, a line `path label`: the label is what follows the last space or tab, so paths may have spaces and labels
      may not;
    - `.csv` (`.tsv` with tabs) with a header, the first column being the path and one column the label;
    - the same with several label columns of 0 and 1: multi-label, the columns being the classes.

    Paths may be `s3://` addresses, or `root` one: DALI reads them, with the credentials that the AWS SDK finds.

    Labels are integers from 0 or class names; unless `class_names` says otherwise, names are sorted as text.

    Attributes:
        path: the list.
        root: the folder that relative paths start from; the list's own by default.
        class_names: the class list: what integer labels stand for, or the names that may occur and their order.
        labels: "index", positions in the class list; "name"; "auto": positions if all labels are integers, and an error
            where one may be the name of another class, otherwise names; or "none" for a list of paths alone (all
            targets are -1).
        columns: label columns of a CSV; all but the first by default.
        exclude: names of samples to leave out (as `sample_name` gives them), or the file that lists them.
        multilabel: a label is several class names joined by ";" (an empty one: none of the classes), or with
            `labels="index"` positions in `class_names`.
        training_classes: set by `with_classes`: the class list to translate the labels to.
    """

    path: str | os.PathLike[str]
    root: str | os.PathLike[str] | None = None
    class_names: Sequence[str] | None = None
    labels: Labels = "auto"
    columns: Sequence[str] = ()
    multilabel: bool = False
    training_classes: Sequence[str] | None = None
    # The sequence first: jsonargparse tries the types in turn, and any list can pass for a str.
    exclude: Sequence[str] | str | os.PathLike[str] = ()

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        if not isinstance(self.path, (str, os.PathLike)) or not os.fspath(self.path):
            raise TypeError(f"FileList.path must be the path of a list, got {self.path!r}")
        object.__setattr__(self, "path", os.fspath(self.path))
        if self.root is not None:
            object.__setattr__(self, "root", os.fspath(self.root))
            if problem := unread_address(str(self.root)):
                raise ValueError(f"FileList.root {problem}")
        if self.labels not in ("auto", "index", "name", "none"):
            raise ValueError(f'FileList.labels must be "auto", "index", "name" or "none", got {self.labels!r}')
        for field in ("class_names", "training_classes"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, validated_classes(value, f"FileList.{field}"))
        if isinstance(self.columns, str):
            raise TypeError(f"FileList.columns must be a sequence of column names, got the string {self.columns!r}")
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "exclude", validated_exclude(self.exclude, "FileList.exclude"))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names, the position being the label; None for integer labels without `class_names`."""
        if self.training_classes is not None and self.labels != "none":
            return tuple(self.training_classes)
        return self._own[0]

    @property
    def paths(self) -> Sequence[str]:
        """File of each sample: the listed path, below `root` if it is relative."""
        return self._names.with_prefix(os.path.join(self._root, ""))

    @property
    def targets(self) -> Targets:
        """Labels, read-only: int64 (N,), or float32 (N, C) of 0 and 1 when multi-label."""
        return self._targets

    @property
    def feed(self) -> Feed:
        """The pipeline reads files; a reader of their own those in S3."""
        return "bytes" if self._has_remote else "paths"

    def reader(self) -> RemoteReader:
        """Reads the files of a list of which some are in S3."""
        return RemoteReader(fixed_paths(self.paths))

    def sample_name(self, i: int) -> str:
        """The listed path of sample `i`, relative to `root` if it is below it."""
        return self._names[i]

    def with_classes(self, classes: Sequence[str]) -> FileList:
        """The same samples with labels translated to the (training) class list `classes`, by name.

        Integer labels without names are taken as positions in `classes`. A list without labels stays as it is.

        Raises:
            ValueError: a class with samples is not in `classes`, or an integer is not a position in it.

        Warns:
            UserWarning: some of `classes` have no samples.
        """
        if self.labels == "none":
            return self
        other = dataclasses.replace(self, training_classes=tuple(classes))
        for cached in ("_listing", "_kept", "_names", "_own"):
            vars(other)[cached] = getattr(self, cached)
        _ = other._targets
        return other

    def check(self) -> None:
        """Read the list now and look for its files: all of them, or 20,000 evenly spread over a longer list.

        Objects in S3 are not looked for.

        Raises:
            OSError: the list cannot be read, or files are missing (their number and the first are named).
            ValueError: a line breaks a rule.
        """
        _ = self._targets, self._files_exist

    @property
    def _list(self) -> str:
        return os.path.expanduser(self.path)

    @property
    def _root(self) -> str:
        return os.path.dirname(self._list) if self.root is None else os.path.expanduser(self.root)

    @cached_property
    def _listing(self) -> Listing:
        """What is listed, names relative to `root`."""
        listing = read_listing(self._list, self.columns, labelled=self.labels != "none")
        blob = listing.names.blob
        if b"://" in blob or (is_remote(self._root) and any(part in blob for part in (b"?", b"#", b"//", b"./"))):
            for name, line in zip(listing.names, listing.lines.tolist(), strict=True):
                problem = unread_address(name)
                if problem is None and is_remote(self._root) and not name.startswith(ABSOLUTE):
                    problem = unread_address(os.path.join(self._root, name))
                if problem:
                    raise ListError(self._list, line, f"a path {problem}")
        # The same names, however the list itself is named.
        start = os.path.join(self._root if is_remote(self._root) else os.path.abspath(self._root), "")
        names = listing.names
        if start.startswith(ABSOLUTE) and any(name.startswith(start) for name in names):
            names = NameList.of(name.removeprefix(start) for name in names)
        return dataclasses.replace(listing, names=names)

    @cached_property
    def _kept(self) -> npt.NDArray[np.int64] | None:
        """Positions in the list of the samples that are not excluded; None for all of them."""
        names = self._listing.names
        chosen = kept(names, len(names), excluded_names(self.exclude, "FileList.exclude"), self._list)  # type: ignore[arg-type]
        if chosen is not None and not len(chosen):
            raise ValueError(f"FileList.exclude leaves none of the {len(names)} samples of {self._list}")
        return chosen

    @cached_property
    def _names(self) -> NameList:
        names = self._listing.names
        return names if self._kept is None else NameList.of(names[i] for i in self._kept.tolist())

    @cached_property
    def _has_remote(self) -> bool:
        return is_remote(self._root) or (b"://" in self._names.blob and any(map(is_remote, self.paths)))

    @cached_property
    def _files_exist(self) -> bool:
        paths, count = self.paths, len(self)
        picked = range(count) if count <= FILES_CHECKED else np.linspace(0, count - 1, FILES_CHECKED, dtype=int)
        with ThreadPoolExecutor(_STAT_THREADS) as pool:
            found = pool.map(lambda i: is_remote(paths[i]) or os.path.isfile(paths[i]), picked, chunksize=256)
            missing = [int(i) for i, there in zip(picked, found, strict=True) if not there]
        if missing:
            first = missing[0]
            looked = f"{len(missing)} of the {len(picked)} files looked for"
            line = self._listing.lines[first if self._kept is None else self._kept[first]]
            raise FileNotFoundError(f"{self._list}: {looked} missing, the first on line {line}: {paths[first]}")
        return True

    @cached_property
    def _own(self) -> tuple[tuple[str, ...] | None, Targets]:
        """The list's own classes and labels, before any translation."""
        listing, names = self._listing, None if self.class_names is None else tuple(self.class_names)
        if self.labels == "none":
            targets: Targets = np.full(len(listing.names), -1, dtype=np.int64)
        elif listing.flags is None:
            column = self._joined_labels if self.multilabel else self._single_labels
            # The class list of the labels that stand there, excluded samples' too.
            names, targets = self._rule.targets(column, self._line)
        elif names is None:
            names, targets = listing.columns, listing.flags
        else:
            targets = _scatter(listing.flags, map_classes(listing.columns, names, self._list), len(names))
        return names, targets if self._kept is None else targets[self._kept]

    @property
    def _rule(self) -> LabelRule:
        names = None if self.class_names is None else tuple(self.class_names)
        meaning: Literal["auto", "index", "name"] = "auto" if self.labels == "none" else self.labels
        if self.multilabel and meaning == "auto":
            meaning = "name"  # classes that are joined are names, unless they are said to be numbers
        return LabelRule("FileList", self.multilabel, names, meaning=meaning)

    @cached_property
    def _targets(self) -> Targets:
        own, targets = self._own
        wanted = self.training_classes
        if wanted is not None and self.labels != "none":
            if own is None:
                own = tuple(wanted)
                targets = self._rule.positions_in(own, self._single_labels, self._kept, self._line)
            targets = translated(own, targets, wanted, self._list)
        return read_only(targets)

    @property
    def _single_labels(self) -> LabelColumn:
        listing = self._listing
        for code, text in enumerate(listing.texts):
            if not text or (";" in text and self.class_names is None):
                rule = f'one class expected (several, joined by ";", need multilabel=True), got {text!r}'
                raise ListError(self._list, int(listing.lines[np.argmax(listing.codes == code)]), rule)
        ones = np.broadcast_to(np.int64(1), listing.codes.shape)  # takes no memory
        return LabelColumn("text", listing.codes, ones, listing.texts)

    @property
    def _joined_labels(self) -> LabelColumn:
        listing = self._listing
        texts = [[part.strip() for part in text.split(";") if part.strip()] for text in listing.texts]
        return LabelColumn.of((texts[code] for code in listing.codes.tolist()), self._line)

    def _line(self, i: int) -> str:
        """Where in the list a sample stands."""
        return f"{self._list}:{self._listing.lines[i]}"


def _scatter(flags: npt.NDArray[np.float32], order: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.float32]:
    """0/1 columns moved to the places `order` of a table of `width` columns."""
    table = np.zeros((len(flags), width), dtype=np.float32)
    table[:, order] = flags
    return table
