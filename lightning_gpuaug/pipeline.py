"""The only door to NVIDIA DALI: batches of file paths in, uint8 batches out, in exactly the order asked for.

No DALI reader is used. Readers own an epoch, a shard and a shuffle, and each of these conflicts with what a training
loop needs (a sanity check, a limit, a resume). Here a batch is a matrix of paths. The pipeline knows no epochs, and
moving to another place in the data is forgetting a few batches, never a rebuild.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from lightning_gpuaug.recipe import EvalRecipe, Interpolation, TrainRecipe

Paths = NDArray[np.bytes_]


class DecodeError(RuntimeError):
    """DALI could not decode a batch. The pipeline that raised it is finished; build another."""


@dataclass(frozen=True)
class Decoding:
    """How a pipeline decodes: everything that is fixed when it is built.

    Attributes:
        recipe: the geometry: a random crop or a resize, interpolation, EXIF orientation.
        image_size: height and width of the output, pixels, where a request does not say.
        batch_size: rows of the largest batch that will be asked for.
        device: "cpu" or "gpu", where decoding and resizing run.
        device_id: CUDA ordinal for "gpu".
        num_threads: CPU threads of the pipeline.
        prefetch: batches decoded ahead.
        hw_decoder_load: share of JPEGs for the hardware decoder, 0..1; "gpu" only.
        packed: leave the resizing to the native ops: hand over the decoded windows as they are, end to end.
    """

    recipe: TrainRecipe | EvalRecipe
    image_size: int
    batch_size: int
    device: Literal["cpu", "gpu"]
    device_id: int | None
    num_threads: int
    prefetch: int = 2
    hw_decoder_load: float = 1.0
    packed: bool = False


@dataclass
class Decoded:
    """A decoded batch: a view of DALI's memory.

    Attributes:
        images: uint8 on the CPU or on `device_id`: (N, H, W, 3) of the size asked for, or, packed, the bytes of all
            windows (height × width × 3 each) end to end.
        owner: whatever keeps that memory alive; drop it only when no kernel reads `images` any more.
    """

    images: torch.Tensor
    owner: Any


@dataclass(frozen=True)
class Request:
    """A batch to decode.

    Attributes:
        paths: (N,) file names as zero-padded bytes, N at most the pipeline's batch size.
        start: (N, 2) int32, top and left of the window to decode, pixels. A window that is not inside of the image
            makes the batch fail before anything is allocated.
        size: (N, 2) int32, its height and width.
        part: what of the window to resize, as (begin, end), each (N, 2) float32 (y, x); None for all of it.
        image_size: height and width of the output, pixels; None for the pipeline's.
    """

    paths: Paths
    start: NDArray[np.int32]
    size: NDArray[np.int32]
    part: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    image_size: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all windows."""
        return int(self.size.astype(np.int64).prod(axis=1).sum()) * 3

    def row(self, i: int) -> Request:
        """The batch of one sample of this batch."""
        part = None if self.part is None else (self.part[0][i : i + 1], self.part[1][i : i + 1])
        return Request(self.paths[i : i + 1], self.start[i : i + 1], self.size[i : i + 1], part, self.image_size)


class DecodePipeline:
    """A DALI pipeline that decodes the batches it is given, in order.

    Keep `decoding.prefetch` batches inside: DALI begins to work only when so many have been started.

    Args:
        decoding: what to build.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self._pipe: Any = _build(decoding)
        self._inside: deque[tuple[int, Request]] = deque()  # (ticket, batch) of all that is being worked on
        self._ticket = 0
        self._running = False

    def __len__(self) -> int:
        """Batches started and not yet popped."""
        return len(self._inside)

    def start(self, request: Request) -> None:
        """Begin to decode a batch."""
        rows = len(request.paths)
        self._pipe.feed_input("paths", path_bytes(request.paths))
        self._pipe.feed_input("ticket", np.full((rows, 1), self._ticket, dtype=np.int64))
        self._pipe.feed_input("start", request.start)
        self._pipe.feed_input("size", request.size)
        if not self.decoding.packed:
            side = request.image_size or self.decoding.image_size
            self._pipe.feed_input("image_size", np.full((rows, 2), side, dtype=np.float32))
        if request.part is not None:
            self._pipe.feed_input("begin", request.part[0])
            self._pipe.feed_input("end", request.part[1])
        self._inside.append((self._ticket, request))
        self._ticket += 1
        # DALI's first schedule_run takes `prefetch` batches at once, each later one a single batch.
        if self._running or len(self._inside) == self.decoding.prefetch:
            self._pipe.schedule_run()
            self._running = True

    def pop(self) -> Decoded:
        """The oldest batch; on a GPU, ready on the current CUDA stream.

        Raises:
            DecodeError: an image of this batch (or of one behind it) could not be decoded.
        """
        ticket, request = self._inside.popleft()
        rows = len(request.paths)
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
        dense = images.as_reshaped_tensor([request.bytes]) if self.decoding.packed else images.as_tensor()
        return Decoded(from_dlpack(dense), (images, dense))

    def drain(self) -> None:
        """Forget the batches inside, so that the next one started is the next one popped."""
        while self._inside:
            self.pop()

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._inside.clear()
        self._pipe = None


def require_dali() -> None:
    """Check, without importing it, that DALI is installed.

    Raises:
        RuntimeError: it is not; says how to install it.
    """
    if "nvidia.dali" in sys.modules:
        return
    try:
        found = importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # no package `nvidia` at all
        found = False
    if not found:
        raise RuntimeError(
            "NVIDIA DALI is not installed: pip install nvidia-dali-cuda120 (or nvidia-dali-cuda130), also without a GPU"
        )


def release_memory() -> None:
    """Return DALI's pooled memory, which outlives its pipelines, to the system."""
    if "nvidia.dali" not in sys.modules:
        return
    from nvidia.dali import backend

    backend.ReleaseUnusedMemory()  # type: ignore[attr-defined]


def path_bytes(paths: Paths) -> NDArray[np.uint8]:
    """(N, L) uint8 view of (N,) file names, each row ending in a zero byte."""
    return np.ascontiguousarray(paths).view(np.uint8).reshape(len(paths), paths.dtype.itemsize)


def _build(decoding: Decoding) -> Any:
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    recipe, gpu = decoding.recipe, decoding.device == "gpu"
    resample = recipe.resample if isinstance(recipe, TrainRecipe) else recipe
    hardware: dict[str, Any] = {"hw_decoder_load": decoding.hw_decoder_load} if gpu else {}
    part: dict[str, Any] = {}
    pipe = Pipeline(
        batch_size=decoding.batch_size,
        num_threads=decoding.num_threads,
        device_id=decoding.device_id if gpu else None,
        prefetch_queue_depth=decoding.prefetch,
        exec_dynamic=True,
    )
    with pipe:
        paths = fn.external_source(name="paths", dtype=types.UINT8, ndim=1)
        ticket = fn.external_source(name="ticket", dtype=types.INT64, ndim=1)
        # Plain reads: for files of an image's size, mapping costs twice the CPU time (page faults).
        encoded = fn.io.file.read(paths, dont_use_mmap=True)
        pixels = fn.decoders.image_slice(
            encoded,
            device="mixed" if gpu else "cpu",
            start=fn.external_source(name="start", dtype=types.INT32, ndim=1),
            shape=fn.external_source(name="size", dtype=types.INT32, ndim=1),
            axis_names="HW",
            output_type=types.RGB,
            adjust_orientation=recipe.exif_orientation,
            **hardware,
        )
        if isinstance(recipe, EvalRecipe):
            part["roi_start"] = fn.external_source(name="begin", dtype=types.FLOAT, ndim=1)
            part["roi_end"] = fn.external_source(name="end", dtype=types.FLOAT, ndim=1)
        if not decoding.packed:
            pixels = fn.resize(
                pixels,
                size=fn.external_source(name="image_size", dtype=types.FLOAT, ndim=1),  # it may change by the epoch
                interp_type=_interp(resample.interpolation),
                antialias=resample.antialias,
                **part,
            )
        pipe.set_outputs(pixels, ticket)
    pipe.build()
    return pipe


def _interp(name: Interpolation) -> Any:
    from nvidia.dali import types

    return {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}[name]
