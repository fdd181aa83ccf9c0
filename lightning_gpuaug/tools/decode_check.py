"""Decoding an image as training would, and hearing what the decoder says of it.

A JPEG whose compressed data was overwritten decodes all the same: libjpeg fills the rest with grey, writes a line on
stderr, and returns success. No header, marker or exception tells, but that line does, so it is caught.
"""

from __future__ import annotations

import os
import re

import numpy as np

from lightning_gpuaug.bad_images import last_words
from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request
from lightning_gpuaug.recipe import TrainRecipe
from lightning_gpuaug.sources.imagefile import Problem

# libjpeg's warnings that mean other pixels than the encoder saw; it has harmless ones too (unknown JFIF revision, …).
_COMPLAINT = re.compile(
    rb"(Corrupt JPEG data[^\n]*|Premature end of JPEG[^\n]*|Unsupported marker type[^\n]*|"
    rb"Inconsistent progression[^\n]*)"
)
# Whole images as they are: nothing is resized.
_ONE = Decoding(
    TrainRecipe(), image_size=1, batch_size=1, device="cpu", device_id=None, num_threads=1, prefetch=1, packed=True
)


class DecodeCheck:
    """Decodes images one by one with DALI on the CPU. Takes over this process's stderr: for a process of its own."""

    def __init__(self) -> None:
        self._pipe: DecodePipeline | None = None
        self._said = os.memfd_create("gpuaug-decoder-messages")
        os.dup2(self._said, 2)
        # DALI reads files; here is one in memory.
        self._image = os.memfd_create("gpuaug-image")
        self._name = f"/proc/self/fd/{self._image}".encode()

    def problem(self, data: bytes, width: int, height: int) -> Problem | None:
        """What is wrong with an image whose header is in order.

        Args:
            data: the file.
            width: by its header, pixels.
            height: by its header, pixels.
        """
        os.ftruncate(self._image, 0)
        os.pwrite(self._image, data, 0)
        request = Request(
            np.array([self._name], dtype=f"S{len(self._name) + 1}"),
            start=np.zeros((1, 2), dtype=np.int32),
            size=np.array([[height, width]], dtype=np.int32),
        )
        self._hear()
        self._pipe = self._pipe or DecodePipeline(_ONE)
        try:
            self._pipe.start(request)
            self._pipe.pop()
        except DecodeError as error:
            self._pipe.close()
            self._pipe = None
            said = _COMPLAINT.search(self._hear())
            reason = said[1].decode("ascii", "replace") if said else last_words(error)
            return Problem("damaged", f"does not decode ({reason})")
        said = _COMPLAINT.search(self._hear())
        return Problem("damaged", f"decodes to wrong pixels ({said[1].decode('ascii', 'replace')})") if said else None

    def _hear(self) -> bytes:
        """What was written to stderr since the last call."""
        size = os.lseek(self._said, 0, os.SEEK_END)
        if size == 0:
            return b""
        message = os.pread(self._said, size, 0)
        os.ftruncate(self._said, 0)
        os.lseek(self._said, 0, os.SEEK_SET)
        return message
