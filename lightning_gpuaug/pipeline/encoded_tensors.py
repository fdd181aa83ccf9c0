"""Images in memory as DALI takes them, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from lightning_gpuaug.sources.encoded import Encoded


def encoded_tensors(encoded: Encoded) -> list[Any]:
    """The images as DALI tensors on the same memory, which each of them keeps alive."""
    from nvidia.dali.tensors import TensorCPU

    # What lies before, in and behind each image, in one call: one a tensor would cost a millisecond of Python a batch.
    ends = np.stack([encoded.start, encoded.start + encoded.length], axis=1).reshape(-1)
    parts = list(torch.split(encoded.data, np.diff(ends, prepend=0, append=len(encoded.data)).tolist())[1::2])
    if encoded.sizes is not None:
        shapes = encoded.sizes.tolist()
        parts = [
            part.view(h, w, 3) if len(part) else part.new_empty((0, 0, 3))
            for part, (h, w) in zip(parts, shapes, strict=True)
        ]
    return [TensorCPU(to_dlpack(part)) for part in parts]
