"""Any map-style dataset of encoded images: Python fetches bytes, DALI decodes them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Feed, Source, Targets, map_classes, read_only, validated_classes
from lightning_gpuaug.sources.encoded import Indices
from lightning_gpuaug.sources.examplereader import ExampleReader
from lightning_gpuaug.sources.exampletargets import as_array, as_float32, as_targets, is_whole, kind_of, without_targets
from lightning_gpuaug.sources.exclude import excluded_names, kept, validated_exclude
from lightning_gpuaug.sources.fetching import UNKNOWN, Fetcher, MapDataset
from lightning_gpuaug.sources.label_rule import translated
from lightning_gpuaug.sources.orders import ExampleOrder, Order


@dataclass(frozen=True, eq=False)
class Examples(Source):
    """Samples of a map-style dataset (torch's, Hugging Face's) that yields images as encoded bytes or as paths.

    Only fetching is Python's: the dataset must not decode (for Hugging Face's,
    `dataset.cast_column("image", datasets.Image(decode=False))`). Samples are `(image, target)` pairs or mappings
    with an "image" and a "label"; an image is bytes, a uint8 vector, a path, or a mapping of "bytes" and "path".
    A target is a whole number (a class, from 0), a number, or a vector or tensor of either, the same kind in every
    sample. -1 is the target of samples that have none; either all have it, or none of them.

    Batches are fetched by several workers, put together in the planned order, and read ahead. The dataset has to allow
    calls from several threads; or, with `processes`, is pickled and copied to each of them. What a sample is must not
    depend on anything but its index, for resumed runs to be exact. An exception of the dataset ends the run naming the
    sample; an `OSError`, or a path that cannot be read, is a bad image.

    Attributes:
        dataset: where samples come from; anything with `len` and indices.
        image: key or position of the image in a sample; by default "image" or the first.
        label: key or position of the target; by default "label" or the second. A sample that is nothing but an image
            has none (its target is -1).
        known_targets: targets of all samples, when they are known without fetching: whole numbers (N,), or numbers
            (N, C). Those of the samples are then not looked at.
        class_names: the class list; by default that of the dataset, if it says (a list `classes`, or a Hugging Face
            `ClassLabel`).
        order: which samples an epoch of training has, in which order, as a function of (seed, epoch) that gives
            equally many every time; `weighted_order` makes one. By default a shuffle of all. Not for evaluation.
        exclude: names of samples to leave out (their indices as text), or the file that lists them.
        workers: threads or processes that fetch, from 1.
        processes: fetch in processes, for a dataset that computes in Python.
        training_classes: set by `with_classes`: the class list to translate the targets to.
    """

    dataset: MapDataset
    image: str | int | None = None
    label: str | int | None = None
    known_targets: Any = dataclasses.field(default=None, repr=False)
    class_names: Sequence[str] | None = None
    order: Order | None = None
    exclude: Sequence[str] | str | os.PathLike[str] = ()
    workers: int = 8
    processes: bool = False
    training_classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Validate the fields; nothing is fetched."""
        if not hasattr(self.dataset, "__len__") or not hasattr(self.dataset, "__getitem__"):
            kind = type(self.dataset).__name__
            raise TypeError(f"Examples.dataset must be map-style (len and indices), got {kind}")
        if not isinstance(self.workers, int) or self.workers < 1:
            raise ValueError(f"Examples.workers must be a whole number from 1, got {self.workers!r}")
        if self.order is not None and not callable(self.order):
            raise TypeError(f"Examples.order must be a function of (seed, epoch), got {self.order!r}")
        for name in ("class_names", "training_classes"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, validated_classes(value, f"Examples.{name}"))
        object.__setattr__(self, "exclude", validated_exclude(self.exclude, "Examples.exclude"))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Class names, the position being the label; None when nobody says."""
        return self._own_classes if self.training_classes is None else tuple(self.training_classes)

    @property
    def num_classes(self) -> int:
        """Length of the class list, or what the known targets need.

        Raises:
            ValueError: there is neither.
        """
        if self.classes is not None:
            return len(self.classes)
        return super().num_classes

    @property
    def knows_targets(self) -> bool:
        """Whether `known_targets` says them."""
        return self._known is not None

    @property
    def has_labels(self) -> bool:
        """Whether any sample has a target; of targets that are not known, whether the first one that is fetched is."""
        if self._known is not None:
            return super().has_labels
        none = np.array(-1)
        return self._first_kind(len(self), none) != kind_of(none)

    @property
    def targets(self) -> Targets:
        """The known targets, read-only.

        Raises:
            ValueError: they are not known before samples are fetched.
        """
        if self._known is None:
            raise ValueError("Examples knows its targets only as it fetches; give it known_targets or class_names")
        return self._known

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.dataset) if self._kept is None else len(self._kept)

    def sample_name(self, i: int) -> str:
        """Its index in the dataset, as text."""
        count = len(self)
        if not -count <= i < count:
            raise IndexError(f"sample index must be in 0..{count - 1}, got {i}")
        return str(i % count if self._kept is None else int(self._kept[i % count]))

    def location(self, i: int) -> str:
        """Which sample of which dataset."""
        return f"{type(self.dataset).__name__}[{self.sample_name(i)}]"

    def with_classes(self, classes: Sequence[str]) -> Examples:
        """The same samples with targets translated to the (training) class list `classes`, by name.

        Targets without names are positions in `classes`.

        Raises:
            ValueError: a class of this dataset is not in `classes`.

        Warns:
            UserWarning: some of `classes` are no classes of this dataset.
        """
        other = dataclasses.replace(self, training_classes=tuple(classes))
        _ = other._known, other._translation
        return other

    def check(self) -> None:
        """Fetch the first sample: raise what is wrong with its image's form or its target."""
        if len(self) == 0:
            raise ValueError(
                f"Examples.dataset has no samples{' that are not excluded' if self._kept is not None else ''}"
            )
        if self._known is not None and len(self._known) != len(self):
            raise ValueError(f"Examples.known_targets must be one a sample, got {len(self._known)} for {len(self)}")
        _, target, _ = self._fetcher(self._index(0))
        if self._known is None and target is not UNKNOWN:
            self._finished([target], np.zeros(1, dtype=np.int64))

    @property
    def feed(self) -> Feed:
        """The reader fetches the images' bytes."""
        return "bytes"

    def sampler(self) -> ExampleOrder | None:
        """The order of training epochs, if `order` says it."""
        return None if self.order is None else self._sampler

    def reader(self) -> ExampleReader:
        """Fetches samples."""
        return ExampleReader(self)

    @cached_property
    def _sampler(self) -> ExampleOrder:
        assert self.order is not None
        return ExampleOrder(self.order, len(self.dataset), self._kept)

    @cached_property
    def _fetcher(self) -> Fetcher:
        return Fetcher(self.dataset, self.image, self.label, self.known_targets is None)

    def _index(self, row: int) -> int:
        """Index in the dataset of a sample."""
        return row if self._kept is None else int(self._kept[row])

    def _first_kind(self, row: int, target: npt.NDArray[Any]) -> str:
        """Kind of the target of the first sample that can be fetched, which all have, so that no batch has its own.

        It is looked for once, and no further than to `row`: a sample that has been fetched and has `target`.
        """
        found: str | None = vars(self).get("_found_kind")
        if found is None:
            for first in range(row):
                _, value, _ = self._fetcher(self._index(first))
                if value is not UNKNOWN:
                    target = as_array(value, self.location, first)
                    break
            found = vars(self)["_found_kind"] = kind_of(target)
        return found

    @cached_property
    def _own_classes(self) -> tuple[str, ...] | None:
        if self.class_names is not None:
            return tuple(self.class_names)
        features = getattr(self.dataset, "features", None)
        label = self.label if self.label is not None else "label"
        named = getattr(features[label], "names", None) if isinstance(features, Mapping) and label in features else None
        said = named if named is not None else getattr(self.dataset, "classes", None)
        if isinstance(said, (list, tuple)) and said and all(isinstance(name, str) for name in said):
            return tuple(said)
        return None

    @cached_property
    def _kept(self) -> Indices | None:
        """Indices in the dataset of the samples; None for all of them."""
        excluded = excluded_names(self.exclude, "Examples.exclude")  # type: ignore[arg-type]
        return kept(map(str, range(len(self.dataset))), len(self.dataset), excluded, "Examples")

    @cached_property
    def _known(self) -> Targets | None:
        if self.known_targets is None:
            return None
        values = as_targets(self.known_targets, "Examples.known_targets")
        if len(values) != len(self.dataset):
            rule = f"one for each of the {len(self.dataset)} samples"
            raise ValueError(f"Examples.known_targets must be {rule}, got {len(values)}")
        values = values if self._kept is None else values[self._kept]
        self._check_range(values, lambda row: self.location(row))
        if self.training_classes is not None and not without_targets(values):
            values = translated(self._own_classes, values, self.training_classes, "Examples")
        return read_only(values.copy())

    @cached_property
    def _translation(self) -> Indices | None:
        """Label under `training_classes` of each own class."""
        if self.training_classes is None or self._own_classes is None or self._known is not None:
            return None
        return map_classes(self._own_classes, self.training_classes, "Examples")

    def _check_range(self, values: Targets, name: Callable[[int], str]) -> None:
        """Refuse class numbers that are negative, or no positions in the class list."""
        classes = self._own_classes if self._own_classes is not None else self.training_classes
        if values.ndim == 2 and classes is not None and values.shape[1] != len(classes):
            raise ValueError(f"{name(0)}: a target must have {len(classes)} values, one a class, got {values.shape[1]}")
        if values.ndim != 1 or values.dtype != np.int64 or without_targets(values):
            return
        wrong = values < 0
        if classes is not None:
            wrong |= values >= len(classes)
        if wrong.any():
            row = int(np.argmax(wrong))
            rule = "a class from 0" if classes is None else f"in 0..{len(classes) - 1}"
            raise ValueError(f"{name(row)}: target must be {rule}, got {values[row]}")

    def _finished(self, values: list[Any], rows: Indices) -> Targets:
        """Targets of a batch, under the training classes."""

        def name(row: int) -> str:
            return self.location(int(rows[row]))

        arrays = {row: as_array(value, name, row) for row, value in enumerate(values) if value is not UNKNOWN}
        if arrays:
            earliest = min(arrays, key=lambda row: int(rows[row]))
            kind = self._first_kind(int(rows[earliest]), arrays[earliest])
            for row, array in arrays.items():
                if (own := kind_of(array)) != kind:
                    raise ValueError(f"{name(row)}: targets must be of one kind, got {own}, the first being {kind}")
        good = next(iter(arrays.values()), np.array(-1))
        filled = [arrays.get(row, good) for row in range(len(values))]  # bad images: their rows do not stay
        if is_whole(good):
            targets: Targets = np.array([int(array) for array in filled], dtype=np.int64)
        else:
            targets = as_float32(np.stack(filled), name)
        self._check_range(targets, name)
        if self._translation is None:
            return targets
        if targets.ndim == 2:
            table = np.zeros((len(targets), len(self.training_classes or ())), dtype=np.float32)
            table[:, self._translation] = targets
            return table
        return np.where(targets < 0, targets, self._translation[targets])

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        own = getattr(self.dataset, "_fingerprint", None)  # Hugging Face's
        digest.update(repr((len(self.dataset), self.classes, own if isinstance(own, str) else None)).encode())
        for array in (self._kept, self._known):
            digest.update(b"|" if array is None else array.tobytes())
        return digest.hexdigest()

    def fingerprint(self) -> str:
        """Short hexadecimal name of what is known: length, classes, what is excluded, known targets.

        A Hugging Face dataset's own fingerprint counts too. Samples are not fetched for it.
        """
        return self._fingerprint
