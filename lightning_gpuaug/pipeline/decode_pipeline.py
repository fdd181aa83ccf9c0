"""The pipeline that decodes: batches in, batches out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from lightning_gpuaug.pipeline import in_memory, inputs
from lightning_gpuaug.pipeline.decoding import Decoding
from lightning_gpuaug.pipeline.errors import DecodeError
from lightning_gpuaug.pipeline.graph import decoding_graph
from lightning_gpuaug.pipeline.request import Request
from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.sources.encoded import Encoded, path_bytes

Fed: TypeAlias = NDArray[np.uint8] | list[Any]
"""The images of a batch as the graph takes them."""


def fed(request: Request) -> Fed:
    """The images of a batch as the graph takes them; whoever has them keeps the request too."""
    images = request.images
    return in_memory.tensors(images) if isinstance(images, Encoded) else path_bytes(images)


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


class DecodePipeline:
    """A DALI pipeline that decodes the batches it is given, in order.

    Keep `decoding.prefetch` batches inside: DALI begins to work only when so many have been started.

    Args:
        decoding: what to build.
    """

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding
        self._pipe: Any = decoding_graph(decoding)
        self._inside: deque[tuple[NDArray[np.int32], Request]] = (
            deque()
        )  # (`asked`, batch) of all that is being worked on
        self._decoded: deque[tuple[Any, Any] | RuntimeError] = deque()  # what came out before it was popped
        self._ticket = 0
        self._running = False

    def __len__(self) -> int:
        """Batches started and not yet popped."""
        return len(self._inside)

    @ranged("gpuaug.read")
    def start(self, request: Request, images: Fed | None = None) -> None:
        """Begin to decode a batch.

        Args:
            request: the batch.
            images: `fed(request)`, if that was made before.
        """
        self._pipe.feed_input("images", fed(request) if images is None else images)
        asked = inputs.asked(request, self._ticket)
        self._pipe.feed_input("asked", asked)
        if not self.decoding.packed:
            side = request.image_size or self.decoding.image_size
            self._pipe.feed_input("target", inputs.target(request, side))
        self._inside.append((asked, request))
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
        if not self._decoded:
            self._take_out()
        asked, request = self._inside.popleft()  # only now: until then DALI may read its bytes
        decoded = self._decoded.popleft()
        if isinstance(decoded, RuntimeError):
            raise DecodeError(str(decoded)) from decoded
        images, came = decoded
        got = came.as_array()
        if got.tobytes() != asked.tobytes():
            raise RuntimeError(
                f"DALI returned batch {got[:, inputs.TICKET].tolist()} where batch {asked[0, inputs.TICKET]} of "
                f"{len(asked)} rows was due"
            )
        dense = images.as_reshaped_tensor([request.bytes]) if self.decoding.packed else images.as_tensor()
        # As a capsule: torch takes four times as long to ask an object for one. The default stream is 1 to DLPack.
        stream = self._stream()
        capsule = dense.__dlpack__(stream=None if stream is None else stream.cuda_stream or 1)
        # The bytes too: a copy of them to the GPU may not be over yet.
        return Decoded(from_dlpack(capsule), (images, dense, request.images))

    def rest(self) -> None:
        """Return when all batches inside are decoded: nothing is left to do until the next one is started."""
        while self._running and len(self._decoded) < len(self._inside):
            self._take_out()
            if isinstance(self._decoded[-1], RuntimeError):  # and nothing else will come out
                break
        stream = self._stream()
        if stream is not None:
            stream.synchronize()

    def _take_out(self) -> None:
        try:
            # Bound to the consumer's stream rather than synchronised with the host: DALI's memory then returns to
            # its pool behind the work queued on that stream, and the host never waits for pixels.
            self._decoded.append(self._pipe.outputs(cuda_stream=self._stream()))
        except RuntimeError as error:  # raised when its turn comes
            self._decoded.append(error)

    def _stream(self) -> torch.cuda.Stream | None:
        return torch.cuda.current_stream(self.decoding.device_id) if self.decoding.device == "gpu" else None

    def drain(self) -> None:
        """Forget the batches inside, so that the next one started is the next one popped."""
        popped = []
        while self._inside:
            popped.append(self.pop())
        stream = self._stream()
        if popped and stream is not None:
            # Copies of the bytes to the GPU may not be over; then their memory would be filled anew too early.
            stream.synchronize()

    def close(self) -> None:
        """Free the pipeline's threads and memory. A second call does nothing."""
        self._pipe = None
        self._decoded.clear()
        self._inside.clear()  # behind the pipeline, which reads what these hold
