"""The samples of each shard of a conversion, and the state of the files that they are made from."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources import Source
from lightning_gpuaug.sources.encoded import file_states, fixed_paths
from lightning_gpuaug.tools.convert_options import ConvertOptions
from lightning_gpuaug.tools.pieces import Piece
from lightning_gpuaug.tools.shard_files import ShardSample, ShardTask
from lightning_gpuaug.tools.shard_plan import cut, keys_of, sample_order, shard_names

_STAT_THREADS = 16
_STATS_AT_ONCE = 256


class ShardLayout:
    """Which samples go into which shard. Tasks are made as they are needed: they hold a few hundred bytes a sample.

    Args:
        source: the samples, whose files' sizes and times of change are taken now.
        folder: of the shards.
        options: of the conversion.
    """

    def __init__(self, source: Source, folder: Path, options: ConvertOptions) -> None:
        self._states = _file_states(fixed_paths(source.paths))
        self._source, self._folder, self._options = source, folder, options
        order = sample_order(len(source), options.shuffle)
        self._parts = cut(order, self._states[:, 0], options.shard_images, options.most_bytes)
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
            inputs=self.inputs(shard),
        )

    def inputs(self, shard: int) -> str:
        """By which the files of a shard are known again: a hash of their names, sizes and times of change, in order."""
        digest, part = hashlib.sha256(), self._parts[shard]
        for i, (size, changed) in zip(part.tolist(), self._states[part].tolist(), strict=True):
            digest.update(f"{self._source.sample_name(i)}\0{size}\0{changed}\0".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:32]

    def _sample(self, i: int) -> ShardSample:
        source = self._source
        label, classes = int(source.targets[i]), source.classes
        name = classes[label] if classes is not None else ""
        return ShardSample(source.sample_name(i), self._keys[i], Piece(source.paths[i]), label, name)


def _file_states(paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.int64]:
    """int64 (N, 2): bytes and time of change (ns) of each file; 0 where there is none, as reading will tell."""
    parts = np.array_split(paths, -(-len(paths) // _STATS_AT_ONCE))
    with ThreadPoolExecutor(_STAT_THREADS) as pool:  # they wait for a disk, or for a network
        states = np.concatenate(list(pool.map(file_states, parts)))
    return np.where(states[:, :1] < 0, 0, states)
