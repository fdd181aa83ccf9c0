"""Images in memory as the graph takes them, in place: what is fed keeps that memory alive."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from lightning_gpuaug.sources.encoded import Encoded


def whole_buffer(encoded: Encoded) -> Any:
    """The bytes of all images, once for each of them: the graph cuts out of them what `ranges` says.

    One tensor a batch instead of one an image: those cost the worker more Python than all else that it does. The price
    is that DALI's threads copy the bytes, as they do when they read files.
    """
    from nvidia.dali.tensors import TensorCPU, TensorListCPU

    of_all = TensorCPU(to_dlpack(encoded.data))
    return TensorListCPU.broadcast(of_all, len(encoded))  # type: ignore[attr-defined]


def ranges(encoded: Encoded) -> NDArray[np.int64]:
    """(N, 2): where each image begins in the buffer, and its bytes."""
    return np.stack([encoded.start, encoded.length], axis=1)


def pixel_tensors(encoded: Encoded) -> list[Any]:
    """(H, W, 3) tensors of images that are pixels already: these are too large to be copied once more."""
    from nvidia.dali.tensors import TensorCPU

    assert encoded.sizes is not None
    # What lies before, in and behind each image, in one call: one a tensor would cost a millisecond of Python a batch.
    ends = np.stack([encoded.start, encoded.start + encoded.length], axis=1).reshape(-1)
    parts = torch.split(encoded.data, np.diff(ends, prepend=0, append=len(encoded.data)).tolist())[1::2]
    return [
        TensorCPU(to_dlpack(part.view(h, w, 3) if len(part) else part.new_empty((0, 0, 3))))
        for part, (h, w) in zip(parts, encoded.sizes.tolist(), strict=True)
    ]
