"""The loader: the only stateful class. It walks a plan, keeps the pipeline busy and hands over finished batches."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.bad_images import BadImages, OnBadImage, find_culprits
from lightning_gpuaug.pipeline import Decoded, DecodeError, DecodePipeline, Decoding
from lightning_gpuaug.plan import Indices, Plan
from lightning_gpuaug.prepare import Prepared, Preparer
from lightning_gpuaug.recipe import EvalRecipe
from lightning_gpuaug.sources import Source

Batch = tuple[torch.Tensor, torch.Tensor]

_MAX_LENT = 8
"""Batches that the host may run ahead of the GPU, each of which holds decoded pixels."""


@dataclass(frozen=True)
class Output:
    """What a finished batch looks like.

    Attributes:
        device: where images and targets are handed over.
        dtype: of the images: torch.float32, float16, bfloat16, or uint8 (raw pixels, not normalised).
        channels_last: memory format of the images; their shape is (N, 3, H, W) either way.
        indices: hand over sample indices instead of targets (prediction).
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    channels_last: bool = True
    indices: bool = False


@dataclass(frozen=True)
class Place:
    """A place in the endless sequence of steps.

    Attributes:
        epoch: number of the epoch.
        step: number of the step in it.
        consumed: samples of the epoch that another topology had taken before this loader's first step of it.
    """

    epoch: int
    step: int
    consumed: int = 0


@dataclass
class _Order:
    """A batch being decoded."""

    place: Place
    indices: Indices
    prepared: Prepared | None


class Loader:
    """Batches of a data set, in the order of a plan, as a sized, restartable, resumable iterable.

    Nothing is built before the first batch is asked for. Every `iter()` is a new pass: the next epoch when training,
    the same samples again when evaluating. A pass may be left at any time. The batch after the one handed over is
    always being decoded already, across the ends of epochs too.

    Args:
        source: where the samples are.
        plan: which samples come when.
        decoding: how they are decoded. Its device decides where DALI runs.
        output: what is handed over.
        seed: of the augmentation's draws, 0..2**32-1.
        on_bad_image: "raise" or "substitute".
        locate: asks the training loop for (epoch, step) at the start of a pass; without it the loader counts passes.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        decoding: Decoding,
        output: Output,
        *,
        seed: int = 0,
        on_bad_image: OnBadImage = "raise",
        locate: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.source, self.plan, self.decoding, self.output, self.seed = source, plan, decoding, output, seed
        self.bad = BadImages(on_bad_image, exactly_once=isinstance(decoding.recipe, EvalRecipe))
        self._locate = locate
        self._is_cached = bool(getattr(source, "cached", False))
        self._next = Place(0, 0)  # where the next pass starts when nobody else knows
        self._resumed: Place | None = None  # where a restored epoch continues
        self._ahead = Place(0, 0)  # the next batch to start decoding
        self._orders: deque[_Order] = deque()  # batches being decoded, oldest first
        self._lent: deque[tuple[torch.cuda.Event, Decoded]] = deque()  # DALI memory that queued kernels still read
        self._pipe: DecodePipeline | None = None
        self._prepare: Preparer | None = None
        self._cached: torch.Tensor | None = None
        self._pass: object | None = None
        self.place = Place(0, 0)
        """Where the batch after the last one handed over is."""

    def __len__(self) -> int:
        """Steps of a pass: arithmetic, the same on every rank and in every epoch."""
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        """A new pass, which begins when its first batch is asked for."""
        return self._run()

    def __getstate__(self) -> dict[str, Any]:
        """Loaders belong to the process that made them."""
        raise TypeError("a Loader holds a running pipeline and cannot be pickled; pickle the ImageDataModule instead")

    def state_dict(self) -> dict[str, Any]:
        """Empty: the data module keeps the state, because the Trainer keeps only rank 0's loader state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to load; see `state_dict`."""

    def consumed(self, place: Place) -> int:
        """Samples of the epoch taken by all ranks before `place`."""
        return self.plan.consumed(place.step, place.consumed)

    def resume(self, epoch: int, consumed: int, seed: int) -> None:
        """Continue an epoch of which all ranks together have taken `consumed` samples, in the order of `seed`."""
        self.close()
        self.seed, self.plan = seed, dataclasses.replace(self.plan, seed=seed)
        self._resumed = self.place = Place(epoch, self.plan.first_step(consumed), consumed)
        # Outside of a Trainer the next pass is the rest of the epoch, or the next one if nothing is left.
        self._next = self._resumed if self._resumed.step < len(self) else Place(epoch + 1, 0)

    def close(self) -> None:
        """Stop decoding and free the pipeline. The loader can be used again afterwards."""
        if self._lent:
            self._lent[-1][0].synchronize()
            self._lent.clear()
        self._drop_pipeline()
        self._orders.clear()
        self._pass = self._cached = None

    def _run(self) -> Iterator[Batch]:
        this_pass = self._pass = object()
        place = self._begin()
        while place.step < len(self):
            if self._pass is not this_pass:
                raise RuntimeError("this pass was ended by a newer iter() over the same loader, or by its close()")
            batch = self._deliver(place)
            place = self.place = Place(place.epoch, place.step + 1, place.consumed)
            yield batch

    def _begin(self) -> Place:
        """The place of a new pass's first batch."""
        epoch, step = self._locate() if self._locate is not None else (self._next.epoch, self._next.step)
        resumed = self._resumed
        if resumed is not None and resumed.epoch == epoch:
            place = Place(epoch, max(step, resumed.step), resumed.consumed)
        else:
            place = Place(epoch, step)
        self._next = Place(epoch + 1, 0)
        self.place = place
        return place

    def _deliver(self, place: Place) -> Batch:
        if self.output.device.type != "cuda":
            return self._finish(*self._decoded(place))
        with torch.cuda.device(self.output.device):
            return self._finish(*self._decoded(place))

    def _decoded(self, place: Place) -> tuple[_Order, Decoded | None]:
        """The decoded batch of a place; None where a cached batch stands for it."""
        if self._is_cached:
            return _Order(place, self.plan.batch(place.epoch, place.step, place.consumed), None), None
        while True:
            pipe = self._go_to(place)
            try:
                decoded = pipe.pop()
            except DecodeError as error:
                self._find_bad(error)
                continue
            order = self._orders.popleft()
            self._fill(pipe)
            return order, decoded

    def _go_to(self, place: Place) -> DecodePipeline:
        """Make the oldest batch being decoded the one of `place`."""
        if self._pipe is not None and self._orders and self._orders[0].place == place:
            return self._pipe
        if self._pipe is not None:
            try:
                self._pipe.drain()
            except DecodeError:  # of a batch that nobody wants any more; it is met again in its place
                self._drop_pipeline()
        self._rewind(place)
        if self._pipe is None:
            self._pipe = DecodePipeline(self.decoding)
        self._fill(self._pipe)
        return self._pipe

    def _fill(self, pipe: DecodePipeline) -> None:
        while len(pipe) < self.decoding.prefetch:
            order = self._plan_order()
            assert order.prepared is not None
            pipe.start(order.prepared.request)
            self._orders.append(order)

    def _rewind(self, place: Place) -> None:
        self._orders.clear()
        self._ahead = place
        self.bad.start_from(place.step)

    def _plan_order(self) -> _Order:
        """Plan the next batch to decode."""
        place = self._ahead
        if place.step >= len(self):
            place = Place(place.epoch + 1, 0)
        if place.step == 0:
            self.bad.start_from(0)
        if self._prepare is None:
            self._prepare = Preparer(self.source, self.decoding.recipe, self.decoding.image_size)
        indices = self.bad.rows(_Pass(self.plan, place), place.step)
        self._ahead = Place(place.epoch, place.step + 1, place.consumed)
        return _Order(place, indices, self._prepare(indices, place.epoch, self.seed))

    def _drop_pipeline(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _find_bad(self, error: DecodeError) -> None:
        """Name the images that broke the pipeline, then plan again from the batch that failed."""
        self._drop_pipeline()
        failed = list(self._orders)
        for order in failed:  # the failure is the oldest batch's, unless DALI reported a later one early
            assert order.prepared is not None
            culprits = find_culprits(self.decoding, order.prepared.request, order.indices)
            if culprits:
                self.bad.register(culprits, {i: self.source.paths[i] for i in culprits})
                return self._rewind(failed[0].place)
        raise error

    def _finish(self, order: _Order, decoded: Decoded | None) -> Batch:
        """Turn decoded pixels into the network's input, and look up the targets."""
        values = order.indices if self.output.indices else self.source.targets[order.indices]
        targets = self._to_device(torch.from_numpy(np.array(values)))
        if decoded is None or order.prepared is None:
            return self._cached_images()[: len(order.indices)], targets
        mirrored = order.prepared.flip
        flip = None if mirrored is None else self._to_device(torch.from_numpy(mirrored))
        images = self._normalize(decoded.images.to(self.output.device, non_blocking=True), flip)
        if decoded.images.is_cuda:
            self._lend(decoded)
        return images, targets

    def _normalize(self, pixels: torch.Tensor, flip: torch.Tensor | None) -> torch.Tensor:
        normalize = None if self.output.dtype == torch.uint8 else self.decoding.recipe.normalize
        mean, std = (normalize.mean, normalize.std) if normalize is not None else (None, None)
        return ops.normalize(
            pixels, mean, std, flip=flip, dtype=self.output.dtype, channels_last=self.output.channels_last
        )

    def _to_device(self, values: torch.Tensor) -> torch.Tensor:
        if self.output.device.type != "cuda":
            return values.to(self.output.device)
        return values.pin_memory().to(self.output.device, non_blocking=True)

    def _lend(self, decoded: Decoded) -> None:
        """Keep DALI's memory until the kernel that reads it, just queued, has run."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._lent.append((event, decoded))
        if len(self._lent) > _MAX_LENT:
            self._lent[0][0].synchronize()
        while self._lent[0][0].query():  # type: ignore[no-untyped-call]
            self._lent.popleft()
            if not self._lent:
                break

    def _cached_images(self) -> torch.Tensor:
        """One batch of noise, made once: what training would run at if images cost nothing."""
        if self._cached is None:
            generator = torch.Generator().manual_seed(self.seed)
            size = self.decoding.image_size
            shape = (self.decoding.batch_size, size, size, 3)
            noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            self._cached = self._normalize(noise.to(self.output.device), None)
        return self._cached


class _Pass:
    """The planned samples of every step of the pass that `place` is in; earlier topologies' steps are empty."""

    def __init__(self, plan: Plan, place: Place) -> None:
        self._plan, self._place = plan, place
        self._first = plan.first_step(place.consumed)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, step: int) -> Indices:
        if step < self._first:
            return np.empty(0, dtype=np.int64)
        return self._plan.batch(self._place.epoch, step, self._place.consumed)
