"""Images in memory as the graph takes them, in place: whoever feeds them keeps that memory as long as DALI reads it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightning_gpuaug.sources.encoded import Encoded


def tensors(encoded: Encoded) -> list[Any]:
    """The bytes of each image, or, of images that are pixels already, (rows, W, 3) tensors.

    (One tensor a batch, of which `fn.slice` cuts the images, needs a third of a millisecond less Python. But that
    copies byte by byte, eight times as slow as a plain copy, in the threads that decode.)
    """
    from nvidia.dali.tensors import TensorCPU

    data = encoded.data.numpy().data  # slices of a memoryview cost half of what NumPy's or torch's do
    start, end = encoded.start, encoded.start + encoded.length
    if len(start) and not (start.min() >= 0 and encoded.length.min() >= 0 and end.max() <= len(data)):
        row = int(np.flatnonzero((start < 0) | (encoded.length < 0) | (end > len(data)))[0])
        raise ValueError(
            f"image {row} must lie in 0..{len(data)}, the bytes of its batch, got {start[row]}..{end[row]}"
        )
    parts = [data[at:to] for at, to in zip(start.tolist(), end.tolist(), strict=True)]
    if encoded.sizes is not None:
        there = encoded.sizes[:, 0] if encoded.rows is None else encoded.rows[:, 1]
        sizes = zip(there.tolist(), encoded.sizes[:, 1].tolist(), strict=True)
        parts = [
            part.cast("B", (h, w, 3)) if len(part) else np.empty((0, 0, 3), dtype=np.uint8).data
            for part, (h, w) in zip(parts, sizes, strict=True)
        ]
    return [TensorCPU(part) for part in parts]
