"""A folder of class sub-folders, as torchvision's `ImageFolder` reads it."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.base import Source, map_classes, read_only, some, validated_classes
from lightning_gpuaug.sources.exclude import excluded_names, validated_exclude
from lightning_gpuaug.sources.remote import refuse_remote
from lightning_gpuaug.sources.scan import IMAGE_EXTENSIONS, FolderScan, scan_folder, scan_images


@dataclass(frozen=True)
class ImageFolder(Source):
    """`root/<class>/**/<image>`: the class is the first folder under `root`, labels follow the sorted names.

    Samples come in torchvision's order: by class, then folder, then file name, all compared as text (so 1, 10, 2).
    Links to files and folders are followed; hidden files and folders are not data. No image is opened and no file
    is touched but links, so a file of zero bytes is a sample (one that fails to decode). A class folder
    without images is an error, as in torchvision, unless `class_names` is given.

    Attributes:
        root: the folder; `~` is expanded.
        exclude: files or folders to leave out, relative to `root` or absolute; or, as one string or path, the
            text file that lists them, one a line (`#` comments allowed), or a JSON array of them.
        strict: refuse when a file below `root` is left unused (other than through `exclude`).
        class_names: the class list to label with, when it must not come from the folders (see `with_classes`).
    """

    #: What images are called.
    _extensions: ClassVar[frozenset[str]] = IMAGE_EXTENSIONS

    root: str | os.PathLike[str]
    # The sequence first: jsonargparse tries the types in turn, and any list can pass for a str.
    exclude: Sequence[str] | str | os.PathLike[str] = ()
    strict: bool = False
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Validate the fields; nothing is read."""
        if not isinstance(self.root, (str, os.PathLike)) or not os.fspath(self.root):
            raise TypeError(f"ImageFolder.root must be the path of a folder, got {self.root!r}")
        object.__setattr__(self, "root", os.fspath(self.root))
        refuse_remote(str(self.root), f"{type(self).__name__}.root", "give a FileList of s3:// paths, or mount it")
        object.__setattr__(self, "exclude", validated_exclude(self.exclude, "ImageFolder.exclude"))
        if self.class_names is not None:
            object.__setattr__(self, "class_names", validated_classes(self.class_names, "ImageFolder.class_names"))

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, the position being the label."""
        return self._scan.folders if self.class_names is None else tuple(self.class_names)

    @property
    def paths(self) -> Sequence[str]:
        """File of each sample; relative only if `root` is."""
        return self._scan.names.with_prefix(os.path.join(self._root, ""))

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """Labels, int64 (N,), read-only."""
        return self._targets

    @property
    def unused(self) -> dict[str, int]:
        """How many files below `root` are not samples, by reason; those of `exclude` are not counted."""
        return dict(self._scan.unused)

    def sample_name(self, i: int) -> str:
        """Path of sample `i` relative to `root`."""
        return self._scan.names[i]

    def with_classes(self, classes: Sequence[str]) -> ImageFolder:
        """The same files labelled with the (training) class list `classes`.

        Raises:
            ValueError: there are images of a class that is not in `classes`.

        Warns:
            UserWarning: there are no images of some of `classes`.
        """
        other = dataclasses.replace(self, class_names=tuple(classes))
        vars(other)["_scan"] = self._scan
        _ = other._targets
        return other

    def check(self) -> None:
        """Scan now: raise what is wrong in one line, warn once with counts of the unused files by reason."""
        _ = self._targets
        scan = self._scan
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(scan.unused.items()))
        message = f"{self._root}: {len(scan.names)} images used, left unused: {counts}"
        if self.strict and counts:
            raise ValueError(f"{message}; refused because of strict=True")
        if scan.reported:
            return
        scan.reported = True
        if counts:
            warnings.warn(message, UserWarning, stacklevel=2)
        if scan.excluded_nothing:
            missed = f"{len(scan.excluded_nothing)} of the excluded paths match nothing in {self._root}"
            warnings.warn(f"{missed}, the first being {scan.excluded_nothing[0]!r}", UserWarning, stacklevel=2)

    @property
    def _root(self) -> str:
        return os.path.expanduser(self.root)

    @cached_property
    def _scan(self) -> FolderScan:
        return scan_folder(self._root, self._excluded_paths(), self._extensions)

    @cached_property
    def _targets(self) -> npt.NDArray[np.int64]:
        scan = self._scan
        empty = [name for name, count in zip(scan.folders, scan.counts, strict=True) if count == 0]
        if self.class_names is None:
            if empty:
                raise ValueError(
                    f"{self._root}: no images in the folder of {some(empty)}; remove it or name it in `exclude`"
                )
            labels = np.arange(len(scan.folders), dtype=np.int64)
        else:
            # A folder without images counts as a class this source lacks.
            own = [name for name in scan.folders if name not in set(empty)]
            by_name = dict(zip(own, map_classes(own, self.class_names, self._root).tolist(), strict=True))
            labels = np.array([by_name.get(name, -1) for name in scan.folders], dtype=np.int64)
        targets = np.repeat(labels, scan.counts)
        read_only(targets)
        return targets

    def _excluded_paths(self) -> tuple[str, ...]:
        return excluded_names(validated_exclude(self.exclude, "ImageFolder.exclude"), "ImageFolder.exclude")


@dataclass(frozen=True)
class UnlabelledFolder(ImageFolder):
    """The images below `root`, at whatever depth, without labels (all targets are -1), for prediction.

    The root's own images come first, then those of its sub-folders as `ImageFolder` orders them.
    """

    @property
    def classes(self) -> None:  # type: ignore[override]
        """Folders are no classes here."""
        return None

    def with_classes(self, classes: Sequence[str]) -> UnlabelledFolder:
        """The same samples: there are no labels to translate."""
        return self

    @cached_property
    def _scan(self) -> FolderScan:
        return scan_images(self._root, self._excluded_paths(), self._extensions)

    @cached_property
    def _targets(self) -> npt.NDArray[np.int64]:
        targets = np.full(len(self._scan.names), -1, dtype=np.int64)
        read_only(targets)
        return targets
