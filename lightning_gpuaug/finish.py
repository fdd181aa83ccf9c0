"""From decoded pixels to the network's input, on the device where it is wanted."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.augment.params import Params
from lightning_gpuaug.pipeline import Decoded, Decoding
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.prepare import Prepared
from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.recipe import EvalRecipe, TrainRecipe
from lightning_gpuaug.sources import Source
from lightning_gpuaug.sources.base import Targets

Images = torch.Tensor | list[torch.Tensor]
"""(N, 3, H, W), or with views one such batch a view."""
Batch = tuple[Images, torch.Tensor]

_ALIGNED = 16
"""Bytes; where arrays begin that travel together."""
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


def resizes_natively(recipe: TrainRecipe | EvalRecipe, decodes_on: str, device: torch.device) -> bool:
    """Whether windows leave DALI as decoded (`Decoding.packed`), for the native ops to resize on `device`.

    Training windows do where the GPU decodes, and always where several views are cut from each.
    """
    if not isinstance(recipe, TrainRecipe):
        return False
    return bool(recipe.views) or (decodes_on == "gpu" and ops.backend(device) == "native-cuda")


class Finisher:
    """Turns decoded pixels into batches on the current CUDA stream: one native op flips, normalises, casts, lays out.

    Where DALI decodes on the GPU, that op also resizes the training images, without a resized copy in between: on an
    H200 one kernel of 0.19 ms a batch of 256, where DALI's resize and `ops.normalize` were 17 kernels of 0.36 ms.

    Args:
        source: gives the targets.
        decoding: how the pixels come.
        output: what is wanted.
    """

    def __init__(self, source: Source, decoding: Decoding, output: Output) -> None:
        self._source, self._decoding, self._output = source, decoding, output
        normalize = decoding.recipe.normalize if output.dtype != torch.uint8 else None
        self._mean = normalize.mean if normalize is not None else None
        self._std = normalize.std if normalize is not None else None
        self._splits = decoding.recipe.splits if isinstance(decoding.recipe, TrainRecipe) else 1
        self._lent: deque[tuple[torch.cuda.Event, Decoded]] = deque()  # DALI memory that queued kernels still read
        weakref.finalize(self, _give_back, self._lent)  # also for a loader that nobody closes

    @ranged("gpuaug.augment")
    def __call__(self, indices: Indices, decoded: Decoded, prepared: Prepared) -> Batch:
        """Finish a batch.

        Args:
            indices: (N,) its samples.
            decoded: their pixels.
            prepared: what was asked of the pipeline, and which samples to mirror.
        """
        pixels = decoded.images.to(self._output.device, non_blocking=True)
        images: Images
        if prepared.views:
            images = self._views(pixels, prepared)
        elif prepared.params is not None:
            images = self._augmented(pixels, prepared, prepared.params)
        else:
            if self._decoding.packed:
                images = self._resized(pixels, prepared, prepared.flip, self._output.dtype)
            else:
                images = self.images(pixels, None if prepared.flip is None else self._to_device(prepared.flip)[0])
        if decoded.images.is_cuda:
            self._lend(decoded)
        targets = self.targets(indices, prepared.targets)
        if prepared.params is not None and prepared.params.share is not None:
            targets = self._mixed(targets, self._to_device(prepared.params.share)[0])
        return images, targets

    def images(self, pixels: torch.Tensor, flip: torch.Tensor | None = None) -> torch.Tensor:
        """(N, H, W, 3) uint8 pixels on the output's device as the network's input."""
        out = self._output
        return ops.normalize(pixels, self._mean, self._std, flip=flip, dtype=out.dtype, channels_last=out.channels_last)

    def resized(self, decoded: Decoded, prepared: Prepared) -> torch.Tensor:
        """The windows of a packed batch, resized and nothing else: uint8 (N, 3, H, W) in channels_last memory."""
        pixels = decoded.images.to(self._output.device, non_blocking=True)
        images = self._resized(pixels, prepared, None, torch.uint8, plain=True)
        if decoded.images.is_cuda:
            self._lend(decoded)
        return images

    def _augmented(self, pixels: torch.Tensor, prepared: Prepared, params: Params) -> torch.Tensor:
        """Pixels after their samples' programs, as the network's input."""
        if self._decoding.packed:
            pixels = self._resized(pixels, prepared, None, torch.uint8, plain=True).permute(0, 2, 3, 1)
        if self._splits > 1:
            pixels = pixels.repeat(self._splits, 1, 1, 1)
        normalize, out = self._decoding.recipe.normalize, self._output
        return ops.augment(
            pixels,
            self._to_device(params.records)[0],
            normalize.mean if normalize is not None else None,
            normalize.std if normalize is not None else None,
            dtype=out.dtype,
            channels_last=out.channels_last,
            chains=params.chains,
        )

    def _views(self, pixels: torch.Tensor, prepared: Prepared) -> list[torch.Tensor]:
        """Every view of a batch: its window of the decoded one, resized, then its program."""
        normalize, out = self._decoding.recipe.normalize, self._output
        offsets, sizes = self._to_device(*_layout(prepared))
        images: list[torch.Tensor] = []
        for kind in prepared.views:
            of_kind = ops.augment_packed(
                pixels,
                offsets.repeat(kind.count),
                sizes.repeat(kind.count, 1),
                self._to_device(kind.params.records)[0],
                (kind.image_size, kind.image_size),
                normalize.mean if normalize is not None else None,
                normalize.std if normalize is not None else None,
                dtype=out.dtype,
                channels_last=out.channels_last,
                chains=kind.params.chains,
                mix=False,
            )
            images += torch.split(of_kind, len(sizes))
        return images

    def _mixed(self, targets: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """(N, C) float32 targets of mixed images: each sample's share of its own label, the rest of its partner's."""
        recipe = self._decoding.recipe
        assert isinstance(recipe, TrainRecipe)
        smoothing = recipe.mix.label_smoothing if recipe.mix is not None else 0.0
        floor = 0.5 * smoothing  # a multi-label target moves towards 1/2
        if targets.ndim == 1:
            targets = torch.nn.functional.one_hot(targets, self._source.num_classes)
            floor = smoothing / self._source.num_classes
        targets = targets.to(torch.float32) * (1.0 - smoothing) + floor
        own = share[:, None]
        return targets * own + targets.flip(0) * (1.0 - own)

    def _resized(
        self,
        pixels: torch.Tensor,
        prepared: Prepared,
        flip: NDArray[np.bool_] | None,
        dtype: torch.dtype,
        plain: bool = False,
    ) -> torch.Tensor:
        """Windows that lie end to end as the network's input; or, plain, as pixels in NHWC memory."""
        recipe, out = self._decoding.recipe, self._output
        size = prepared.request.image_size or self._decoding.image_size
        resample = recipe.resample if isinstance(recipe, TrainRecipe) else recipe
        offsets, sizes, *mirrored = self._to_device(*_layout(prepared), *([] if flip is None else [flip]))
        return ops.resize_packed(
            pixels,
            offsets,
            sizes,
            (size, size),
            self._mean,
            self._std,
            flip=mirrored[0] if mirrored else None,
            dtype=dtype,
            channels_last=plain or out.channels_last,
            interpolation=resample.interpolation,
            antialias=resample.antialias,
        )

    def targets(self, indices: Indices, read: Targets | None = None) -> torch.Tensor:
        """Targets of samples (or their indices, for prediction) on the output's device, once a split.

        Args:
            indices: (N,) samples.
            read: their targets, where they were read with the images.
        """
        values = indices if self._output.indices else self._source.targets[indices] if read is None else read
        return self._to_device(np.concatenate([np.array(values)] * self._splits))[0]

    def close(self) -> None:
        """Wait until nothing reads DALI's memory any more, and let it go."""
        _give_back(self._lent)

    def _to_device(self, *arrays: NDArray[Any]) -> list[torch.Tensor]:
        """The arrays on the output's device, in one copy."""
        tensors = [torch.from_numpy(array) for array in arrays]
        if self._output.device.type != "cuda":
            return [tensor.to(self._output.device) for tensor in tensors]
        begin = np.cumsum([0, *(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)]).tolist()
        pinned = torch.empty(begin[-1], dtype=torch.uint8, pin_memory=True)
        for tensor, at, array in zip(tensors, begin, arrays, strict=False):
            pinned[at : at + array.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
        there = pinned.to(self._output.device, non_blocking=True)
        return [
            there[at : at + array.nbytes].view(tensor.dtype).view(tensor.shape)
            for tensor, at, array in zip(tensors, begin, arrays, strict=False)
        ]

    def _lend(self, decoded: Decoded) -> None:
        """Keep DALI's memory until the kernel that reads it, just queued, has run."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._lent.append((event, decoded))
        if len(self._lent) > _MAX_LENT:
            self._lent[0][0].synchronize()
        while self._lent and self._lent[0][0].query():  # type: ignore[no-untyped-call]
            self._lent.popleft()


def _layout(prepared: Prepared) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each window begins in a packed batch, (N,), and its height and width, (N, 2)."""
    sizes = prepared.request.size
    lengths = sizes.astype(np.int64).prod(axis=1) * 3
    return np.cumsum(lengths) - lengths, sizes


def _give_back(lent: deque[tuple[torch.cuda.Event, Decoded]]) -> None:
    if lent:
        lent[-1][0].synchronize()
        lent.clear()
