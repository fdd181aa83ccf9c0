"""The only door to NVIDIA DALI: batches of file paths or bytes in, uint8 batches out, in exactly the order asked for.

No DALI reader is used. Readers own an epoch, a shard and a shuffle, and each of these conflicts with what a training
loop needs (a sanity check, a limit, a resume). Here a batch is a matrix of paths, or the images' bytes. The pipeline
knows no epochs, and moving to another place in the data is forgetting a few batches, never a rebuild.

Files that DALI alone can read (`s3://`) it also reads without decoding them, for a source that hands over bytes.
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
from torch.utils.dlpack import from_dlpack, to_dlpack  # type: ignore[attr-defined]

from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.recipe import EvalRecipe, Interpolation, TrainRecipe
from lightning_gpuaug.sources.base import Feed
from lightning_gpuaug.sources.encoded import Encoded

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
        feed: what requests hold: file names, the bytes of encoded images, or pixels, which need no decoding.
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
    feed: Feed = "paths"


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

    @ranged("gpuaug.read")
    def start(self, request: Request) -> None:
        """Begin to decode a batch."""
        rows = len(request)
        images = request.images
        self._pipe.feed_input("images", _tensors(images) if isinstance(images, Encoded) else path_bytes(images))
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

    @ranged("gpuaug.decode")
    def pop(self) -> Decoded:
        """The oldest batch; on a GPU, ready on the current CUDA stream.

        Raises:
            DecodeError: an image of this batch (or of one behind it) could not be decoded.
        """
        ticket, request = self._inside.popleft()
        rows = len(request)
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
        # The bytes too: a copy of them to the GPU may not be over yet.
        return Decoded(from_dlpack(dense), (images, dense, request.images))

    def drain(self) -> None:
        """Forget the batches inside, so that the next one started is the next one popped."""
        popped = []
        while self._inside:
            popped.append(self.pop())
        if popped and self.decoding.device == "gpu":
            # Copies of the bytes to the GPU may not be over; then their memory would be filled anew too early.
            torch.cuda.current_stream(self.decoding.device_id).synchronize()

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._pipe = None
        self._inside.clear()  # behind the pipeline, which reads what these hold


class FileError(RuntimeError):
    """DALI could not read a file; the message says why, not always which."""


class FilePipeline:
    """A DALI pipeline that reads whole files, also `s3://`, and does nothing to them.

    Args:
        threads: files read at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._rows = 0
        self._pipe: Any = None

    def __call__(self, paths: NDArray[np.bytes_]) -> list[NDArray[np.uint8]]:
        """The bytes of files given by zero-padded names.

        Raises:
            FileError: one cannot be read. The pipeline is finished; build another.
        """
        if len(paths) > self._rows:
            self._rows = len(paths)
            self._pipe = reading_pipeline(self._rows, self._threads, prefetch=1)
        self._pipe.feed_input("paths", path_bytes(paths))
        try:
            (files,) = self._pipe.run()
        except RuntimeError as error:
            raise FileError(_last_line(str(error))) from error
        return [np.array(files[i], copy=True) for i in range(len(paths))]

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._pipe = None
        self._rows = 0


def reading_pipeline(batch_size: int, num_threads: int, prefetch: int) -> Any:
    """A built DALI pipeline that reads the files whose names `feed_input("paths", …)` gives, and nothing behind it.

    Args:
        batch_size: files of the largest batch.
        num_threads: files read at the same time.
        prefetch: batches read ahead.
    """
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    pipe = Pipeline(
        batch_size=batch_size,
        num_threads=num_threads,
        device_id=None,
        prefetch_queue_depth=prefetch,
        exec_dynamic=True,
    )
    with pipe:
        pipe.set_outputs(_read(fn.external_source(name="paths", dtype=types.UINT8, ndim=1)))
    pipe.build()
    return pipe


def _read(paths: Any) -> Any:
    """The files' bytes. Plain reads: for files of an image's size, mapping costs twice the CPU time (page faults)."""
    from nvidia.dali import fn

    return fn.io.file.read(paths, dont_use_mmap=True)


def _last_line(message: str) -> str:
    """What DALI says went wrong, of all that it says around it."""
    lines = [line.strip() for line in message.splitlines()]
    said = [line for line in lines if line and not line.startswith(("Current pipeline", "Critical error", "File "))]
    at = said.index("encountered:") + 1 if "encountered:" in said else len(said) - 1
    return " ".join(said[at:]) or "no reason given"


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


def _tensors(encoded: Encoded) -> list[Any]:
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
        images = fn.external_source(
            name="images",
            dtype=types.UINT8,
            ndim=3 if decoding.feed == "pixels" else 1,
            no_copy=decoding.feed != "paths",
        )
        ticket = fn.external_source(name="ticket", dtype=types.INT64, ndim=1)
        window = {
            "start": fn.external_source(name="start", dtype=types.INT32, ndim=1),
            "shape": fn.external_source(name="size", dtype=types.INT32, ndim=1),
        }
        if decoding.feed == "pixels":
            pixels = fn.slice(images, **window, axes=(0, 1))
            pixels = fn.reshape(pixels, layout="HWC")
            pixels = pixels.gpu() if gpu else pixels
        else:
            encoded = _read(images) if decoding.feed == "paths" else images
            pixels = fn.decoders.image_slice(
                encoded,
                device="mixed" if gpu else "cpu",
                axis_names="HW",
                output_type=types.RGB,
                adjust_orientation=recipe.exif_orientation,
                **window,
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
