"""What all record formats have in common: data files with an index, read in any order."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Feed, Source, Targets, read_only, validated_classes
from lightning_gpuaug.sources.encoded import RangeReader, Ranges, fixed_paths
from lightning_gpuaug.sources.exclude import excluded_names, kept, validated_exclude
from lightning_gpuaug.sources.index import DataFile, Indexer, ShardIndex, cache_folder, indexed
from lightning_gpuaug.sources.label_rule import LabelMeaning, LabelRule, translated
from lightning_gpuaug.sources.labels import LabelColumn
from lightning_gpuaug.sources.objects import local_copies
from lightning_gpuaug.sources.record_table import Records
from lightning_gpuaug.sources.shards import expand, refuse_folders, validated_paths

Missing = Literal["raise", "skip"]
_FILES_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class RecordSource(Source):
    """Encoded images in data files that hold many of them.

    Each file is indexed when the samples are first needed, unless that was done before (`gpuaug index`): an index
    holds, for every record, where the image's bytes lie, its label and its name. It is kept in `index_dir`, and
    counts only as long as the file keeps its size and time of change. From then on every record is as
    reachable as a file of a folder: shuffling is global, and resuming and evaluation are exact.

    Files that are objects in S3 (`s3://bucket/key`; not LMDB) are fetched first, once and whole, into `s3/` in
    `index_dir`, and are local files from then on: the copy is not compared with the bucket again, so delete it when the
    object has changed. Fetching takes as much memory as the largest of them; see `local_copies`.

    Attributes:
        missing: "raise" for records without a usable image or label, or "skip" to leave them out with a warning.
        multilabel: a label is any number of classes (targets are float32 (N, C)); or a vector of numbers, one a class.
        class_names: the class list: what whole numbers stand for, or the names that may occur and their order.
        labels: what a whole number says, also as a text: "index", a position in the class list, or "name", a class that
            is called so; "auto": a position, and an error where it may be the name of another class.
        exclude: names of samples to leave out (as `sample_name` gives them), or the file that lists them.
        index_dir: where indexes are kept; `$GPUAUG_INDEX_DIR` or `~/.cache/lightning_gpuaug/index` by default.
        training_classes: set by `with_classes`: the class list to translate the labels to.
    """

    #: Name of the field that says which files.
    _patterns_field: ClassVar[str]
    #: What the files are usually called, in messages.
    _usual_names: ClassVar[str] = "*"
    #: Whether the files may be objects in S3.
    _in_s3: ClassVar[bool] = True

    missing: Missing = "raise"
    multilabel: bool = False
    class_names: Sequence[str] | None = None
    labels: LabelMeaning = "auto"
    # The sequence first: jsonargparse tries the types in turn, and any list can pass for a str.
    exclude: Sequence[str] | str | os.PathLike[str] = ()
    index_dir: str | os.PathLike[str] | None = None
    training_classes: Sequence[str] | None = None

    @property
    def _patterns(self) -> str | tuple[str, ...]:
        owner = f"{type(self).__name__}.{self._patterns_field}"
        return validated_paths(getattr(self, self._patterns_field), owner, self._in_s3)

    @abc.abstractmethod
    def _indexer(self) -> Indexer:
        """Indexes one file."""

    @abc.abstractmethod
    def _index_options(self) -> tuple[str, ...]:
        """All fields that an index depends on."""

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        owner = type(self).__name__
        object.__setattr__(self, self._patterns_field, self._patterns)
        if self.missing not in get_args(Missing):
            raise ValueError(f'{owner}.missing must be "raise" or "skip", got {self.missing!r}')
        if self.labels not in get_args(LabelMeaning):
            raise ValueError(f'{owner}.labels must be "auto", "index" or "name", got {self.labels!r}')
        if not isinstance(self.multilabel, bool):
            raise TypeError(f"{owner}.multilabel must be True or False, got {self.multilabel!r}")
        for field in ("class_names", "training_classes"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, validated_classes(value, f"{owner}.{field}"))
        object.__setattr__(self, "exclude", validated_exclude(self.exclude, f"{owner}.exclude"))
        if self.index_dir is not None:
            object.__setattr__(self, "index_dir", os.fspath(self.index_dir))

    # ---- what a source is ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of samples; labels are not looked at."""
        return len(self._records) if self._kept is None else len(self._kept)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names, the position being the label; None for whole numbers without `class_names`."""
        if self.training_classes is not None and self._labelled:
            return tuple(self.training_classes)
        return self._own[0]

    @property
    def targets(self) -> Targets:
        """Labels, read-only: int64 (N,) (-1 without labels), or float32 (N, C) when multi-label."""
        return self._targets

    @property
    def feed(self) -> Feed:
        """The reader reads the images' bytes."""
        return "bytes"

    def sample_name(self, i: int) -> str:
        """`<data file>:<key or record number>`, the file as a path below the folder that all of them share."""
        return self._records.name(self._position(i), self._records.shard_names)

    def location(self, i: int) -> str:
        """`<path of the data file, or its address in S3>:<key or record number>`."""
        return self._records.name(self._position(i), self._files)

    def with_classes(self, classes: Sequence[str]) -> RecordSource:
        """The same samples with labels translated to the (training) class list `classes`, by name.

        Whole numbers without names are positions in `classes`.

        Raises:
            ValueError: a class with samples is not in `classes`, or a number is not a position in it.

        Warns:
            UserWarning: some of `classes` have no samples.
        """
        other = dataclasses.replace(self, training_classes=tuple(classes))
        for cached in ("_files", "_local", "_records", "_kept", "_own"):
            vars(other)[cached] = getattr(self, cached)
        _ = other._targets
        return other

    def check(self) -> None:
        """Index what is not indexed yet; raise what is wrong in one line, warn once about what was skipped.

        Raises:
            OSError: a file cannot be read, or fetched.
            ValueError: a file is damaged, or a record breaks a rule.
        """
        _ = self._targets
        records = self._records
        if records.skipped_count and not records.reported:
            records.reported = True
            warnings.warn(
                f"{type(self).__name__}: {len(records)} records used, {records.skipped_count} skipped, the first being "
                f"{records.skipped[0]}",
                UserWarning,
                stacklevel=2,
            )

    @property
    def skipped(self) -> tuple[list[str], int]:
        """What `missing="skip"` has left out and why, the first few of each file; and how many records in all."""
        return self._records.skipped, self._records.skipped_count

    def reader(self) -> RangeReader:
        """Reads the encoded images."""
        records, chosen = self._records, self._kept
        cuts: dict[int, list[tuple[int, int]]] = {}
        if len(records.cuts):
            place = {int(p): i for i, p in enumerate(chosen)} if chosen is not None else None
            for record, at, count in records.cuts.tolist():
                sample = record if place is None else place.get(record)
                if sample is not None:
                    cuts.setdefault(sample, []).append((at, count))
        columns = (records.file, records.offset, records.length)
        if chosen is not None:
            columns = tuple(column[chosen] for column in columns)  # type: ignore[assignment]
        return RangeReader(Ranges(fixed_paths(self._local), *columns, cuts, records.states))

    @property
    def files(self) -> tuple[str, ...]:
        """The data files: paths, or addresses in S3."""
        return self._files

    def build_index(self, done: Callable[[int], None] | None = None) -> Records:
        """Index the files that are not indexed yet.

        Args:
            done: called with the number of records after each file.

        Returns:
            All records, which may be none.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is damaged, or a record breaks a rule.
        """
        records = Records(self._indexed(done), self._files)
        if len(records):
            vars(self)["_records"] = records
        return records

    def index_readable(self, done: Callable[[int], None] = lambda records: None) -> tuple[Records, dict[str, str]]:
        """Index the files one by one; those that cannot be are, for this source, files without records.

        Samples keep the names that they have when every file is in order.

        Args:
            done: called with the number of records after each file.

        Returns:
            All records, which may be none; and what is wrong, by file.

        Raises:
            ValueError: the labels of the files contradict each other.
        """
        files, options, problems = self._files, self._index_key, dict[str, str]()
        beside = self._beside() or [""] * len(files)
        empty = np.empty(0, dtype=np.int64)

        def one(name: str, other: str) -> tuple[ShardIndex, str]:
            index, path = ShardIndex(empty, empty, LabelColumn("none", empty, empty), empty), name
            try:
                path, *others = local_copies([name, *filter(None, [other])], cache_folder(self._index_dir))
                file = DataFile(name, path, *others)
                (index,) = indexed([file], self._indexer(), options, self._index_dir)
            except (OSError, ValueError) as error:
                problems[name] = str(error)
            done(len(index))
            return index, path

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            found = list(pool.map(one, files, beside))
        vars(self)["_local"] = tuple(path for _, path in found)
        vars(self)["_records"] = Records([index for index, _ in found], files)
        return self._records, problems

    # ---- from files to records -----------------------------------------------------------------------------------

    @cached_property
    def _files(self) -> tuple[str, ...]:
        return expand(self._patterns, f"{type(self).__name__}.{self._patterns_field}")

    @cached_property
    def _local(self) -> tuple[str, ...]:
        """Where each of `files` is on a file system; those in S3 are fetched if they have not been."""
        return local_copies(self._files, cache_folder(self._index_dir))

    @property
    def _index_dir(self) -> str | None:
        return None if self.index_dir is None else os.fspath(self.index_dir)

    def _beside(self) -> Sequence[str]:
        """For each data file another one that its index depends on, if the format has such."""
        return ()

    def _indexed(self, done: Callable[[int], None] | None = None) -> list[ShardIndex]:
        refuse_folders(self._files, f"{type(self).__name__}.{self._patterns_field}", self._usual_names)
        beside = local_copies(self._beside(), cache_folder(self._index_dir)) or [""] * len(self._files)
        files = [DataFile(*each) for each in zip(self._files, self._local, beside, strict=True)]
        return indexed(files, self._indexer(), self._index_key, self._index_dir, done)

    @property
    def _index_key(self) -> tuple[str, ...]:
        """All that an index depends on but the file."""
        return type(self).__name__, self.missing, *self._index_options()

    @cached_property
    def _records(self) -> Records:
        records = Records(self._indexed(), self._files)
        if not len(records):
            what = f"; {records.skipped_count} skipped, the first being {records.skipped[0]}" if records.skipped else ""
            raise ValueError(
                f"{type(self).__name__}: no records in {len(self._files)} file(s), {self._files[0]} …{what}"
            )
        return records

    @cached_property
    def _kept(self) -> npt.NDArray[np.int64] | None:
        """Positions of the records that are samples, int64; None for all of them."""
        records, owner = self._records, type(self).__name__
        excluded = excluded_names(self.exclude, f"{owner}.exclude")  # type: ignore[arg-type]
        chosen = kept(records.names(), len(records), excluded, owner)
        if chosen is not None and not len(chosen):
            raise ValueError(f"{owner}.exclude leaves none of the {len(records)} records")
        return chosen

    @cached_property
    def _own(self) -> tuple[tuple[str, ...] | None, Targets]:
        """Own classes and labels, before any translation."""
        classes, targets = self._rule.targets(self._records.labels, self._location)
        return classes, targets if self._kept is None else targets[self._kept]

    @property
    def _rule(self) -> LabelRule:
        names = None if self.class_names is None else tuple(self.class_names)
        return LabelRule(type(self).__name__, self.multilabel, names, self._offset, self._labelled, self.labels)

    def _location(self, record: int) -> str:
        return self._records.name(record, self._files)

    @property
    def needs_class_names(self) -> bool:
        """Whether records have several class numbers, so that only `class_names` can say how many classes there are."""
        if not (self.multilabel and self.class_names is None and self._labelled):
            return False
        return self._read_labels.type == "int"

    def class_numbers(self, i: int) -> frozenset[int]:
        """Class numbers of sample `i`, with `label_offset`, where only `class_names` can make targets of them."""
        record, column = i if self._kept is None else int(self._kept[i]), self._read_labels
        end = int(self._label_ends[record])
        values = column.values[end - int(column.counts[record]) : end]
        return frozenset(int(value) + self._offset for value in values)

    @cached_property
    def _read_labels(self) -> LabelColumn:
        """Labels of the records, texts read as what they are."""
        return self._rule.read(self._records.labels, self._location)

    @cached_property
    def _label_ends(self) -> npt.NDArray[np.int64]:
        """Where the values of each record end."""
        return np.cumsum(self._read_labels.counts)

    @property
    def _offset(self) -> int:
        """Added to labels that are whole numbers."""
        return 0

    @property
    def _labelled(self) -> bool:
        """Whether records have labels."""
        return True

    @cached_property
    def _targets(self) -> Targets:
        own, targets = self._own
        if self.training_classes is not None and self._labelled:
            if own is None and targets.ndim == 1:
                own = tuple(self.training_classes)
                targets = self._rule.positions_in(own, self._records.labels, self._kept, self._location)
            targets = translated(own, targets, self.training_classes, f"{type(self).__name__} {self._files[0]} …")
        return read_only(targets)

    @cached_property
    def _fingerprint(self) -> str:
        records, digest = self._records, hashlib.blake2b(digest_size=8)
        own, targets = self.classes, self.targets
        digest.update(repr((own, targets.shape, targets.dtype.kind, records.shard_names)).encode())
        for column in (records.bounds, records.offset, records.length, records.numbers, self._kept, targets):
            if column is not None:
                digest.update(np.ascontiguousarray(column).tobytes())
        for key in records.keys:
            digest.update(b"|" if key is None else key.blob)
        return digest.hexdigest()

    def _position(self, i: int) -> int:
        count = len(self)
        if not -count <= i < count:
            raise IndexError(f"sample index must be in 0..{count - 1}, got {i}")
        i = i % count
        return i if self._kept is None else int(self._kept[i])
