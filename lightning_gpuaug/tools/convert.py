"""A folder or list of images, packed into shards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources import Source
from lightning_gpuaug.tools import workers
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.journal import Journal, replace_json
from lightning_gpuaug.tools.pieces import Piece
from lightning_gpuaug.tools.shard_files import Format, OnBad, ShardDone, ShardSample, ShardTask, write_shard
from lightning_gpuaug.tools.shard_plan import cut, keys_of, pattern, sample_order, shard_names

DEFAULT_SHARD_BYTES = 256 * 2**20
_VERSION = 1
_STAT_THREADS = 16


@dataclass(frozen=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        format: "tfrecord" or "webdataset".
        prefix: the shards' names begin with it.
        shard_images: samples in a shard at most.
        shard_bytes: bytes of the samples' files in a shard at most, before any resizing; 256 MiB if neither is given.
        resize: shorter side at most, pixels.
        quality: of JPEGs to encode anew.
        shuffle: seed of the order of the samples over all shards; None for the source's order.
        on_bad: "fail" at the first shard with a bad image, or "skip" bad images.
        overwrite: replace what another conversion has left under the same prefix.
        processes: how many work; as many as there are cores by default.
    """

    format: Format
    prefix: str
    shard_images: int | None = None
    shard_bytes: int | None = None
    resize: int | None = None
    quality: int | None = None
    shuffle: int | None = None
    on_bad: OnBad = "fail"
    overwrite: bool = False
    processes: int | None = None


@dataclass(frozen=True)
class Converted:
    """What a conversion has made.

    Attributes:
        folder: where it is.
        pattern: the shards, as a source takes them, within the folder.
        samples: in all shards.
        shards: how many there are.
        kept: how many of them an earlier run had finished.
        bytes: of all shards.
        bad: images left out, or, when `complete` is False, those that stopped it.
        suffixes: of the images, as a WebDataset names them.
        complete: whether all shards are written.
    """

    folder: str
    pattern: str
    samples: int
    shards: int
    kept: int
    bytes: int
    bad: list[Finding]
    suffixes: list[str]
    complete: bool


def convert(
    source: Source, folder: Path, options: ConvertOptions, progress: Callable[[int], None] = lambda done: None
) -> Converted:
    """Pack the samples of `source` into shards in `folder`.

    Writes the shards, `<prefix>-classes.json` (class name to label) and, when all is done, `<prefix>-manifest.json`.
    Every shard is written under another name, read back record by record, then given its name. A run that was ended in
    any way is continued by the next one with the same source and options: finished shards are kept. The same source and
    options give the same bytes.

    Args:
        source: single-label samples.
        folder: is made.
        options: how.
        progress: told how many more samples are done (those of kept shards at once).

    Raises:
        ValueError: the source has no or several labels a sample, or the folder holds another conversion's shards.
        RuntimeError: another process converts into this folder, or a shard does not read back as written.
        OSError: something cannot be read or written.
    """
    targets = source.targets
    if targets.ndim != 1 or not len(targets) or int(targets.min()) < 0:
        raise ValueError("convert needs one label a sample; the source has none, or several")
    layout = _Layout(source, folder, options)
    identity = _identity(source, options, layout)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"the folder {folder} cannot be made: {error.strerror}") from error
    manifest = folder / f"{options.prefix}-manifest.json"
    journal = Journal(folder / f".{options.prefix}-journal.jsonl")
    try:
        _make_room(folder, options, manifest, identity, journal, set(layout.names))
        replace_json(folder / f"{options.prefix}-classes.json", source.class_to_idx)
        done = {name: shard for name, shard in journal.shards.items() if _is_there(folder, shard)}
        kept = len(done)
        progress(sum(count for name, count in zip(layout.names, layout.counts, strict=True) if name in done))
        left = [i for i, name in enumerate(layout.names) if name not in done]
        processes = min(options.processes or workers.cores(), max(1, len(left)))
        for shard in workers.in_order(write_shard, map(layout.task, left), processes, progress):
            if not shard.sha256:
                return _summary(folder, options, layout, {**done, shard.name: shard}, kept, complete=False)
            journal.add(shard)
            done[shard.name] = shard
        _sync(folder)
        summary = _summary(folder, options, layout, done, kept, complete=True)
        replace_json(manifest, _manifest(identity, source, done, summary))
        journal.remove()
        return summary
    finally:
        journal.close()


class _Layout:
    """Which samples go into which shard. Tasks are made as they are needed: they hold a few hundred bytes a sample."""

    def __init__(self, source: Source, folder: Path, options: ConvertOptions) -> None:
        limit = options.shard_bytes
        if limit is None and options.shard_images is None:
            limit = DEFAULT_SHARD_BYTES
        sizes = _file_sizes(source) if limit is not None else None
        self._source, self._folder, self._options = source, folder, options
        self._parts = cut(sample_order(len(source), options.shuffle), sizes, options.shard_images, limit)
        self._keys = keys_of(source.sample_name(i) for i in range(len(source)))
        self.names = shard_names(options.prefix, options.format, len(self._parts))
        self.counts = [len(part) for part in self._parts]

    def task(self, shard: int) -> ShardTask:
        """The work of one shard."""
        options = self._options
        return ShardTask(
            path=os.path.join(self._folder, self.names[shard]),
            format=options.format,
            samples=[self._sample(i) for i in self._parts[shard].tolist()],
            resize=options.resize,
            quality=options.quality,
            on_bad=options.on_bad,
        )

    def _sample(self, i: int) -> ShardSample:
        source = self._source
        label, classes = int(source.targets[i]), source.classes
        name = classes[label] if classes is not None else ""
        return ShardSample(source.sample_name(i), self._keys[i], Piece(source.paths[i]), label, name)


def _file_sizes(source: Source) -> npt.NDArray[np.int64]:
    def size(path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError:  # found again, and told, when it is read
            return 0

    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        return np.fromiter(pool.map(size, source.paths, chunksize=256), dtype=np.int64, count=len(source))


def _identity(source: Source, options: ConvertOptions, layout: _Layout) -> dict[str, Any]:
    """All that the shards' bytes depend on, but for the contents of the files."""
    cuts = hashlib.sha256(repr(layout.counts).encode()).hexdigest()[:16]
    return {
        "version": _VERSION,
        "source": source.fingerprint(),
        "format": options.format,
        "shards": len(layout.names),
        "cuts": cuts,
        "resize": options.resize,
        "quality": options.quality,
        "shuffle": options.shuffle,
    }


def _make_room(
    folder: Path,
    options: ConvertOptions,
    manifest: Path,
    identity: dict[str, Any],
    journal: Journal,
    wanted: set[str],
) -> None:
    """Leave in the folder only what this conversion has written, or refuse."""
    for partial in folder.glob(f".{options.prefix}-*.partial"):
        partial.unlink()  # of a run that was killed: the journal's lock is ours
    if journal.identity is None and manifest.exists():
        # A complete conversion: begin with what its manifest says.
        former = json.loads(manifest.read_text(encoding="utf-8"))
        journal.begin(former["conversion"])
        for shard in former["shards"]:
            journal.add(ShardDone(**{**shard, "bad": [Finding(**found) for found in shard["bad"]]}))
    shards = [path for end in ("tar", "tfrecord") for path in folder.glob(f"{options.prefix}-[0-9]*.{end}")]
    if journal.identity != identity:
        if not options.overwrite and (shards or journal.identity is not None):
            differing = [key for key in identity if (journal.identity or {}).get(key) != identity[key]]
            what = (
                f"another conversion ({', '.join(differing)} differ)"
                if journal.identity
                else "shards of unknown origin"
            )
            raise ValueError(f"{folder} holds {what} under {options.prefix}-*: use overwrite, another prefix or folder")
        manifest.unlink(missing_ok=True)
        journal.begin(identity)
        for path in shards:
            path.unlink()
    elif strangers := sorted(path.name for path in shards if path.name not in wanted):
        if not options.overwrite:
            raise ValueError(f"{folder} has shards that do not belong to this conversion, such as {strangers[0]}")
        for name in strangers:
            (folder / name).unlink()


def _is_there(folder: Path, shard: ShardDone) -> bool:
    try:
        return (folder / shard.name).stat().st_size == shard.bytes
    except OSError:
        return False


def _summary(
    folder: Path, options: ConvertOptions, layout: _Layout, done: dict[str, ShardDone], kept: int, complete: bool
) -> Converted:
    shards = done.values()
    return Converted(
        folder=str(folder),
        pattern=pattern(options.prefix, options.format, len(layout.names)),
        samples=sum(shard.samples for shard in shards),
        shards=len(layout.names),
        kept=kept,
        bytes=sum(shard.bytes for shard in shards),
        bad=[found for shard in shards for found in shard.bad],
        suffixes=sorted({suffix for shard in shards for suffix in shard.suffixes}),
        complete=complete,
    )


def _manifest(
    identity: dict[str, Any], source: Source, done: dict[str, ShardDone], summary: Converted
) -> dict[str, Any]:
    shards = [{**vars(shard), "bad": [vars(found) for found in shard.bad]} for _, shard in sorted(done.items())]
    return {
        "conversion": identity,
        "pattern": summary.pattern,
        "samples": summary.samples,
        "classes": len(source.classes or ()),
        "bytes": summary.bytes,
        "shards": shards,
    }


def _sync(folder: Path) -> None:
    """Make the renames last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
