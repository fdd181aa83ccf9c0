"""How a pipeline decodes: everything that is fixed when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning_gpuaug.recipe import EvalRecipe, TrainRecipe
from lightning_gpuaug.sources.base import Feed


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
