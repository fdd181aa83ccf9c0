"""Which share of the JPEGs the GPU's hardware decoder should take, measured on this machine and this data."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np
import torch

from lightning_gpuaug.devices import has_jpeg_decoder
from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request, release_memory
from lightning_gpuaug.prepare import Preparer
from lightning_gpuaug.sources import Source

SHARES = (1.0, 0.75, 0.5)
"""Candidates. Published optima: 1.0 on H200, 0.65 to 0.75 on A100; without a hardware decoder all are the same."""

_GOOD_ENOUGH = 0.6
"""Of the best rate: the largest share that reaches it is taken. A smaller share may be faster on an idle GPU, but it
decodes its part on the multiprocessors that training uses. The bound is a judgement: what a share costs training has
not been measured (0.75 and 1.0 were alike for resnet18 in a plain loop on an H200, 11.8 and 11.9 k img/s)."""

_BATCHES = 12
_WARM_UP = 4
_measured: dict[tuple[object, ...], float] = {}


def threads_enough(device_id: int | None) -> int:
    """CPU threads beyond which a pipeline that decodes on the GPU gains nothing.

    Where the GPU has a hardware JPEG decoder (compute capability 8.0, 9.0, 10.x), the CPU only hands it the files. On
    an H200, 4 threads decoded 23.5 k img/s, and resnet18 in a Trainer ran at 0.94, 0.93 and 0.87 of its synthetic rate
    with 2, 4 and 16 threads; why more threads slow training is not known. Other GPUs leave JPEG's entropy decoding to
    the CPU.
    """
    return 4 if torch.cuda.is_available() and has_jpeg_engines(device_id) else 16


def has_jpeg_engines(device_id: int | None) -> bool:
    """Whether the GPU has a hardware JPEG decoder."""
    return has_jpeg_decoder(torch.cuda.get_device_capability(device_id))


def best_hw_decoder_load(decoding: Decoding, source: Source) -> Decoding:
    """`decoding` with the largest of `SHARES` that is about as fast as any of them.

    The first call of a process tries them, until one is slower than another before it, which takes a second or two.
    Data too small to matter, and decoding on the CPU, are left as they are.
    """
    samples = decoding.batch_size * (_BATCHES + _WARM_UP)
    if decoding.device != "gpu" or getattr(source, "cached", False) or source.feed == "pixels" or len(source) < samples:
        return decoding
    card = torch.cuda.get_device_name(decoding.device_id)
    key = (card, decoding.num_threads, decoding.batch_size, decoding.image_size, type(decoding.recipe))
    if key not in _measured:
        _measured[key] = _best_share(decoding, source)
    return dataclasses.replace(decoding, hw_decoder_load=_measured[key])


def _best_share(decoding: Decoding, source: Source) -> float:
    prepare = Preparer(source, decoding.recipe, decoding.image_size, pinned=True)
    batches = np.arange((_WARM_UP + _BATCHES) * decoding.batch_size).reshape(-1, decoding.batch_size)
    requests = [prepare(batch, 0, 0).request for batch in batches]  # once, for this is not the decoder's work
    prepare.close()
    rates: dict[float, float] = {}
    for share in SHARES:
        rates[share] = _images_per_second(decoding, requests, share)
        if rates[share] < max(rates.values()):
            break  # less for the engine is slower already
    release_memory()  # a share for the multiprocessors takes 100 MiB of page-locked memory that 1.0 does not need
    # What the hardware decoder does not take costs the training step its multiprocessors.
    return next(share for share, rate in rates.items() if rate >= _GOOD_ENOUGH * max(rates.values()))


def _images_per_second(decoding: Decoding, requests: list[Request], share: float) -> float:
    """Rate at which a pipeline with this share decodes the requests; 0 if an image is bad."""
    batches = itertools.cycle(requests)
    pipe = DecodePipeline(dataclasses.replace(decoding, hw_decoder_load=share))

    def step() -> None:
        while len(pipe) < decoding.prefetch:
            pipe.start(next(batches))
        pipe.pop()

    try:
        for _ in range(_WARM_UP):
            step()
        torch.cuda.synchronize(decoding.device_id)
        begin = time.perf_counter()
        for _ in range(_BATCHES):
            step()
        torch.cuda.synchronize(decoding.device_id)
        return _BATCHES * decoding.batch_size / (time.perf_counter() - begin)
    except DecodeError:
        return 0.0
    finally:
        pipe.close()
