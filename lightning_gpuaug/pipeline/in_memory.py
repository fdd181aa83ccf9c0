"""Images in memory as the graph takes them, in place: what is fed keeps that memory alive."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from lightning_gpuaug.sources.encoded import Encoded


def tensors(encoded: Encoded) -> list[Any]:
    """The bytes of each image, or, of images that are pixels already, (H, W, 3) tensors.

    (One tensor a batch, of which `fn.slice` cuts the images, needs a third of a millisecond less Python. But that
    copies byte by byte, eight times as slow as a plain copy, in the threads that decode.)
    """
    from nvidia.dali.tensors import TensorCPU

    # What lies before, in and behind each image, in one call: one a tensor would cost a millisecond of Python a batch.
    ends = np.stack([encoded.start, encoded.start + encoded.length], axis=1).reshape(-1)
    parts = torch.split(encoded.data, np.diff(ends, prepend=0, append=len(encoded.data)).tolist())[1::2]
    if encoded.sizes is not None:
        sizes = encoded.sizes.tolist()
        parts = tuple(
            part.view(h, w, 3) if len(part) else part.new_empty((0, 0, 3))
            for part, (h, w) in zip(parts, sizes, strict=True)
        )
    return [TensorCPU(to_dlpack(part)) for part in parts]
