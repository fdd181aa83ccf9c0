"""From decoded pixels to the network's input, on the device where it is wanted."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.pipeline import Decoded
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.recipe import Normalize
from lightning_gpuaug.sources import Source

Batch = tuple[torch.Tensor, torch.Tensor]

_MAX_LENT = 8
"""Batches that the host may run ahead of the GPU, each of which holds decoded pixels."""


@dataclass(frozen=True)
class Output:
    """What a finished batch looks like.

    Attributes:
        device: where images and targets are handed over.
        dtype: of the images: torch.float32, float16, bfloat16, or uint8 (raw pixels, not normalised).
        channels_last: memory format of the images; their shape is (N, 3, H, W) either way.
        indices: hand over sample indices instead of targets (prediction).
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    channels_last: bool = True
    indices: bool = False


class Finisher:
    """Flips, normalises, casts and lays out batches, and adds their targets, on the current CUDA stream.

    Args:
        source: gives the targets.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        output: what is wanted.
    """

    def __init__(self, source: Source, normalize: Normalize | None, output: Output) -> None:
        self._source, self._output = source, output
        self._normalization = normalize if output.dtype != torch.uint8 else None
        self._lent: deque[tuple[torch.cuda.Event, Decoded]] = deque()  # DALI memory that queued kernels still read
        weakref.finalize(self, _give_back, self._lent)  # also for a loader that nobody closes

    def __call__(self, indices: Indices, decoded: Decoded, flip: NDArray[np.bool_] | None) -> Batch:
        """Finish a batch.

        Args:
            indices: (N,) its samples.
            decoded: their pixels.
            flip: (N,) bool, which to mirror left to right; None for none.
        """
        mirrored = None if flip is None else self._to_device(torch.from_numpy(flip))
        images = self.images(decoded.images.to(self._output.device, non_blocking=True), mirrored)
        if decoded.images.is_cuda:
            self._lend(decoded)
        return images, self.targets(indices)

    def images(self, pixels: torch.Tensor, flip: torch.Tensor | None = None) -> torch.Tensor:
        """(N, H, W, 3) uint8 pixels on the output's device as the network's input."""
        n = self._normalization
        mean, std = (n.mean, n.std) if n is not None else (None, None)
        out = self._output
        return ops.normalize(pixels, mean, std, flip=flip, dtype=out.dtype, channels_last=out.channels_last)

    def targets(self, indices: Indices) -> torch.Tensor:
        """Targets of samples (or their indices, for prediction) on the output's device."""
        values = indices if self._output.indices else self._source.targets[indices]
        return self._to_device(torch.from_numpy(np.array(values)))

    def close(self) -> None:
        """Wait until nothing reads DALI's memory any more, and let it go."""
        _give_back(self._lent)

    def _to_device(self, values: torch.Tensor) -> torch.Tensor:
        if self._output.device.type != "cuda":
            return values.to(self._output.device)
        return values.pin_memory().to(self._output.device, non_blocking=True)

    def _lend(self, decoded: Decoded) -> None:
        """Keep DALI's memory until the kernel that reads it, just queued, has run."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._lent.append((event, decoded))
        if len(self._lent) > _MAX_LENT:
            self._lent[0][0].synchronize()
        while self._lent and self._lent[0][0].query():  # type: ignore[no-untyped-call]
            self._lent.popleft()


def _give_back(lent: deque[tuple[torch.cuda.Event, Decoded]]) -> None:
    if lent:
        lent[-1][0].synchronize()
        lent.clear()
