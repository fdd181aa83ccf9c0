"""The pipeline that decodes: batches in, batches out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from lightning_gpuaug.pipeline import in_memory, inputs
from lightning_gpuaug.pipeline.decoding import Decoding
from lightning_gpuaug.pipeline.errors import DecodeError
from lightning_gpuaug.pipeline.graph import decoding_graph
from lightning_gpuaug.pipeline.request import Paths, Request
from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.sources.encoded import Encoded, path_bytes


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
        self._ticket = 0
        self._running = False

    def __len__(self) -> int:
        """Batches started and not yet popped."""
        return len(self._inside)

    @ranged("gpuaug.read")
    def start(self, request: Request) -> None:
        """Begin to decode a batch."""
        self._feed_images(request.images)
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

    def _feed_images(self, images: Paths | Encoded) -> None:
        fed = in_memory.tensors(images) if isinstance(images, Encoded) else path_bytes(images)
        self._pipe.feed_input("images", fed)

    @ranged("gpuaug.decode")
    def pop(self) -> Decoded:
        """The oldest batch; on a GPU, ready on the current CUDA stream.

        Raises:
            DecodeError: an image of this batch (or of one behind it) could not be decoded.
        """
        asked, request = self._inside.popleft()
        stream = torch.cuda.current_stream(self.decoding.device_id) if self.decoding.device == "gpu" else None
        try:
            # Bound to the consumer's stream rather than synchronised with the host: DALI's memory then returns to
            # its pool behind the work queued on that stream, and the host never waits for pixels.
            images, came = self._pipe.outputs(cuda_stream=stream)
        except RuntimeError as error:
            raise DecodeError(str(error)) from error
        got = came.as_array()
        if got.tobytes() != asked.tobytes():
            raise RuntimeError(
                f"DALI returned batch {got[:, inputs.TICKET].tolist()} where batch {asked[0, inputs.TICKET]} of "
                f"{len(asked)} rows was due"
            )
        dense = images.as_reshaped_tensor([request.bytes]) if self.decoding.packed else images.as_tensor()
        # As a capsule: torch takes four times as long to ask an object for one. The default stream is 1 to DLPack.
        capsule = dense.__dlpack__(stream=None if stream is None else stream.cuda_stream or 1)
        # The bytes too: a copy of them to the GPU may not be over yet.
        return Decoded(from_dlpack(capsule), (images, dense, request.images))

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
