"""Where each record of a data file begins, in a cache: built once, whole or not at all, and checked on each use."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import logging
import mmap
import os
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.labels import LabelColumn, LabelType
from lightning_gpuaug.sources.locks import locked
from lightning_gpuaug.sources.names import NameList, pack
from lightning_gpuaug.sources.shards import refuse_foreign

_log = logging.getLogger(__name__)
#: Goes into the name of a cache file: raise it when an index says something else for the same file.
_VERSION = 2
#: Files indexed at the same time: reading waits for the disk, and checksums are computed outside of the GIL.
THREADS = 8
_NAME = 80  # bytes of a data file's name that the name of its index begins with: with all that follows, far below 255
_LEFT_OVER = 600.0  # seconds after its last change when an unfinished index has nobody who writes it


def _no_cuts() -> npt.NDArray[np.int64]:
    return np.empty((0, 3), dtype=np.int64)


@dataclass(frozen=True)
class ShardIndex:
    """Records of one data file.

    Attributes:
        offset: where each record's encoded image begins, bytes, int64 (N,).
        length: its bytes, int64 (N,).
        labels: as they stand in the file.
        numbers: number of each record in the file, from 0, int64 (N,).
        keys: names of the records; None where they have numbers alone.
        cuts: int64 (M, 3) of (record's position in this index, first byte, bytes): what lies in an image's range
            and is not part of it.
        skipped: what was left out and why, the first few; empty unless skipping was asked for.
        skipped_count: how many were left out.
        state: size and time of change of the file; see `state_of`.
    """

    offset: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    labels: LabelColumn
    numbers: npt.NDArray[np.int64]
    keys: NameList | None = None
    cuts: npt.NDArray[np.int64] = field(default_factory=_no_cuts)
    skipped: tuple[str, ...] = ()
    skipped_count: int = 0
    state: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        """Number of records."""
        return len(self.offset)


@dataclass(frozen=True)
class DataFile:
    """A data file.

    Attributes:
        name: what it is called in messages: its path, or its address in S3.
        path: where it is on a file system.
        beside: path of another file that its index depends on, if there is one.
    """

    name: str
    path: str
    beside: str = ""


#: Indexes the mapped bytes of a data file.
Indexer = Callable[[DataFile, mmap.mmap], ShardIndex]


def cache_folder(index_dir: str | None) -> str:
    """`index_dir`, or else `$GPUAUG_INDEX_DIR`, or else a folder of the user's cache."""
    if index_dir is not None:
        return os.path.expanduser(index_dir)
    if given := os.environ.get("GPUAUG_INDEX_DIR"):
        return os.path.expanduser(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "lightning_gpuaug", "index")


def indexed(
    files: Sequence[DataFile],
    indexer: Indexer,
    options: Sequence[str],
    index_dir: str | None,
    done: Callable[[int], None] | None = None,
) -> list[ShardIndex]:
    """The index of each file: from the cache if the file has the size and the time of change that it had then.

    Any number of processes may ask at once: one of them indexes a file, the others wait for it. A process that is
    killed meanwhile leaves nothing behind that another would take for an index.

    Args:
        files: data files.
        indexer: makes the index of one.
        options: all that an index depends on but the file.
        index_dir: of the cache; see `cache_folder`.
        done: called with the number of records after each file.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is damaged or not of this format.
    """
    folder = cache_folder(index_dir)

    def one(file: DataFile) -> ShardIndex:
        index = _cached_or_built(file, indexer, options, folder)
        if done is not None:
            done(len(index))
        return index

    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gpuaug-index")
    try:
        return list(pool.map(one, files))
    finally:
        pool.shutdown(cancel_futures=True)


def _cached_or_built(file: DataFile, indexer: Indexer, options: Sequence[str], folder: str) -> ShardIndex:
    path, other = file.path, file.beside
    state = state_of(path)
    stamp = _stamp(path, other, options)
    name = hashlib.blake2b(json.dumps([os.path.abspath(path), other, *options]).encode(), digest_size=10).hexdigest()
    cache = os.path.join(folder, f"{_cut(os.path.basename(path))}-{name}.npz")
    if (found := _load(cache, stamp)) is not None:
        return dataclasses.replace(found, state=state)
    with locked(cache, f"the index of {file.name}") as alone:  # should several build it, the result is the same
        if (found := _load(cache, stamp)) is not None:
            return dataclasses.replace(found, state=state)
        _log.info("indexing %s", file.name)
        index = _build(file, indexer)
        if _stamp(path, other, options) != stamp:
            raise ValueError(f"{file.name}: was changed while it was being indexed; try again when it is complete")
        _remove_left_over(cache, alone)
        _store(index, cache, stamp)
        return dataclasses.replace(index, state=state)


def _cut(name: str) -> str:
    """As many characters of a file's name as `_NAME` bytes hold."""
    kept = os.fsencode(name)
    if len(kept) > _NAME:
        end = _NAME
        while end and kept[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        kept = kept[:end]
    return os.fsdecode(kept)


def _remove_left_over(cache: str, alone: bool) -> None:
    """Remove what killed processes have begun to write of an index: all if nobody else can be writing it, else by age.

    Should a lock not have kept another process out, that one does without (see `_store`).
    """
    for unfinished in glob.glob(f"{glob.escape(cache)}*.tmp"):
        with contextlib.suppress(OSError):
            if alone or time.time() - os.stat(unfinished).st_mtime > _LEFT_OVER:
                os.unlink(unfinished)


def _build(file: DataFile, indexer: Indexer) -> ShardIndex:
    with open(file.path, "rb") as opened:
        if os.fstat(opened.fileno()).st_size == 0:
            empty = np.empty(0, dtype=np.int64)
            return ShardIndex(empty, empty, LabelColumn("none", empty, empty), empty)
        with mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as data:
            refuse_foreign(file.name, data[:512])
            return indexer(file, data)


def state_of(path: str) -> tuple[int, int]:
    """Size in bytes and time of change in ns of a file, by which one is known again."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns


def _stamp(path: str, other: str, options: Sequence[str]) -> str:
    """What must be the same for an index to be right."""
    files = [state_of(name) for name in (path, other) if name]
    return json.dumps([_VERSION, os.path.abspath(path), files, *options])


def _store(index: ShardIndex, cache: str, stamp: str) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "stamp": _text(stamp), "offset": index.offset, "length": index.length, "numbers": index.numbers,
        "cuts": index.cuts, "label_type": _text(index.labels.type), "label_values": index.labels.values,
        "label_counts": index.labels.counts, "label_texts": _text(json.dumps(index.labels.texts)),
        "skipped": _text(json.dumps([index.skipped_count, *index.skipped])),
    }  # fmt: skip
    if index.keys is not None:
        arrays["keys"] = np.frombuffer(pack(index.keys), dtype=np.uint8)
    unfinished = f"{cache}.{uuid.uuid4().hex}.tmp"
    try:
        with open(unfinished, "xb") as file:  # not `tempfile`'s, which are for one user: a folder may be shared
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):  # removed by another process, which stores the same
            os.replace(unfinished, cache)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _load(cache: str, stamp: str) -> ShardIndex | None:
    """The cached index; None if there is none for this stamp, or none that can be read."""
    try:
        with open(cache, "rb") as file, np.load(file, allow_pickle=False) as stored:
            if _untext(stored["stamp"]) != stamp:
                return None
            count, *skipped = json.loads(_untext(stored["skipped"]))
            kind = _untext(stored["label_type"])
            assert kind in get_args(LabelType)
            labels = LabelColumn(
                cast(LabelType, kind),
                stored["label_values"],
                stored["label_counts"],
                tuple(json.loads(_untext(stored["label_texts"]))),
            )
            keys = NameList(stored["keys"].tobytes()) if "keys" in stored.files else None
            columns = (stored["offset"], stored["length"], labels, stored["numbers"])
            return ShardIndex(*columns, keys, stored["cuts"], tuple(skipped), count)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, AssertionError, zipfile.BadZipFile) as error:
        _log.warning("%s is no index any more (%s) and is built anew", cache, error)
        return None


def _text(value: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(value.encode(), dtype=np.uint8)


def _untext(value: npt.NDArray[np.uint8]) -> str:
    return value.tobytes().decode()


class Skips:
    """What to do with a record that breaks a rule: raise, or leave it out and take note."""

    def __init__(self, missing: str) -> None:
        self._raises = missing == "raise"
        self.count = 0
        self.first: list[str] = []

    def note(self, message: str) -> None:
        """A record is left out because of `message`, or a ValueError says it."""
        if self._raises:
            raise ValueError(message)
        self.count += 1
        if len(self.first) < 5:
            self.first.append(message)
