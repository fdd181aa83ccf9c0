"""Decoding an image as training would, and hearing what the decoder says of it.

A JPEG whose compressed data was overwritten decodes all the same: libjpeg fills the rest with grey, writes a line on
stderr, and returns success. No header, marker or exception tells, but that line does, so it is caught.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request, reason_of
from lightning_gpuaug.recipe import TrainRecipe
from lightning_gpuaug.sources.imagefile import Problem

# libjpeg's warnings that mean other pixels than the encoder saw; it has harmless ones too (unknown JFIF revision, …).
_COMPLAINT = re.compile(
    rb"(Corrupt JPEG data[^\n]*|Premature end of JPEG[^\n]*|Unsupported marker type[^\n]*|"
    rb"Inconsistent progression[^\n]*)"
)
BATCH = 16
"""Images decoded together: DALI spends milliseconds on a batch, however small."""
BATCH_PIXELS = 64_000_000
"""Of all images of a batch, which are in memory together."""

# Whole images as they are: nothing is resized.
_DECODING = Decoding(
    TrainRecipe(), image_size=1, batch_size=BATCH, device="cpu", device_id=None, num_threads=1, prefetch=1, packed=True
)


class Whole(NamedTuple):
    """An image file whose header is in order.

    Attributes:
        data: the file.
        width: by its header, pixels.
        height: by its header, pixels.
    """

    data: bytes
    width: int
    height: int


class DecodeCheck:
    """Decodes images with DALI on the CPU. Takes over this process's stderr: for a process of its own."""

    def __init__(self) -> None:
        self._pipe: DecodePipeline | None = None
        self._said = os.memfd_create("gpuaug-decoder-messages")
        os.dup2(self._said, 2)
        # DALI reads files; here are some in memory.
        self._files = [os.memfd_create(f"gpuaug-image{i}") for i in range(BATCH)]
        names = [f"/proc/self/fd/{file}".encode() for file in self._files]
        self._paths = np.array(names, dtype=f"S{max(map(len, names)) + 1}")

    def problems(self, images: Sequence[Whole]) -> dict[int, Problem]:
        """What is wrong with some of at most `BATCH` images, by position."""
        together = self._decode(images)
        if together is None:
            return {}
        if len(images) == 1:
            return {0: together}
        alone = {i: self._decode([image]) for i, image in enumerate(images)}
        return {i: problem for i, problem in alone.items() if problem is not None}

    def _decode(self, images: Sequence[Whole]) -> Problem | None:
        """What goes wrong when these images are decoded."""
        for file, image in zip(self._files, images, strict=False):
            os.ftruncate(file, 0)
            os.pwrite(file, image.data, 0)
        size = np.array([(image.height, image.width) for image in images], dtype=np.int32)
        request = Request(self._paths[: len(images)], start=np.zeros_like(size), size=size)
        self._hear()
        self._pipe = self._pipe or DecodePipeline(_DECODING)
        try:
            self._pipe.start(request)
            self._pipe.pop()
        except DecodeError as error:
            self._pipe.close()
            self._pipe = None
            return Problem("damaged", f"does not decode ({self._complaint() or reason_of(error)})")
        complaint = self._complaint()
        return Problem("damaged", f"decodes to wrong pixels ({complaint})") if complaint else None

    def _complaint(self) -> str:
        """What the decoder has said of damage since it was last heard; empty if nothing."""
        found = _COMPLAINT.search(self._hear())
        return found[1].decode("ascii", "replace") if found else ""

    def _hear(self) -> bytes:
        """What was written to stderr since the last call."""
        size = os.lseek(self._said, 0, os.SEEK_END)
        if size == 0:
            return b""
        message = os.pread(self._said, size, 0)
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        return message
