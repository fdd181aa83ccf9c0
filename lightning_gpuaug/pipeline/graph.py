"""The DALI graph that decodes."""

from __future__ import annotations

from typing import Any

from lightning_gpuaug.pipeline.decoding import Decoding
from lightning_gpuaug.pipeline.files import read_files
from lightning_gpuaug.recipe import EvalRecipe, Interpolation, TrainRecipe


def decoding_graph(decoding: Decoding) -> Any:
    """A built DALI pipeline that decodes the requests fed to it.

    Its inputs are those of a `Request`: "images", "start", "size", for evaluation "begin" and "end" of `part`, unless
    packed "image_size" (N, 2) float32, and a "ticket" (N, 1) int64, which comes out again behind the pixels.
    """
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
            encoded = read_files(images) if decoding.feed == "paths" else images
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
