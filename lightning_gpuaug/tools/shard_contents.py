"""What there is to scan in shards: every record that a source would find, and the shards in which it cannot look."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lightning_gpuaug.sources.record_format import FORMAT_OF_ENDING, RecordFormat, record_source
from lightning_gpuaug.sources.remote import is_remote, refuse_remote, unread_address
from lightning_gpuaug.sources.scan import IMAGE_EXTENSIONS
from lightning_gpuaug.sources.shards import expand, shard_names, validated_paths
from lightning_gpuaug.tools.contents import Contents, SampleNames, label_texts, single_labels
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.pieces import Piece

_KINDS: dict[RecordFormat, str] = {
    "webdataset": "WebDataset shards",
    "tfrecord": "TFRecord shards",
    "recordio": "RecordIO files",
    "lmdb": "LMDB databases",
}
# Numbers and the like may follow, or what a compressed file ends in; x.tfrecord.idx (DALI's) and x.tfrecord.json are
# about a shard.
_TFRECORD = re.compile(r"\.tfrecords?(?!\w)([^.]|\.\d)*(\.(gz|zst|bz2|xz))?$|-\d+-of-\d+$", re.IGNORECASE)


@dataclass(frozen=True)
class Shards:
    """Files that hold many samples each.

    Attributes:
        where: what was asked for.
        format: what they are, by their names.
        files: in order.
    """

    where: str
    format: RecordFormat
    files: tuple[str, ...]


def find_shards(path: str) -> Shards | None:
    """The shards that `path` means: a shard, a pattern, or a folder that holds shards and no images or folders.

    An LMDB is a shard, whether its folder or the file in it is named. Objects in S3 are named by themselves or by a
    pattern in braces.

    Returns:
        None if `path` means something else.

    Raises:
        FileNotFoundError: a pattern matches nothing.
        ValueError: `path` has shards of several formats, or is remote and names no shards.
    """
    path = os.path.expanduser(path)
    if unread_address(path) or (is_remote(path) and "{" not in path and _format(path) is None):
        refuse_remote(path, "path", "shards in S3 are, named one by one or with braces ('s3://bucket/{000..146}.tar')")
    if is_remote(path):
        files = expand(validated_paths(path, "path"), "path")
    elif os.path.isdir(path) and _format(path) is None:
        names = sorted(name for name in os.listdir(path) if name[0] != ".")
        paths = [os.path.join(path, name) for name in names]
        if any(os.path.isdir(p) or os.path.splitext(p)[1].lower() in IMAGE_EXTENSIONS for p in paths):
            return None
        files = tuple(p for p in paths if _format(p) is not None)
    elif os.path.exists(path):
        files = (path,) if _format(path) is not None else ()
    elif glob.has_magic(path) or "{" in path:
        files = expand(path, "path")
    else:
        return None
    formats = {_format(file) or "tfrecord" for file in files}
    if len(formats) > 1:
        kinds = " and ".join(_KINDS[form] for form in sorted(formats))
        raise ValueError(f"{path} means {kinds}; name those to scan by a pattern")
    return Shards(path, formats.pop(), files) if files else None


def _format(path: str) -> RecordFormat | None:
    if os.path.isdir(path):
        return "lmdb" if os.path.isfile(os.path.join(path, "data.mdb")) else None
    name = os.path.basename(path)
    ending = os.path.splitext(name)[1].lower()
    if ending in FORMAT_OF_ENDING:
        return FORMAT_OF_ENDING[ending]
    return "tfrecord" if _TFRECORD.search(name) else None


def shard_contents(
    shards: Shards,
    exclude: Sequence[str] = (),
    multilabel: bool = False,
    index_dir: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
    **options: Any,
) -> Contents:
    """The records of shards. A shard that cannot be indexed, and a record without an image or label, is a finding.

    Args:
        shards: which files.
        exclude: names of samples to leave out.
        multilabel: a record has any number of labels.
        index_dir: where indexes are kept; the source's default if None.
        progress: told how many more shards are indexed.
        options: how records are read; of `FORMAT_OPTIONS`, as `record_source` has them.

    Raises:
        OSError: an `.idx` file is not there.
        ValueError: the labels of two shards are of different types.
    """
    common = {"missing": "skip", "multilabel": multilabel, "exclude": tuple(exclude), "index_dir": index_dir}
    source = record_source(shards.format, shards.files, **options, **common)
    records, problems = source.index_readable(lambda _: progress(1))
    names = dict(zip(source.files, shard_names(source.files), strict=True))
    # Leaving a whole shard out is not what an exclusion list can say.
    findings = [
        Finding(name, "damaged shard", problems[file].removeprefix(f"{file}: "), False)
        for file, name in names.items()
        if file in problems
    ]
    skipped, count = source.skipped
    kind = _KINDS[shards.format]
    if not len(records):
        if len(problems) < len(source.files):
            why = f"; {count} skipped, the first being {skipped[0]}" if skipped else ""
            findings.append(Finding(shards.where, "no records", f"no records that a run could use{why}", False))
        return Contents(shards.where, kind, (), lambda i: Piece(""), findings=findings)
    for text in skipped:
        file = next(file for file in names if text.startswith(f"{file}:"))
        findings.append(Finding(names[file], "incomplete record", text.removeprefix(f"{file}:").strip(), False))
    if count > len(skipped):
        findings.append(Finding(shards.where, "incomplete record", f"{count - len(skipped)} more such records", False))
    classes, targets = None, None
    label: Callable[[int], str] | None = None
    try:
        if source.needs_class_names:  # those only the run is told; equal numbers are equal under any

            def label(i: int) -> str:
                return " + ".join(repr(text) for text in sorted(map(str, source.class_numbers(i)))) or "none"

        else:
            classes, targets = source.classes, single_labels(source)
            label = label_texts(source.targets, classes)
    except ValueError as error:  # the images are worth looking at all the same
        findings.append(Finding(shards.where, "unclear labels", str(error), False))
    ranges = source.reader().ranges
    paths = [os.fsdecode(bytes(path)) for path in ranges.paths]

    def piece(i: int) -> Piece:
        cuts = tuple(ranges.cuts.get(i, ()))
        return Piece(paths[ranges.file[i]], int(ranges.offset[i]), int(ranges.length[i]), cuts)

    return Contents(
        where=shards.where,
        kind=kind,
        names=SampleNames(source),
        piece=piece,
        classes=classes,
        targets=targets,
        label=label,
        findings=findings,
    )
