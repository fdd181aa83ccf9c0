"""A folder or list of images, packed into shards."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lightning_gpuaug.sources import Source
from lightning_gpuaug.tools import workers
from lightning_gpuaug.tools.convert_options import ConvertOptions
from lightning_gpuaug.tools.earlier_shards import identity_of, intact_shards, make_room
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.journal import Journal, replace_json
from lightning_gpuaug.tools.shard_files import ShardDone, write_shard
from lightning_gpuaug.tools.shard_layout import ShardLayout
from lightning_gpuaug.tools.shard_plan import pattern

__all__ = ["ConvertOptions", "Converted", "convert"]


@dataclass(frozen=True)
class Converted:
    """What a conversion has made.

    Attributes:
        folder: where it is.
        prefix: the shards' names begin with it.
        pattern: the shards, as a source takes them, within the folder.
        samples: in all shards.
        shards: how many there are.
        kept: how many of them an earlier run had finished, all compared with their SHA-256.
        bytes: of all shards.
        bad: images left out, or, when `complete` is False, those that stopped it.
        suffixes: of the images, as a WebDataset names them.
        complete: whether all shards are written.
    """

    folder: str
    prefix: str
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
    any way is continued by the next one with the same source and options: finished shards are kept if their SHA-256 and
    the sizes and times of change of the files they were made from are as they were, and if what they left out is still
    bad. The same source and options give the same bytes.

    Args:
        source: single-label samples.
        folder: is made.
        options: how.
        progress: told how many more samples are done.

    Raises:
        ValueError: the source has no or several labels a sample, or the folder holds another conversion's shards.
        RuntimeError: another process converts into this folder, or a shard does not read back as written.
        OSError: something cannot be read or written.
    """
    targets = source.targets
    if targets.ndim != 1 or not len(targets) or int(targets.min()) < 0:
        raise ValueError("convert needs one label a sample; the source has none, or several")
    layout = ShardLayout(source, folder, options)
    identity = identity_of(source, options)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"the folder {folder} cannot be made: {error.strerror}") from error
    manifest = folder / f"{options.prefix}-manifest.json"
    journal = Journal(folder / f".{options.prefix}-journal.jsonl")
    try:
        make_room(folder, options, manifest, identity, journal, set(layout.names))
        done = intact_shards(journal.shards, layout, options.processes or workers.cores(), progress)
        if options.on_bad == "fail" and any(shard.bad for shard in done.values()):
            # An earlier run was told to skip: what it has made stays.
            return _summary(folder, options, layout, done, len(done), complete=False)
        kept = len(done)
        left = [i for i, name in enumerate(layout.names) if name not in done]
        if left:  # from here to the end nothing may pass for complete
            manifest.unlink(missing_ok=True)
        for i in left:
            (folder / layout.names[i]).unlink(missing_ok=True)
        replace_json(folder / f"{options.prefix}-classes.json", source.class_to_idx)
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


def _summary(
    folder: Path, options: ConvertOptions, layout: ShardLayout, done: dict[str, ShardDone], kept: int, complete: bool
) -> Converted:
    shards = done.values()
    return Converted(
        folder=str(folder),
        prefix=options.prefix,
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
    return {
        "conversion": identity,
        "pattern": summary.pattern,
        "samples": summary.samples,
        "classes": len(source.classes or ()),
        "bytes": summary.bytes,
        "shards": [asdict(shard) for _, shard in sorted(done.items())],
    }


def _sync(folder: Path) -> None:
    """Make the renames last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
