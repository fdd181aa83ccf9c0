"""What the decoding pipeline is asked for: a batch of images, and the window of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.sources.encoded import Encoded

Paths = NDArray[np.bytes_]
"""(N,) file names as zero-padded bytes, each with a zero byte at its end."""


@dataclass(frozen=True)
class Request:
    """A batch to decode.

    Attributes:
        images: N of them, at most the pipeline's batch size: file names (N,) as zero-padded bytes, or their bytes.
        start: (N, 2) int32, top and left of the window to decode, pixels. A window that is not inside of the image
            makes the batch fail before anything is allocated.
        size: (N, 2) int32, its height and width.
        part: what of the window to resize, as (begin, end), each (N, 2) float32 (y, x); None for all of it.
        image_size: height and width of the output, pixels; None for the pipeline's.
    """

    images: Paths | Encoded
    start: NDArray[np.int32]
    size: NDArray[np.int32]
    part: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    image_size: int | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.start)

    @property
    def bytes(self) -> int:
        """Bytes of all windows."""
        return int(self.size.astype(np.int64).prod(axis=1).sum()) * 3

    def row(self, i: int) -> Request:
        """The batch of one sample of this batch."""
        part = None if self.part is None else (self.part[0][i : i + 1], self.part[1][i : i + 1])
        images = self.images.row(i) if isinstance(self.images, Encoded) else self.images[i : i + 1]
        return Request(images, self.start[i : i + 1], self.size[i : i + 1], part, self.image_size)
