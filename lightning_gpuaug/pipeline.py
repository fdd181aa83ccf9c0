"""The only door to NVIDIA DALI: batches of file paths in, uint8 batches out, in exactly the order asked for.

No DALI reader is used. Readers own an epoch, a shard and a shuffle, and each of these conflicts with what a training
loop needs (a sanity check, a limit, a resume). Here a batch is a matrix of paths. The pipeline knows no epochs, and
moving to another place in the data is forgetting a few batches, never a rebuild.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug.augment.draw import CROP_ATTEMPTS
from lightning_gpuaug.recipe import EvalRecipe, Interpolation, RandomResizedCrop, TrainRecipe
from lightning_gpuaug.sources.imagefile import MAX_PIXELS

Paths = NDArray[np.bytes_]


class DecodeError(RuntimeError):
    """DALI could not decode a batch. The pipeline that raised it is finished; build another."""


@dataclass(frozen=True)
class Decoding:
    """How a pipeline decodes: everything that is fixed when it is built.

    Attributes:
        recipe: the geometry: a random crop or a resize, interpolation, EXIF orientation.
        image_size: height and width of the output, pixels.
        batch_size: rows of the largest batch that will be asked for.
        device: "cpu" or "gpu", where decoding and resizing run.
        device_id: CUDA ordinal for "gpu".
        num_threads: CPU threads of the pipeline.
        prefetch: batches decoded ahead.
        hw_decoder_load: share of JPEGs for the hardware decoder, 0..1; "gpu" only.
    """

    recipe: TrainRecipe | EvalRecipe
    image_size: int
    batch_size: int
    device: Literal["cpu", "gpu"]
    device_id: int | None
    num_threads: int
    prefetch: int = 2
    hw_decoder_load: float = 1.0


@dataclass
class Decoded:
    """A decoded batch: a view of DALI's memory.

    Attributes:
        images: (N, H, W, 3) uint8 on the CPU or on `device_id`.
        owner: whatever keeps that memory alive; drop it only when no kernel reads `images` any more.
    """

    images: torch.Tensor
    owner: Any


@dataclass(frozen=True)
class Request:
    """A batch to decode.

    Attributes:
        paths: (N,) file names as zero-padded bytes, N at most the pipeline's batch size.
        crop: (N, 4, CROP_ATTEMPTS) float32 candidate windows, for a recipe that crops; else None.
    """

    paths: Paths
    crop: NDArray[np.float32] | None = None


class DecodePipeline:
    """A DALI pipeline that decodes the batches it is asked for, `prefetch` of them ahead, in order.

    Args:
        decoding: what to build.
        requests: called for the next batch to start on.
    """

    def __init__(self, decoding: Decoding, requests: Callable[[], Request]) -> None:
        self.decoding = decoding
        self._requests = requests
        self._pipe: Any = _build(decoding)
        self._inside: deque[tuple[int, int]] = deque()  # (ticket, rows) of every batch being worked on
        self._ticket = 0
        self._started = False

    def fill(self) -> None:
        """Start work on as many batches as are prefetched."""
        while len(self._inside) < self.decoding.prefetch:
            request = self._requests()
            rows = len(request.paths)
            names = np.ascontiguousarray(request.paths).view(np.uint8).reshape(rows, request.paths.dtype.itemsize)
            self._pipe.feed_input("paths", names)
            self._pipe.feed_input("ticket", np.full((rows, 1), self._ticket, dtype=np.int64))
            if request.crop is not None:
                self._pipe.feed_input("crop", request.crop)
            self._inside.append((self._ticket, rows))
            self._ticket += 1
            # DALI's first schedule_run starts `prefetch` batches at once, each later one a single batch.
            if self._started or len(self._inside) == self.decoding.prefetch:
                self._pipe.schedule_run()
                self._started = True

    def pop(self) -> Decoded:
        """The oldest batch; on a GPU, ready on the current CUDA stream.

        Raises:
            DecodeError: an image of this batch (or of one behind it) could not be decoded.
        """
        self.fill()
        return self._take()

    def drain(self) -> None:
        """Forget the batches inside, so that the next request is the next batch popped."""
        while self._inside:
            self._take()

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._inside.clear()
        self._pipe = None

    def _take(self) -> Decoded:
        ticket, rows = self._inside.popleft()
        stream = torch.cuda.current_stream(self.decoding.device_id) if self.decoding.device == "gpu" else None
        try:
            # Bound to the consumer's stream rather than synchronised with the host: DALI's memory then returns to
            # its pool behind the work queued on that stream, and the host never waits for pixels.
            images, tickets = self._pipe.outputs(cuda_stream=stream)
        except RuntimeError as error:
            raise DecodeError(str(error)) from error
        got = tickets.as_array().reshape(-1)
        if len(got) != rows or (got != ticket).any():
            raise RuntimeError(f"DALI returned batch {got.tolist()} where batch {ticket} of {rows} rows was due")
        dense = images.as_tensor()
        return Decoded(torch.from_dlpack(dense), (images, dense))


def release_memory() -> None:
    """Return DALI's pooled memory, which outlives its pipelines, to the system."""
    from nvidia.dali import backend

    backend.ReleaseUnusedMemory()


def _build(decoding: Decoding) -> Any:
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    recipe = decoding.recipe
    pipe = Pipeline(
        batch_size=decoding.batch_size,
        num_threads=decoding.num_threads,
        device_id=decoding.device_id if decoding.device == "gpu" else None,
        prefetch_queue_depth=decoding.prefetch,
        exec_dynamic=True,
    )
    with pipe:
        paths = fn.external_source(name="paths", dtype=types.UINT8, ndim=1)
        ticket = fn.external_source(name="ticket", dtype=types.INT64, ndim=1)
        # Plain reads: for files of an image's size, mapping costs twice the CPU time (page faults).
        encoded = fn.io.file.read(paths, dont_use_mmap=True)
        shape = fn.peek_image_shape(encoded, adjust_orientation=recipe.exif_orientation, dtype=types.FLOAT)
        extent = shape[:2]  # height, width
        if isinstance(recipe, TrainRecipe) and recipe.crop is not None:
            candidates = fn.external_source(name="crop", dtype=types.FLOAT, ndim=2)
            start, size = _random_window(extent, candidates, recipe.crop)
        else:
            start, size = extent * 0.0, extent
        # Rule out a decompression bomb before anything is allocated: a window outside of the image is refused by the
        # decoder, and the loader then finds the culprit by its header.
        bomb = fn.cast(extent[0] * extent[1] > float(MAX_PIXELS), dtype=types.FLOAT)
        pixels = fn.decoders.image_slice(
            encoded,
            device="mixed" if decoding.device == "gpu" else "cpu",
            start=fn.cast(start + bomb * 1e9, dtype=types.INT32),
            shape=fn.cast(size, dtype=types.INT32),
            axis_names="HW",
            output_type=types.RGB,
            adjust_orientation=recipe.exif_orientation,
            **({"hw_decoder_load": decoding.hw_decoder_load} if decoding.device == "gpu" else {}),
        )
        pipe.set_outputs(_resize(pixels, extent, decoding), ticket)
    pipe.build()
    return pipe


def _random_window(extent: Any, candidates: Any, crop: RandomResizedCrop) -> tuple[Any, Any]:
    """The first candidate window that fits the image, else torchvision's fallback; (top, left) and (height, width)."""
    from nvidia.dali import fn, math, types

    def number(condition: Any) -> Any:
        return fn.cast(condition, dtype=types.FLOAT)

    height, width = extent[0], extent[1]
    column = fn.reshape(extent, shape=[2, 1])
    sides = math.floor(candidates[:2] * math.sqrt(height * width) + 0.5)  # (2, CROP_ATTEMPTS)
    fits = fn.reductions.min(number(sides <= column) * number(sides >= 1.0), axes=0)
    rank = fits * types.Constant(np.arange(CROP_ATTEMPTS, 0, -1, dtype=np.float32))
    best = fn.reductions.max(rank)
    chosen = number(rank == best) * number(best > 0.0)  # one-hot, or all zero when nothing fits
    drawn = fn.reductions.sum(sides * fn.reshape(chosen, shape=[1, -1]), axes=1)
    place = fn.reductions.sum(candidates[2:] * fn.reshape(chosen, shape=[1, -1]), axes=1)
    # `place` < 1 can still round up to the whole free range in float32.
    drawn_start = math.min(math.floor(place * (extent - drawn + 1.0)), extent - drawn)

    # No candidate fits: the largest centred window within the ratio.
    narrow, wide = crop.ratio
    limits = fn.stack(math.floor(width / narrow + 0.5), math.floor(height * wide + 0.5))
    whole = math.max(math.min(extent, limits), 1.0)
    centred = math.floor((extent - whole) * 0.5)

    lucky = number(best > 0.0)
    return drawn_start * lucky + centred * (1.0 - lucky), drawn * lucky + whole * (1.0 - lucky)


def _resize(pixels: Any, extent: Any, decoding: Decoding) -> Any:
    """Resize to (image_size, image_size): all of `pixels` when training, shorter side and centre when evaluating."""
    from nvidia.dali import fn

    recipe, size = decoding.recipe, float(decoding.image_size)
    window = {}
    if isinstance(recipe, EvalRecipe):
        resample = recipe
        start, end = _centre_window(extent, size, shorter=float(round(size / recipe.crop_ratio)))
        window = {"roi_start": start, "roi_end": end}
    else:
        resample = recipe.crop or RandomResizedCrop()
    interp = _interp(resample.interpolation)
    return fn.resize(pixels, size=(size, size), interp_type=interp, antialias=resample.antialias, **window)


def _centre_window(extent: Any, size: float, shorter: float) -> tuple[Any, Any]:
    """The part of the image that torchvision's `Resize(shorter)` and `CenterCrop(size)` would show, in source pixels.

    One resampling of that part gives the pixels of the two steps without making those that the crop throws away.
    The integers are theirs: the longer side is truncated, an odd margin is rounded half to even.
    """
    from nvidia.dali import fn, math

    resized = math.floor(extent * (shorter / fn.reductions.min(extent)) + 1e-3)
    margin = resized - size
    half = math.floor(margin * 0.5)
    odd = (margin - half * 2.0) * (half - math.floor(half * 0.5) * 2.0)
    start = half + odd
    scale = extent / resized
    return start * scale, (start + size) * scale


def _interp(name: Interpolation) -> Any:
    from nvidia.dali import types

    return {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}[name]
