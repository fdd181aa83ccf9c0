"""What there is to scan below a path: samples, their bytes and their classes, and what is wrong before any is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources import FileList, Source
from lightning_gpuaug.sources.base import Targets
from lightning_gpuaug.sources.scan import HIDDEN, IMAGE_EXTENSIONS, LOOSE, survey_folder
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.pieces import Piece


@dataclass
class Contents:
    """What there is to scan.

    Attributes:
        where: the path it was asked for.
        kind: "folder of class folders", "folder of class folders of .npy files", "flat folder", "list", or the sort of
            shards.
        names: of the samples, as the source's `sample_name` and an exclusion list have them.
        piece: where the bytes of sample i are.
        classes: class names, or None when they are unknown.
        targets: label of each sample, int64 (N,); None when there are none, or several a sample.
        label: the label of sample i, one or several classes, as a message has it: equal texts are equal labels. None
            when there are none.
        findings: what is wrong with the place itself: links that lead nowhere, cut shards, classes without images.
        unused: files that are not samples, by reason.
        arrays: whether samples are `.npy` files rather than encoded images.
    """

    where: str
    kind: str
    names: Sequence[str]
    piece: Callable[[int], Piece]
    classes: tuple[str, ...] | None = None
    targets: npt.NDArray[np.int64] | None = None
    label: Callable[[int], str] | None = None
    findings: list[Finding] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)
    arrays: bool = False

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.names)


class SampleNames(Sequence[str]):
    """The names of a source's samples, made when they are asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._source)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One name, or several."""
        if isinstance(index, slice):
            return [self._source.sample_name(i) for i in range(*index.indices(len(self)))]
        return self._source.sample_name(index)


def contents_of(path: str, exclude: Sequence[str] = (), labelled: bool = True, multilabel: bool = False) -> Contents:
    """What there is to scan at `path`: a folder or a list (.txt, .csv, .tsv); for shards see `shard_contents`.

    Args:
        path: where to look.
        exclude: names of samples to leave out.
        labelled: whether a list has labels.
        multilabel: whether a label of a list is several class names.

    Raises:
        OSError: there is nothing at `path`, or it cannot be read.
        ValueError: there is nothing to scan there.
    """
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        if path.lower().endswith((".txt", ".csv", ".tsv", ".lst")):
            return _list_contents(path, exclude, labelled, multilabel)
        raise ValueError(
            f"a file to scan is a list (.txt, .csv, .tsv) or a shard (.tar, .tfrecord, .rec, .mdb), got {path}"
        )
    return _folder_contents(path, exclude)


def _folder_contents(root: str, exclude: Sequence[str]) -> Contents:
    survey, arrays = survey_folder(root, exclude), False
    if survey.folders and not len(survey.names):
        others = survey_folder(root, exclude, frozenset({".npy"}))
        if len(others.names):
            survey, arrays = others, True
    links = [Finding(name, "unreadable", "link leads nowhere") for name in survey.dangling]
    if not survey.folders:
        return _flat_contents(root, exclude, links)
    empty = [name for name, part in zip(survey.folders, survey.found, strict=True) if not part.count]
    # No file to leave out: which classes there are is for people to decide.
    links += [Finding(f"{name}/", "class without images", "no images in this class folder", False) for name in empty]
    names, counts = survey.names, survey.counts
    paths = names.with_prefix(os.path.join(root, ""))
    classes = tuple(survey.folders)
    targets = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return Contents(
        where=root,
        kind="folder of class folders of .npy files" if arrays else "folder of class folders",
        names=names,
        piece=lambda i: Piece(paths[i]),
        classes=classes,
        targets=targets,
        label=label_texts(targets, classes),
        findings=links,
        unused=dict(survey.unused),
        arrays=arrays,
    )


def _flat_contents(root: str, exclude: Sequence[str], links: list[Finding]) -> Contents:
    """Images without class folders, as for prediction."""
    left_out = set(exclude)
    with os.scandir(root) as entries:
        files = sorted(entry.name for entry in entries if entry.name not in left_out and entry.is_file())
    names = [name for name in files if name[0] != "." and os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS]
    hidden = sum(name[0] == "." for name in files)
    others = len(files) - len(names) - hidden
    if not names and not links:
        raise ValueError(f"nothing to scan in {root}: no class folders, no images, no shards")
    unused = {HIDDEN: hidden, "without an image extension": others}
    return Contents(
        where=root,
        kind="flat folder",
        names=names,
        piece=lambda i: Piece(os.path.join(root, names[i])),
        findings=links,
        unused={reason: number for reason, number in unused.items() if number and reason != LOOSE},
    )


def _list_contents(path: str, exclude: Sequence[str], labelled: bool, multilabel: bool) -> Contents:
    source = FileList(path, labels="auto" if labelled else "none", exclude=exclude, multilabel=multilabel)
    paths = source.paths
    return Contents(
        where=path,
        kind="list",
        names=SampleNames(source),
        piece=lambda i: Piece(paths[i]),
        classes=source.classes,
        targets=single_labels(source),
        label=label_texts(source.targets, source.classes),
    )


def single_labels(source: Source) -> npt.NDArray[np.int64] | None:
    """The targets of a source, if they are one class a sample."""
    targets = source.targets
    return targets.astype(np.int64, copy=False) if _one_class_each(targets) else None


def label_texts(targets: Targets, classes: Sequence[str] | None) -> Callable[[int], str] | None:
    """`Contents.label` of the labels of a source; None if it has none."""
    if _one_class_each(targets):
        return lambda i: _class_text(int(targets[i]), classes)
    if targets.ndim == 1:
        return None

    def several(i: int) -> str:
        row = targets[i]
        if not ((row == 0) | (row == 1)).all():
            return str(row.tolist())
        return " + ".join(_class_text(label, classes) for label in np.flatnonzero(row).tolist()) or "none"

    return several


def _one_class_each(targets: Targets) -> bool:
    return targets.ndim == 1 and len(targets) > 0 and int(targets.min()) >= 0


def _class_text(label: int, classes: Sequence[str] | None) -> str:
    return str(label) if classes is None else repr(classes[label])
