"""How to convert."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuaug.tools.shard_files import Format, OnBad

DEFAULT_SHARD_BYTES = 256 * 2**20


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
        overwrite: keep nothing of an earlier run or of another conversion under the same prefix.
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

    @property
    def most_bytes(self) -> int | None:
        """Bytes of the samples' files in a shard at most, the default filled in; None for any number."""
        return DEFAULT_SHARD_BYTES if self.shard_bytes is None and self.shard_images is None else self.shard_bytes
