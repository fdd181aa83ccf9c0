"""What a data set is to the rest of the package: ordered samples, their labels and their class names."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from lightning_gpuaug.sources.encoded import Reader

#: What the decoding pipeline is given: file names, the bytes of encoded images, or pixels.
Feed = Literal["paths", "bytes", "pixels"]
Targets = npt.NDArray[np.int64] | npt.NDArray[np.float32]


class Sampler(Protocol):
    """The order of an epoch as a function of seed and epoch alone, so that every rank and every resumed run agree."""

    @property
    def size(self) -> int:
        """Samples of an epoch."""

    def __hash__(self) -> int:
        """Equal samplers give equal orders, which are kept by them."""

    def order(self, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Sample indices (size,) of an epoch over all ranks; a sample may come any number of times."""


class Source(abc.ABC):
    """Where samples are and what their labels are.

    Subclasses are frozen dataclasses. Building one does no input or output: the first property that needs the
    samples scans for them and keeps the result. A pickle carries the fields alone, so another process scans
    for itself; `fingerprint` tells whether it found the same data.
    """

    @property
    @abc.abstractmethod
    def classes(self) -> tuple[str, ...] | None:
        """Class names, the position being the label; None when they are unknown."""

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Class name to label; empty when the names are unknown."""
        return {name: index for index, name in enumerate(self.classes or ())}

    @property
    def num_classes(self) -> int:
        """How many classes a model for this data needs; 0 when the samples have no labels."""
        if self.classes is not None:
            return len(self.classes)
        targets = self.targets
        if targets.ndim == 2:
            return int(targets.shape[1])
        return int(targets.max()) + 1 if len(targets) else 0

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.targets)

    @property
    def paths(self) -> Sequence[str]:
        """File of each sample, in sample order; relative only if the source was given a relative path.

        Raises:
            ValueError: samples have no files of their own, as `feed` says.
        """
        raise ValueError(f"{type(self).__name__} has no file for each sample; see `location`")

    @property
    def knows_targets(self) -> bool:
        """Whether `targets` can be had before samples are fetched."""
        return True

    @property
    def has_labels(self) -> bool:
        """Whether any sample has a label."""
        targets = self.targets
        return targets.ndim == 2 or bool((targets >= 0).any())

    @property
    @abc.abstractmethod
    def targets(self) -> Targets:
        """Labels in sample order, read-only: int64 (N,), or float32 (N, C) of 0 and 1 when multi-label."""

    @abc.abstractmethod
    def sample_name(self, i: int) -> str:
        """Name of sample `i` that does not depend on where the data is mounted."""

    def location(self, i: int) -> str:
        """Where sample `i` is on this machine, for messages."""
        return self.paths[i]

    def sampler(self) -> Sampler | None:
        """The order of training epochs, when it is not a shuffle of all samples."""
        return None

    @property
    def feed(self) -> Feed:
        """How the images come: the pipeline reads files by their `paths`, or gets what a `reader` reads."""
        return "paths"

    def reader(self) -> Reader:
        """What reads the images, for a source whose `feed` is not "paths"."""
        raise NotImplementedError(f"{type(self).__name__} is read by its paths")

    @abc.abstractmethod
    def with_classes(self, classes: tuple[str, ...]) -> Source:
        """The same samples labelled with another (the training) class list.

        A class that only this source has is a ValueError naming it; classes that it lacks are a warning.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Scan now: raise what is wrong in one line, warn once about what is left unused."""

    def fingerprint(self) -> str:
        """Short hexadecimal name of what the data is: sample names, labels and classes, in order.

        The same on every machine and under every mount point; another one when a file is added, removed, renamed
        or labelled differently. File contents are not read.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        names = (self.sample_name(i) for i in range(len(self)))
        return fingerprint_of(names, self.targets, self.classes)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was scanned stays in this process."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]


def fingerprint_of(names: Iterable[str], targets: Targets, classes: tuple[str, ...] | None) -> str:
    """16 hexadecimal digits of the names (in order), the labels and the class list."""
    digest = hashlib.blake2b(digest_size=8)
    for name in classes or ():
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
    # The lengths and the kind of the parts keep one part from passing for another.
    digest.update(f"|{len(classes) if classes is not None else None}|{targets.shape}|{targets.dtype.kind}|".encode())
    digest.update(np.ascontiguousarray(targets, dtype=targets.dtype.newbyteorder("<")).tobytes())
    digest.update("\0".join(names).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def validated_classes(classes: Iterable[str], owner: str) -> tuple[str, ...]:
    """`classes` as a tuple of distinct names, or an error naming `owner` and the first name that is wrong."""
    if isinstance(classes, str):
        raise TypeError(f"{owner} must be a sequence of class names, got the string {classes!r}")
    names = tuple(classes)
    if not names:
        raise ValueError(f"{owner} must name at least one class, got none")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{owner} must be strings, got {name!r} ({type(name).__name__})")
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{owner} must be distinct, got {twice!r} twice")
    return names


def map_classes(own: Sequence[str], wanted: Sequence[str], where: str) -> npt.NDArray[np.int64]:
    """Label under `wanted` of each class of `own`, int64 (len(own),).

    Raises:
        ValueError: `own` has classes that `wanted` lacks; names them and `where`.

    Warns:
        UserWarning: `wanted` has classes that `own` lacks.
    """
    index = {name: i for i, name in enumerate(wanted)}
    unknown = [name for name in own if name not in index]
    if unknown:
        raise ValueError(f"{where}: {some(unknown)} not among the {len(wanted)} training classes")
    lacking = sorted(set(wanted).difference(own))
    if lacking:
        warnings.warn(
            f"{where}: no samples of {some(lacking)}, of {len(wanted)} training classes", UserWarning, stacklevel=3
        )
    return np.array([index[name] for name in own], dtype=np.int64)


def some(names: Sequence[str], limit: int = 5) -> str:
    """`class 'a'` or `classes 'a', 'b' and 7 more`: the names for a one-line message."""
    shown = ", ".join(repr(name) for name in names[:limit])
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{'class' if len(names) == 1 else 'classes'} {shown}{rest}"


def read_only(targets: Targets) -> Targets:
    """`targets`, which nobody can change any more (they are shared by everyone who asks)."""
    targets.flags.writeable = False
    return targets


def sums_to_one(targets: Targets) -> npt.NDArray[np.bool_]:
    """Which rows of (N, C) targets are shares of classes: one-hot, or soft labels."""
    shares: npt.NDArray[np.bool_] = np.abs(targets.sum(axis=1) - 1) <= 0.01
    return shares
