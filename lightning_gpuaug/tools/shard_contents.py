"""What there is to scan in shards: every record that a source would find, and the shards in which it cannot look."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from lightning_gpuaug.sources import TFRecord, WebDataset
from lightning_gpuaug.sources.remote import is_remote, refuse_remote, unread_address
from lightning_gpuaug.sources.scan import IMAGE_EXTENSIONS
from lightning_gpuaug.sources.shards import expand, shard_names, validated_paths
from lightning_gpuaug.tools.contents import Contents, SampleNames, single_labels
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.pieces import Piece

_THREADS = 4
_TFRECORD = re.compile(r"\.tfrecords?(\W|$)|-\d+-of-\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class Shards:
    """Files that hold many samples each.

    Attributes:
        where: what was asked for.
        format: what they are, by their names.
        files: in order.
    """

    where: str
    format: Literal["webdataset", "tfrecord"]
    files: tuple[str, ...]


def find_shards(path: str) -> Shards | None:
    """The shards that `path` means: a shard, a pattern, or a folder that holds shards and no images or folders.

    Objects in S3 are named by themselves or by a pattern in braces.

    Returns:
        None if `path` means something else.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        ValueError: `path` has shards of both formats, or is remote and names no shards.
    """
    path = os.path.expanduser(path)
    if unread_address(path) or (is_remote(path) and "{" not in path and _format(path) is None):
        refuse_remote(path, "path", "shards in S3 are, named one by one or with braces ('s3://bucket/{000..146}.tar')")
    if is_remote(path):
        files = expand(validated_paths(path, "path"), "path")
    elif os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if name[0] != ".")
        paths = [os.path.join(path, name) for name in names]
        if any(os.path.isdir(p) or os.path.splitext(p)[1].lower() in IMAGE_EXTENSIONS for p in paths):
            return None
        files = tuple(p for p in paths if _format(p) is not None)
    elif os.path.isfile(path):
        files = (path,) if _format(path) is not None else ()
    elif glob.has_magic(path) or "{" in path:
        files = expand(path, "path")
    else:
        return None
    formats = {_format(file) or "tfrecord" for file in files}
    if len(formats) > 1:
        raise ValueError(f"{path} has .tar and TFRecord files; name those to scan by a pattern")
    return Shards(path, formats.pop(), files) if files else None


def _format(path: str) -> Literal["webdataset", "tfrecord"] | None:
    if path.lower().endswith(".tar"):
        return "webdataset"
    return "tfrecord" if _TFRECORD.search(os.path.basename(path)) else None


def shard_contents(
    shards: Shards,
    exclude: Sequence[str] = (),
    image: str | None = None,
    label: str | None = None,
    label_offset: int = 0,
    multilabel: bool = False,
    index_dir: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Contents:
    """The records of shards. A shard that cannot be indexed, and a record without an image or label, is a finding.

    Args:
        shards: which files.
        exclude: names of samples to leave out.
        image: the feature or members with the image, if not the source's default.
        label: the same of the label; "none": there is none.
        label_offset: added to the whole numbers that are labels, of TFRecord files alone.
        multilabel: a record has any number of labels.
        index_dir: where indexes are kept; the source's default if None.
        progress: told how many more shards are indexed.

    Raises:
        ValueError: the records' labels contradict each other.
    """

    def source(files: Sequence[str]) -> TFRecord | WebDataset:
        kind = WebDataset if shards.format == "webdataset" else TFRecord
        made = kind(tuple(files), missing="skip", multilabel=multilabel, exclude=tuple(exclude), index_dir=index_dir)
        if isinstance(made, TFRecord):
            made = dataclasses.replace(made, label_offset=label_offset)
        if image is not None:
            made = dataclasses.replace(made, image=image)
        if label is not None:
            made = dataclasses.replace(made, label=None if label == "none" else label)
        return made

    def index(file: str) -> str | None:
        """What is wrong with a shard."""
        try:
            source((file,)).build_index()
        except (OSError, ValueError) as error:
            return str(error)
        finally:
            progress(1)
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        problems = list(pool.map(index, shards.files))
    names = shard_names(shards.files)
    # Leaving a whole shard out is not what an exclusion list can say.
    findings = [
        Finding(name, "damaged shard", problem.removeprefix(f"{file}: "), False)
        for name, file, problem in zip(names, shards.files, problems, strict=True)
        if problem is not None
    ]
    whole = [file for file, problem in zip(shards.files, problems, strict=True) if problem is None]
    kind = "WebDataset shards" if shards.format == "webdataset" else "TFRecord shards"
    nothing = Contents(shards.where, kind, (), lambda i: Piece(""), findings=findings)
    if not whole:
        return nothing
    good = source(whole)
    try:
        skipped, count = good.skipped
    except ValueError as error:  # no records in any of them
        findings.append(Finding(shards.where, "no records", str(error), False))
        return nothing
    for text in skipped:
        name, file = next(pair for pair in zip(names, shards.files, strict=True) if text.startswith(f"{pair[1]}:"))
        findings.append(Finding(name, "incomplete record", text.removeprefix(f"{file}:").strip(), False))
    if count > len(skipped):
        findings.append(Finding(shards.where, "incomplete record", f"{count - len(skipped)} more such records", False))
    # How many classes there are only the run is told, where several numbers are a label.
    unnamed = multilabel and good.build_index().labels.type == "int"
    ranges = good.reader().ranges
    files = [os.fsdecode(bytes(path)) for path in ranges.paths]
    return Contents(
        where=shards.where,
        kind=kind,
        names=SampleNames(good),
        piece=lambda i: Piece(files[ranges.file[i]], int(ranges.offset[i]), int(ranges.length[i])),
        classes=None if unnamed else good.classes,
        targets=None if unnamed else single_labels(good),
        findings=findings,
    )
