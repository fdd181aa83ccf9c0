"""The records of several data files, as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lightning_gpuaug.sources.index import ShardIndex
from lightning_gpuaug.sources.labels import LabelColumn, merge
from lightning_gpuaug.sources.shards import shard_names


class Records:
    """The records of several data files, one after the other.

    Args:
        shards: the files' indexes.
        files: their paths.
    """

    def __init__(self, shards: Sequence[ShardIndex], files: Sequence[str]) -> None:
        counts = np.array([len(shard) for shard in shards], dtype=np.int64)
        self.bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self.shard_names = shard_names(files)
        self.file = np.repeat(np.arange(len(files), dtype=np.int32), counts)
        self.offset = np.concatenate([shard.offset for shard in shards])
        self.length = np.concatenate([shard.length for shard in shards])
        self.numbers = np.concatenate([shard.numbers for shard in shards])
        self.keys = [shard.keys for shard in shards]
        self.states = np.array([shard.state for shard in shards], dtype=np.int64)
        moved = [shard.cuts + np.array([begin, 0, 0]) for shard, begin in zip(shards, self.bounds[:-1], strict=True)]
        self.cuts = np.concatenate(moved).astype(np.int64)
        self.labels: LabelColumn = merge([shard.labels for shard in shards], files)
        self.skipped = [message for shard in shards for message in shard.skipped]
        self.skipped_count = sum(shard.skipped_count for shard in shards)
        self.reported = False

    def __len__(self) -> int:
        """Number of records."""
        return len(self.offset)

    def name(self, i: int, files: Sequence[str]) -> str:
        """`<file>:<key or number>` of record `i`, the file as in `files`."""
        shard = int(self.file[i])
        keys = self.keys[shard]
        return f"{files[shard]}:{self.numbers[i] if keys is None else keys[i - int(self.bounds[shard])]}"

    def names(self) -> Iterator[str]:
        """Names of all records."""
        for shard, keys in enumerate(self.keys):
            begin, end = int(self.bounds[shard]), int(self.bounds[shard + 1])
            for key in keys if keys is not None else self.numbers[begin:end].tolist():
                yield f"{self.shard_names[shard]}:{key}"
