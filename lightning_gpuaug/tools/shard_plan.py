"""Which samples go into which shard: decided before anything is written, so that shards can be made in any order."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.plan import permutation


def sample_order(count: int, shuffle: int | None) -> npt.NDArray[np.int64]:
    """Order of the samples over all shards: the source's own, or shuffled by the seed `shuffle`."""
    return np.arange(count, dtype=np.int64) if shuffle is None else permutation(count, shuffle, 0)


def cut(
    order: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64] | None, images: int | None, limit: int | None
) -> list[npt.NDArray[np.int64]]:
    """The order cut into shards.

    Args:
        order: samples, (N,).
        sizes: bytes of each sample in the source; needed with `limit`.
        images: samples in a shard at most.
        limit: bytes of the samples in a shard at most, but for a sample that is larger.

    Returns:
        Samples of each shard, none empty.
    """
    images = images or len(order)
    if limit is None or sizes is None:
        return [order[begin : begin + images] for begin in range(0, len(order), images)]
    ends = np.cumsum(sizes[order])
    shards: list[npt.NDArray[np.int64]] = []
    begin = 0
    while begin < len(order):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + limit, side="right"))
        end = min(max(end, begin + 1), begin + images)
        shards.append(order[begin:end])
        begin = end
    return shards


def shard_names(prefix: str, form: str, count: int) -> list[str]:
    """Names that sort in order: `train-000000.tar`, or `train-00000-of-00128.tfrecord`."""
    template = name_template(prefix, form, count)
    return [template.format(i=i) for i in range(count)]


def name_template(prefix: str, form: str, count: int) -> str:
    """A format string of the number `i` for `shard_names`."""
    prefix = prefix.replace("{", "{{").replace("}", "}}")
    return f"{prefix}-{{i:06d}}.tar" if form == "webdataset" else f"{prefix}-{{i:05d}}-of-{count:05d}.tfrecord"


def pattern(prefix: str, form: str, count: int) -> str:
    """One expression for all of `shard_names`, for a source."""
    if form != "webdataset":
        return f"{prefix}-*-of-{count:05d}.tfrecord"
    return f"{prefix}-000000.tar" if count == 1 else f"{prefix}-{{000000..{count - 1:06d}}}.tar"


def keys_of(names: Iterable[str]) -> list[str]:
    """A WebDataset key for each file name: its path without the extension; distinct, no dot in the last part.

    A key ends at the first dot of the last part, so further dots become `_`; a key that is taken gets a number. Readers
    drop a `./` at the start, so paths are written without.
    """
    taken: set[str] = set()
    keys = []
    for i, name in enumerate(names):
        folder, file = os.path.split("/".join(part for part in name.split("/") if part not in ("", ".")))
        stem = os.path.splitext(file)[0].replace(".", "_")
        key = f"{folder}/{stem}" if folder else stem
        while key in taken:  # also by a file that is called so
            key = f"{key}-{i:08d}"
        taken.add(key)
        keys.append(key)
    return keys
