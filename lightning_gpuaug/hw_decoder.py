"""Which share of the JPEGs the GPU's hardware decoder should take, measured on this machine and this data."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import numpy as np
import torch

from lightning_gpuaug.augment.draw import draw
from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request
from lightning_gpuaug.recipe import TrainRecipe
from lightning_gpuaug.sources import Source

SHARES = (1.0, 0.75, 0.5)
"""Candidates. Published optima: 1.0 on H200, 0.65 to 0.75 on A100; without a hardware decoder all are the same."""

_BATCHES = 12
_WARM_UP = 4
_measured: dict[tuple[object, ...], float] = {}


def best_hw_decoder_load(decoding: Decoding, source: Source) -> Decoding:
    """`decoding` with the fastest of `SHARES`, tried for a second or two the first time in a process.

    Data too small to matter, and decoding on the CPU, are left as they are.
    """
    samples = decoding.batch_size * (_BATCHES + _WARM_UP)
    if decoding.device != "gpu" or getattr(source, "cached", False) or len(source) < samples:
        return decoding
    card = torch.cuda.get_device_name(decoding.device_id)
    key = (card, decoding.num_threads, decoding.batch_size, decoding.image_size, type(decoding.recipe))
    if key not in _measured:
        _measured[key] = max(SHARES, key=lambda share: _images_per_second(decoding, source, share))
    return dataclasses.replace(decoding, hw_decoder_load=_measured[key])


def _images_per_second(decoding: Decoding, source: Source, share: float) -> float:
    """Rate at which a pipeline with this share decodes the data's first samples; 0 if one of them is bad."""
    position = itertools.count()

    def request() -> Request:
        start = next(position) * decoding.batch_size % (len(source) - decoding.batch_size + 1)
        indices = np.arange(start, start + decoding.batch_size)
        paths = np.array([os.fsencode(source.paths[i]) + b"\0" for i in indices])
        crop = draw(decoding.recipe, indices, 0, 0).crop if isinstance(decoding.recipe, TrainRecipe) else None
        return Request(paths, crop)

    pipe = DecodePipeline(dataclasses.replace(decoding, hw_decoder_load=share), request)
    try:
        for _ in range(_WARM_UP):
            pipe.pop()
        torch.cuda.synchronize(decoding.device_id)
        begin = time.perf_counter()
        for _ in range(_BATCHES):
            pipe.pop()
        torch.cuda.synchronize(decoding.device_id)
        return _BATCHES * decoding.batch_size / (time.perf_counter() - begin)
    except DecodeError:
        return 0.0
    finally:
        pipe.close()
