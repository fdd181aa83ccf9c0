"""What an earlier run has left in the folder of a conversion: what is kept of it, what goes, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lightning_gpuaug.sources import Source
from lightning_gpuaug.tools.convert_options import ConvertOptions
from lightning_gpuaug.tools.journal import Journal, shard_from_json
from lightning_gpuaug.tools.shard_files import ShardDone, is_intact
from lightning_gpuaug.tools.shard_layout import ShardLayout

_VERSION = 3
_SHARD = r"(\d{6,}\.tar|\d{5,}-of-\d{5,}\.tfrecord)"
#: Parts of a conversion's identity, as a message tells that they are others.
_OTHERS = {
    "version": "by another version of gpuaug",
    "source": "of other images or labels",
    "format": "with another --to",
    "shard_images": "with another --shard-images",
    "shard_bytes": "with another --shard-bytes",
    "resize": "with another --resize",
    "quality": "with another --quality",
    "shuffle": "with another --shuffle",
}


def identity_of(source: Source, options: ConvertOptions) -> dict[str, Any]:
    """What tells one conversion from another: all that its bytes depend on but the files (see `ShardDone.inputs`)."""
    return {
        "version": _VERSION,
        "source": source.fingerprint(),
        "format": options.format,
        "shard_images": options.shard_images,
        "shard_bytes": options.most_bytes,
        "resize": options.resize,
        "quality": options.quality,
        "shuffle": options.shuffle,
    }


def make_room(
    folder: Path,
    options: ConvertOptions,
    manifest: Path,
    identity: dict[str, Any],
    journal: Journal,
    wanted: set[str],
) -> None:
    """Leave in the folder, and in the journal, only what this conversion has written, or refuse.

    Raises:
        ValueError: there is something of another conversion, or nobody knows of which, and `overwrite` is off.
    """
    prefix = re.escape(options.prefix)
    partial = re.compile(rf"\.{prefix}-({_SHARD}|manifest\.json|classes\.json)\.partial")
    named = re.compile(rf"{prefix}-{_SHARD}")
    shards = []
    for path in sorted(folder.iterdir()):
        if partial.fullmatch(path.name):
            path.unlink()  # of a run that was killed: the journal's lock is ours
        elif named.fullmatch(path.name):
            shards.append(path)
    if options.overwrite:
        manifest.unlink(missing_ok=True)
        for path in shards:
            path.unlink()
        journal.begin(identity)
        return
    former: dict[str, Any] | None = journal.identity
    known: list[dict[str, Any]] = []
    if former is None and manifest.exists():
        former, known = _complete(manifest)
    remedy = "use --overwrite, another --prefix or another folder"
    if former is None and shards:
        raise ValueError(f"{folder} holds shards of unknown origin under {options.prefix}-*: {remedy}")
    if former is not None and former != identity:
        others = ", ".join(_OTHERS[key] for key in identity if former.get(key) != identity[key])
        raise ValueError(f"{folder} holds another conversion ({others}) under {options.prefix}-*: {remedy}")
    if journal.identity is None:
        journal.begin(identity)
        for shard in known:
            journal.add(shard_from_json(shard))
    strangers = [path for path in shards if path.name not in wanted]
    unknown = [path.name for path in strangers if path.name not in journal.shards]
    if unknown:
        raise ValueError(
            f"{folder} has shards that do not belong to this conversion, such as {unknown[0]}: remove them, or {remedy}"
        )
    if strangers:
        manifest.unlink(missing_ok=True)
    for path in strangers:  # the files' sizes are others, and so is where shards are cut
        path.unlink()


def _complete(manifest: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Identity and shards of a conversion that was completed."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        return found["conversion"], found["shards"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{manifest} is no manifest of gpuaug convert: remove it, or use another --prefix") from None


def intact_shards(
    earlier: Mapping[str, ShardDone], layout: ShardLayout, threads: int, progress: Callable[[int], None]
) -> dict[str, ShardDone]:
    """The shards of an earlier run that would come out the same; each is read for it.

    Args:
        earlier: shards that were finished, by name.
        layout: of this run.
        threads: how many shards are looked at together.
        progress: told how many more samples are done.
    """
    places = [i for i, name in enumerate(layout.names) if name in earlier]
    intact: dict[str, ShardDone] = {}
    pool = ThreadPoolExecutor(threads, thread_name_prefix="gpuaug-convert")  # hashing lets others run
    try:
        found = pool.map(lambda i: is_intact(earlier[layout.names[i]], layout.task(i)), places)
        for i, same in zip(places, found, strict=True):
            if same:
                intact[layout.names[i]] = earlier[layout.names[i]]
                progress(layout.counts[i])
    finally:
        pool.shutdown(cancel_futures=True)
    return intact
