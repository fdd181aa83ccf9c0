"""The DALI graph that decodes."""

from __future__ import annotations

from typing import Any

from lightning_gpuaug.pipeline import inputs
from lightning_gpuaug.pipeline.decoding import Decoding
from lightning_gpuaug.pipeline.files import read_files
from lightning_gpuaug.pipeline.library import build
from lightning_gpuaug.recipe import EvalRecipe, Interpolation, TrainRecipe
from lightning_gpuaug.sources.base import Feed


def decoding_graph(decoding: Decoding) -> Any:
    """A built DALI pipeline that decodes the requests fed to it.

    Its inputs are "images"; "asked" and, unless packed, "target", as `inputs` lays them out. Its outputs are the
    pixels, and "asked" as it came in.
    """
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    recipe, gpu = decoding.recipe, decoding.device == "gpu"
    resample = recipe.resample if isinstance(recipe, TrainRecipe) else recipe
    hardware: dict[str, Any] = {"hw_decoder_load": decoding.hw_decoder_load} if gpu else {}
    pipe = Pipeline(
        batch_size=decoding.batch_size,
        num_threads=decoding.num_threads,
        device_id=decoding.device_id if gpu else None,
        prefetch_queue_depth=decoding.prefetch,
        exec_dynamic=True,
    )
    with pipe:
        asked = fn.external_source(name="asked", dtype=types.INT32, ndim=1)
        window = {"start": asked[inputs.START], "shape": asked[inputs.SIZE]}
        if decoding.feed == "pixels":
            images = fn.external_source(name="images", dtype=types.UINT8, ndim=3, no_copy=True)
            # Whole images go to the GPU: cutting windows out of them on the CPU, byte by byte, takes longer.
            pixels = fn.slice(images.gpu() if gpu else images, **window, axes=(0, 1))
            pixels = fn.reshape(pixels, layout="HWC")
        else:
            encoded = _encoded(decoding.feed)
            pixels = fn.decoders.image_slice(
                encoded,
                device="mixed" if gpu else "cpu",
                axis_names="HW",
                output_type=types.RGB,
                adjust_orientation=recipe.exif_orientation,
                **window,
                **hardware,
            )
        if not decoding.packed:
            target = fn.external_source(name="target", dtype=types.FLOAT, ndim=1)
            part: dict[str, Any] = {}
            if isinstance(recipe, EvalRecipe):
                part = {"roi_start": target[inputs.BEGIN], "roi_end": target[inputs.END]}
            pixels = fn.resize(
                pixels,
                size=target[inputs.OUTPUT],  # it may change by the epoch
                interp_type=_interp(resample.interpolation),
                antialias=resample.antialias,
                **part,
            )
        pipe.set_outputs(pixels, asked)
    return build(pipe)


def _encoded(feed: Feed) -> Any:
    """The encoded images: of files, or in memory."""
    from nvidia.dali import fn, types

    if feed == "paths":
        return read_files(fn.external_source(name="images", dtype=types.UINT8, ndim=1))
    return fn.external_source(name="images", dtype=types.UINT8, ndim=1, no_copy=True)


def _interp(name: Interpolation) -> Any:
    from nvidia.dali import types

    return {"nearest": types.INTERP_NN, "bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}[name]
