"""From sample indices to what the pipeline needs: file names or bytes, and windows."""

from __future__ import annotations

import io
import os
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.augment.draw import draw
from lightning_gpuaug.augment.keys import keys_of
from lightning_gpuaug.augment.params import Params, sample_params
from lightning_gpuaug.augment.views import ViewParams, split_params, view_params
from lightning_gpuaug.augment.window import Sizes, centre_window
from lightning_gpuaug.pipeline import Paths, Request, path_bytes
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.recipe import EvalRecipe, TrainRecipe
from lightning_gpuaug.sources import Source
from lightning_gpuaug.sources.base import Targets
from lightning_gpuaug.sources.encoded import BATCHES, Encoded, Reader, WantedRows, fixed_paths
from lightning_gpuaug.sources.imagefile import MAX_PIXELS, encoded_size, header_size

_READERS = 16
"""Headers read at the same time: enough to hide the latency of a disk, idle otherwise."""

_OUTSIDE = 2**30
"""Where a window starts that no image contains: the decoder refuses it before it allocates anything."""


@dataclass(frozen=True)
class Read:
    """The images of a batch in memory.

    Attributes:
        encoded: their bytes.
        sizes: height and width; 0 where the header says nothing.
    """

    encoded: Encoded
    sizes: Sizes


@dataclass(frozen=True)
class Prepared:
    """A batch ready to decode.

    Attributes:
        request: for the pipeline.
        flip: (N,) bool, which samples to mirror after decoding; None for none.
        params: the samples' programs, flips included, for a recipe that needs them; else None. With augmentation
            splits, of every split's rows.
        views: the programs of a recipe with views; else empty.
        targets: of the rows, where the source knows them only now; else None.
    """

    request: Request
    flip: NDArray[np.bool_] | None = None
    params: Params | None = None
    views: tuple[ViewParams, ...] = ()
    targets: Targets | None = None


class Preparer:
    """Prepares batches of a source under a recipe.

    The size of an image is in its header: of a file it is read when the sample first comes up, and kept; of bytes
    it is read when they are there.

    Args:
        source: where the samples are.
        recipe: what will happen to them.
        image_size: height and width after the resize, where a training recipe says nothing else.
        pinned: read bytes into page-locked memory, for a GPU.
    """

    def __init__(self, source: Source, recipe: TrainRecipe | EvalRecipe, image_size: int, pinned: bool = False) -> None:
        self._recipe, self._image_size, self._pinned = recipe, image_size, pinned
        self._reader: Reader | None = None
        if source.feed == "paths":
            self._paths: Paths = fixed_paths(source.paths)
            self._sizes: Sizes = np.zeros((len(self._paths), 2), dtype=np.int32)
        else:
            self._reader = source.reader()
        self._measuring: ThreadPoolExecutor | None = None  # finds the sizes of what has been read

    @property
    def ahead(self) -> int:
        """How many batches should be being read while one is prepared: none where the pipeline reads."""
        return BATCHES if self._reader is not None else 0

    def read(self, indices: Indices, epoch: int, seed: int, repeats: Indices | int = 0) -> Future[Read] | None:
        """Begin to read a batch, for a later call with the same arguments; None where the pipeline reads."""
        if self._reader is None:
            return None
        if self._measuring is None:
            self._measuring = ThreadPoolExecutor(1, thread_name_prefix="gpuaug-sizes")
        wanted: WantedRows | None = None
        recipe = self._recipe
        if isinstance(recipe, TrainRecipe) and not recipe.views:  # the rows of the window alone

            def wanted(sizes: Sizes) -> Sizes:
                draws = draw(recipe, keys_of(indices, repeats), epoch, seed, sizes)
                return np.stack([draws.start[:, 0], draws.size[:, 0]], axis=1)

        return self._measuring.submit(self._measured, self._reader.begin(indices, self._pinned, wanted))

    def close(self) -> None:
        """Stop reading; the next call begins again."""
        if self._reader is not None:
            self._reader.close()
        if self._measuring is not None:
            self._measuring.shutdown(cancel_futures=True)
            self._measuring = None

    @ranged("gpuaug.prepare")
    def __call__(
        self,
        indices: Indices,
        epoch: int,
        seed: int,
        repeats: Indices | int = 0,
        reading: Future[Read] | None = None,
    ) -> Prepared:
        """Prepare a batch.

        Args:
            indices: (N,) samples.
            epoch: keys the draws, with `seed` and the index.
            seed: 0..2**32-1.
            repeats: (N,) which of its repeats each row is: keys the draws too.
            reading: what `read` gave for these samples, if it was called before.
        """
        recipe, image_size = self._recipe, self._image_size
        reading = reading or self.read(indices, epoch, seed, repeats)
        read = reading.result() if reading is not None else None
        sizes = self._sizes_of(indices) if read is None else read.sizes
        start, size, part, flip, params = np.zeros_like(sizes), sizes, None, None, None
        views: tuple[ViewParams, ...] = ()
        if isinstance(recipe, EvalRecipe):
            part = centre_window(np.maximum(sizes, 1), image_size, recipe)
        elif recipe.views:
            image_size = recipe.size_at(epoch, image_size)
            possible = np.maximum(sizes, 1)
            start, size, views = view_params(recipe, indices, repeats, epoch, seed, image_size, possible)
        else:
            image_size = recipe.size_at(epoch, image_size)
            keys = keys_of(indices, repeats)
            draws = draw(recipe, keys, epoch, seed, sizes)
            start, size = draws.start, draws.size
            if recipe.splits > 1:
                params = split_params(recipe, indices, repeats, epoch, seed, image_size, image_size)
            elif recipe.needs_program:
                params = sample_params(recipe, keys, epoch, seed, image_size, image_size)
            else:
                flip = draws.flip
        if read is not None and read.encoded.rows is not None:
            start = start - read.encoded.rows[:, :1] * np.array([1, 0], dtype=np.int32)
        # An image without a readable header, and one that would need gigabytes: let its batch fail when its turn
        # comes, where the loader finds the culprit and says what is wrong with it.
        refused = (sizes.min(axis=1) < 1) | (sizes.astype(np.int64).prod(axis=1) > MAX_PIXELS)
        if refused.any():
            start, size = start.copy(), np.maximum(size, 1)
            start[refused] = _OUTSIDE
        images = self._paths[indices] if read is None else read.encoded
        targets = None if read is None else read.encoded.targets
        return Prepared(Request(images, start, size, part, image_size), flip, params, views, targets)

    def _sizes_of(self, indices: Indices) -> Sizes:
        """(N, 2) height and width; 0 where the header says nothing."""
        unknown = indices[self._sizes[indices, 0] == 0]
        if len(unknown):
            exif = self._recipe.exif_orientation
            rows = torch.from_numpy(path_bytes(self._paths[unknown]))
            self._sizes[unknown] = ops.image_sizes(rows, exif_orientation=exif, threads=_READERS).numpy()
            for index in unknown[self._sizes[unknown, 0] == 0]:
                self._sizes[index] = _size_in_python(os.fsdecode(bytes(self._paths[index])), exif)
        return self._sizes[indices]

    def _measured(self, reading: Future[Encoded]) -> Read:
        """What has been read, with the sizes in its headers."""
        encoded = reading.result()
        if encoded.sizes is not None:
            return Read(encoded, encoded.sizes)
        exif = self._recipe.exif_orientation
        ranges = torch.from_numpy(encoded.start), torch.from_numpy(encoded.length)
        sizes = ops.image_sizes_packed(encoded.data, *ranges, exif_orientation=exif).numpy()
        for row in np.flatnonzero(sizes[:, 0] == 0).tolist():
            sizes[row] = _size_in_python(encoded.content(row), exif)
        return Read(encoded, sizes)


def _size_in_python(image: str | bytes, exif_orientation: bool) -> tuple[int, int]:
    """(height, width) of a file or of its bytes, in any format; (0, 0) if it cannot be told."""
    try:
        size = header_size(image) if isinstance(image, str) else encoded_size(image)
    except OSError:
        return 0, 0
    if size is None:
        return 0, 0
    width, height = size
    if exif_orientation and _is_transposed(image):
        return width, height
    return height, width


def _is_transposed(image: str | bytes) -> bool:
    """Whether the Exif orientation swaps height and width."""
    from PIL import Image

    try:
        with Image.open(image if isinstance(image, str) else io.BytesIO(image)) as opened:
            return int(opened.getexif().get(0x0112, 1)) >= 5
    except OSError:
        return False
