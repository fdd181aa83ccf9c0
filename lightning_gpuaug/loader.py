"""The loader: the only stateful class. It walks a plan, keeps the pipeline busy and hands over finished batches."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from lightning_gpuaug.bad_images import BadImages, OnBadImage, find_culprits
from lightning_gpuaug.finish import Batch, Finisher, Images, Output
from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Fed, fed
from lightning_gpuaug.plan import Indices, Plan
from lightning_gpuaug.prepare import Prepared, Preparer, Read
from lightning_gpuaug.ranges import ranged
from lightning_gpuaug.recipe import EvalRecipe
from lightning_gpuaug.sources import Source
from lightning_gpuaug.timings import Timings
from lightning_gpuaug.turns import Turns

T = TypeVar("T")

_MADE_AHEAD = 2
"""Batches that the worker finishes ahead. It shares Python with the training loop, and is now late, now early."""

_GOLDEN = 0x9E3779B9
"""Between the seeds of an epoch's passes: odd, so that they all differ, and large, so that no run is likely to have
the seed of another one's second pass."""

_QUIET = 5
"""Batches that lie ready when the first one is handed to a GPU: until the last of them nothing is decoded. Training
steps are captured as CUDA graphs then (torch.compile does it in the second), and a capture fails in any thread when the
device is synchronised in another, as DALI's memory pools do where buffers still grow."""


@dataclass(frozen=True)
class Place:
    """A place in the endless sequence of steps.

    Attributes:
        epoch: number of the epoch.
        step: number of the step in it.
        consumed: samples of the pass that another topology had taken before this loader's first step of it.
        cycle: passes over the data in this epoch before this one: a Trainer that trains on other data beside begins
            again where this is the shorter, and callbacks have passes of their own.
    """

    epoch: int
    step: int
    consumed: int = 0
    cycle: int = 0

    def next(self) -> Place:
        """The following step of the same pass."""
        return dataclasses.replace(self, step=self.step + 1)

    def seed_of_pass(self, seed: int) -> int:
        """The seed of this pass's order and draws, which each pass of an epoch has of its own."""
        return (seed + self.cycle * _GOLDEN) % 2**32


@dataclass(frozen=True)
class _Begun:
    """A pass that has begun.

    Attributes:
        located: (epoch, step) of the loop then.
        place: of its first batch.
    """

    located: tuple[int, int]
    place: Place


@dataclass
class _Reading:
    """A batch being read."""

    place: Place
    indices: Indices
    repeats: Indices | int
    read: Future[Read] | None


@dataclass
class _Order:
    """A batch being decoded."""

    place: Place
    indices: Indices
    prepared: Prepared
    images: Fed


@dataclass
class _Finished:
    """A finished batch, and the event after which it may be used on another stream."""

    batch: Batch
    ready: torch.cuda.Event | None


class Loader:
    """Batches of a data set, in the order of a plan, as a sized, restartable, resumable iterable.

    Nothing is built before the first batch is asked for. Every `iter()` is a new pass: the next epoch when training,
    the same samples again when evaluating. A pass may be left at any time. While a batch is out, the ones behind it
    are being decoded already, across the ends of epochs too.

    Args:
        source: where the samples are.
        plan: which samples come when.
        decoding: how they are decoded. Its device decides where DALI runs.
        output: what is handed over.
        seed: of the augmentation's draws, 0..2**32-1.
        on_bad_image: "raise" or "substitute".
        locate: asks the training loop for (epoch, step) at the start of a pass; without it the loader counts passes.
        ahead: finish batches ahead, in a thread and on a CUDA stream of its own, so that the training thread spends
            no time on batches. On by default when batches go to a CUDA device.
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
        ahead: bool | None = None,
    ) -> None:
        self.source, self.plan, self.decoding, self.output, self.seed = source, plan, decoding, output, seed
        self.bad = BadImages(on_bad_image, exactly_once=isinstance(decoding.recipe, EvalRecipe))
        self.place = Place(0, 0)
        """Where the batch after the last one handed over is."""
        self.turns = Turns()
        """When the worker may use Python, for a training loop that says so."""
        self.timings = Timings()
        """What making batches has cost so far; replaced as a whole after each."""
        self._locate = locate
        self._next_pass = Place(0, 0)  # where the next pass starts when nobody else knows
        self._begun: _Begun | None = None  # the last pass, of a loop that can be asked
        self._cycles = 0  # passes that come after the first one of an epoch: as many as in the one before
        self._resumed: Place | None = None  # where a restored epoch continues
        self._pass: object | None = None
        # The making of batches: in this thread, or all of it in the worker.
        self._is_cached = bool(getattr(source, "cached", False))
        self._ahead = ahead if ahead is not None else output.device.type == "cuda" and not self._is_cached
        self._worker: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Place, Future[_Finished]]] = deque()  # made ahead, in order of delivery
        self._stocked = 0  # of them, batches that lie ready, so that none is begun before they are used up
        self._quiet = _QUIET if self._ahead and output.device.type == "cuda" else 0  # until the first pass
        self._stream: torch.cuda.Stream | None = None
        self._prepare: Preparer | None = None
        self._pipe: DecodePipeline | None = None
        self._orders: deque[_Order] = deque()  # batches being decoded, oldest first
        self._planned: _Order | None = None  # the batch to decode after those
        self._reading: deque[_Reading] = deque()  # batches to decode after those, being read where that is our part
        self._to_order = Place(0, 0)  # the next batch to start reading
        self._finish = Finisher(source, decoding, output)
        self._cached: dict[int, torch.Tensor] = {}  # noise by size

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
        """Where the pass is, the same on every rank, for a loop (or a Trainer) that has the loader alone.

        Empty under a Trainer that has the data module, which keeps the state then and can do more. A Trainer restores
        a loader's state in mid-epoch alone (behind a whole epoch, a loader without its module begins with its first
        order again), counts steps as they were (give it the same batch size and ranks), and takes a batch that was out
        for done.
        """
        if self._locate is not None or self.bad.exactly_once:
            return {}
        place = self.place
        state = {"epoch": place.epoch, "consumed": self.consumed(place), "seed": self.seed}
        return {**state, "fingerprint": self.source.fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, on any number of ranks.

        Raises:
            ValueError: the data is not that of the state.
        """
        if not state or self._locate is not None:
            return
        if state["fingerprint"] != (now := self.source.fingerprint()):
            raise ValueError(f"the data is not the state's: fingerprint {now} now, {state['fingerprint']} then")
        self.resume(state["epoch"], state["consumed"], state["seed"])

    def consumed(self, place: Place) -> int:
        """Samples of the epoch taken by all ranks before `place`."""
        return self.plan.consumed(place.step, place.consumed)

    def resume(self, epoch: int, consumed: int, seed: int, cycle: int = 0) -> None:
        """Continue an epoch of which all ranks together have taken `consumed` samples, in the order of `seed`.

        Args:
            epoch: number of the epoch.
            consumed: samples taken, of the pass after the first `cycle` whole ones.
            seed: of order and draws.
            cycle: whole passes that the epoch has had.
        """
        self.close()
        self.seed, self.plan = seed, dataclasses.replace(self.plan, seed=seed)
        self._resumed = self.place = Place(epoch, self.plan.first_step(consumed), consumed, cycle)
        self._begun = None
        # Outside of a Trainer the next pass is the rest of the epoch, or the next one if nothing is left.
        self._next_pass = self._resumed if self._resumed.step < len(self) else Place(epoch + 1, 0)

    def end_resumed_epoch(self) -> None:
        """Deliver nothing more of the epoch that `resume` continues."""
        assert self._resumed is not None
        self._resumed = dataclasses.replace(self._resumed, step=len(self))

    def follow(self, former: Loader) -> None:
        """Begin with the pass that `former`, a loader over the same data, would have begun next."""
        self._next_pass, self._begun, self._cycles = former._next_pass, former._begun, former._cycles
        self.bad.reasons.update(former.bad.reasons)

    def stock(self, count: int) -> int:
        """Finish the next batches of the running pass now, so that handing them over takes no time.

        Nothing else changes: they come in their turn, and `place`, which a checkpoint records, moves when they do.
        Until the last of them is handed over, no batch behind them is begun, and what DALI had begun is done.

        Args:
            count: batches to finish; fewer where the pass ends, or where one fails (which it does in its turn).

        Returns:
            Batches that lie ready.
        """
        place = self.place
        if self._pending and self._pending[0][0] != place:
            self._settle()
        self._stocked = 0
        self.turns.hurry()
        for i in range(min(count, len(self) - place.step)):
            if i == len(self._pending):
                self._pending.append((place, self._submit(self._make, place)))
            future = self._pending[i][1]
            if future.exception() is not None:
                break
            ready = future.result().ready
            if ready is not None:
                ready.synchronize()
            place = place.next()
            self._stocked = i + 1
        if self._pending:
            self._submit(self._rest).result()
        return self._stocked

    def variant(self, decoding: Decoding, batch_size: int) -> Loader:
        """Another loader, decoding otherwise, over the samples of this epoch that come after the next ones.

        It shares nothing with this one but what is known of the files, and counts for nothing: for measurements.
        """
        plan = dataclasses.replace(self.plan, batch_size=batch_size)
        other = Loader(
            self.source, plan, decoding, self.output, seed=self.seed, on_bad_image=self.bad.mode, ahead=self._ahead
        )
        other._next_pass = Place(self.place.epoch, min(len(plan) * (self.place.step + 1) // len(self), len(plan) - 1))
        if self._prepare is not None and self.decoding.feed == "paths":  # otherwise it holds the threads that read
            other._prepare = copy.copy(self._prepare)
        return other

    def close(self) -> None:
        """Stop decoding and free the pipeline. The loader can be used again afterwards."""
        self._settle()
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        self._finish.close()
        self._drop_pipeline()
        self._orders.clear()
        self._planned = None
        self._reading.clear()
        if self._prepare is not None:
            self._prepare.close()
        self._cached.clear()
        self._pass = None

    # ---- passes: the caller's thread -----------------------------------------------------------------------------

    def _run(self) -> Iterator[Batch]:
        this_pass = self._pass = object()
        place = self._begin()
        if self._quiet:
            self.stock(self._quiet)
            self._quiet = 0
        while place.step < len(self):
            if self._pass is not this_pass:
                raise RuntimeError("this pass was ended by a newer iter() over the same loader, or by its close()")
            batch = self._deliver(place)
            place = self.place = place.next()
            yield batch

    def _begin(self) -> Place:
        """The place of a new pass's first batch."""
        if self._locate is None:
            place = self._first_place(self._next_pass.epoch, self._next_pass.step)
        else:
            located, former = self._locate(), self._begun
            place = self._place_of_pass(*located)
            self._begun = _Begun(located, place)
            if former is None or former.place.epoch == place.epoch:
                self._cycles = max(self._cycles, place.cycle)
            else:
                self._cycles = former.place.cycle
        self._next_pass = Place(place.epoch + 1, 0)
        self.place = place
        return place

    def _place_of_pass(self, epoch: int, step: int) -> Place:
        """Where a pass begins while the loop is at `step` of an epoch: only its first one is the rest of an epoch."""
        begun = self._begun
        if begun is None:
            return self._first_place(epoch, step)
        if begun.located == (epoch, step) and begun.place.step < len(self):
            return begun.place  # the one before was not the loop's own, which has not moved
        if begun.place.epoch != epoch or step == 0:
            return Place(epoch, 0)
        return Place(epoch, 0, cycle=begun.place.cycle + 1)

    def _first_place(self, epoch: int, step: int) -> Place:
        """Where the first pass begins, if `step` steps of the epoch are done: behind what was restored."""
        resumed = self._resumed
        if resumed is not None and resumed.epoch == epoch:
            return dataclasses.replace(resumed, step=max(step - resumed.cycle * len(self), resumed.step))
        return Place(epoch, step if step < len(self) else 0)

    @ranged("gpuaug.next_batch")
    def _deliver(self, place: Place) -> Batch:
        if self._pending and self._pending[0][0] != place:
            self._settle()
        if not self._pending:
            if not self._ahead:
                return self._make(place).batch
            self._pending.append((place, self._submit(self._make, place)))
        self._stocked = max(0, self._stocked - 1)
        made = self._pending.popleft()[1]
        if not made.done():
            self.turns.hurry()
        finished = made.result()
        self.turns.work()
        while self._ahead and not self._stocked and len(self._pending) < _MADE_AHEAD:
            following = self._wrap((self._pending[-1][0] if self._pending else place).next())
            self._pending.append((following, self._submit(self._make, following)))
        return self._hand_over(finished)

    def _submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Have work done by the worker, or here and now."""
        if self._ahead:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpuaug-loader")
            return self._worker.submit(work, *args)
        done: Future[T] = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:  # raised when its turn comes
            done.set_exception(error)
        return done

    def _settle(self) -> None:
        """Let the worker finish what nobody wants; what goes wrong with it goes wrong again in its place."""
        self._stocked = 0
        self.turns.hurry()
        while self._pending:
            with contextlib.suppress(Exception):
                self._pending.popleft()[1].result()

    def _hand_over(self, finished: _Finished) -> Batch:
        """Order a batch made on the worker's stream before what the caller queues next on its own."""
        if finished.ready is not None:
            stream = torch.cuda.current_stream(self.output.device)
            stream.wait_event(finished.ready)
            images, targets = finished.batch
            for tensor in (*(images if isinstance(images, list) else [images]), targets):
                tensor.record_stream(stream)
        return finished.batch

    def _wrap(self, place: Place) -> Place:
        """`place`, or the first one of the next pass, as far as that is known, if it is behind the end."""
        if place.step < len(self):
            return place
        if place.cycle < self._cycles:
            return Place(place.epoch, 0, cycle=place.cycle + 1)
        return Place(place.epoch + 1, 0)

    # ---- making batches: the worker's thread if there is one -----------------------------------------------------

    def _make(self, place: Place) -> _Finished:
        """The finished batch of a place."""
        if self._ahead:
            self.turns.wait()
        with self._on_its_stream() as stream:
            batch = self._make_here(place)
            if stream is None:
                return _Finished(batch, None)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(stream)
            return _Finished(batch, ready)

    @contextlib.contextmanager
    def _on_its_stream(self) -> Iterator[torch.cuda.Stream | None]:
        """On the output's device and, in the worker, on a stream of the loader's own."""
        if self.output.device.type != "cuda":
            yield None
            return
        with torch.cuda.device(self.output.device):
            if not self._ahead:
                yield None
                return
            if self._stream is None:
                self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(self._stream):
                yield self._stream

    def _rest(self) -> None:
        """Return when nothing is read or decoded any more."""
        for reading in self._reading:
            if reading.read is not None:
                reading.read.exception()  # waits; it is raised in its turn
        if self._pipe is not None:
            with self._on_its_stream():
                self._pipe.rest()

    def _make_here(self, place: Place) -> Batch:
        if self._is_cached:
            indices = _Pass(self.plan, place)[place.step]
            return self._cached_images(len(indices), place.epoch), self._finish.targets(indices)
        try:
            return self._decode(place)
        except BaseException:
            # Whatever it was (a bad image, Ctrl-C between two lines), the pipeline and what is known of its contents
            # may not agree any more, and the next batch would carry another's labels.
            self._drop_pipeline()
            self._orders.clear()
            raise

    def _decode(self, place: Place) -> Batch:
        while True:
            pipe = self._go_to(place)
            begin = time.perf_counter()
            if self._planned is None:  # while DALI works: once it is done, it waits for the next batch
                self._planned = self._plan_order()
            planned_at = time.perf_counter()
            try:
                decoded = pipe.pop()
            except DecodeError as error:
                self._find_bad(error)
                continue
            decoded_at = time.perf_counter()
            order = self._orders.popleft()
            self._fill(pipe)
            started_at = time.perf_counter()
            batch = self._finish(order.indices, decoded, order.prepared)
            self.timings = self.timings.plus(
                prepare=planned_at - begin + started_at - decoded_at,
                decode=decoded_at - planned_at,
                finish=time.perf_counter() - started_at,
            )
            return batch

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
            order = self._planned or self._plan_order()
            self._planned = None
            pipe.start(order.prepared.request, order.images)
            self._orders.append(order)

    def _rewind(self, place: Place) -> None:
        self._orders.clear()
        self._planned = None
        self._reading.clear()
        self._to_order = place
        self.bad.start_from(place.epoch, place.step)

    def _plan_order(self) -> _Order:
        """Plan the next batch to decode, and begin to read those behind it."""
        if self._prepare is None:
            decoding = self.decoding
            pinned = decoding.device == "gpu"
            self._prepare = Preparer(self.source, decoding.recipe, decoding.image_size, pinned)
        while len(self._reading) <= self._prepare.ahead:
            place = self._wrap(self._to_order)
            if place.step == 0:
                self.bad.start_from(place.epoch, 0)
            indices = self.bad.rows(_Pass(self.plan, place), place.epoch, place.step)
            repeats = _plan_of(place, self.plan).repeat_numbers(place.epoch, place.step, place.consumed)
            self._to_order = place.next()
            read = self._prepare.read(indices, place.epoch, place.seed_of_pass(self.seed), repeats)
            self._reading.append(_Reading(place, indices, repeats, read))
        due = self._reading.popleft()
        seed = due.place.seed_of_pass(self.seed)
        prepared = self._prepare(due.indices, due.place.epoch, seed, due.repeats, due.read)
        return _Order(due.place, due.indices, prepared, fed(prepared.request))

    def _find_bad(self, error: DecodeError) -> None:
        """Name the images that broke the pipeline, then plan again from the batch that failed."""
        self._drop_pipeline()
        failed = list(self._orders)
        for order in failed:  # the failure is the oldest batch's, unless DALI reported a later one early
            culprits = find_culprits(self.decoding, order.prepared.request, order.indices)
            if culprits:
                self.bad.register(culprits, {i: self.source.location(i) for i in culprits})
                return self._rewind(failed[0].place)
        raise error

    def _drop_pipeline(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _cached_images(self, rows: int, epoch: int) -> Images:
        """Noise of the recipe's shapes, made once: what training would run at if images cost nothing."""
        recipe, size = self.decoding.recipe, self.decoding.image_size
        if isinstance(recipe, EvalRecipe):
            return self._noise(size)[:rows]
        size = recipe.size_at(epoch, size)
        if recipe.views:
            return [self._noise(view.image_size or size)[:rows] for view in recipe.views for _ in range(view.count)]
        return self._noise(size, recipe.splits)[: rows * recipe.splits]

    def _noise(self, size: int, splits: int = 1) -> torch.Tensor:
        """A batch of noise, the same every time."""
        if size not in self._cached:
            generator = torch.Generator().manual_seed(self.seed)
            shape = (self.decoding.batch_size * splits, size, size, 3)
            noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            self._cached[size] = self._finish.images(noise.to(self.output.device))
        return self._cached[size]


def _plan_of(place: Place, plan: Plan) -> Plan:
    """The plan of the pass that `place` is in."""
    return dataclasses.replace(plan, seed=place.seed_of_pass(plan.seed)) if place.cycle else plan


class _Pass:
    """The planned samples of every step of the pass that `place` is in.

    Steps before those of this topology, if another one has begun the pass, are those that this one would have taken.
    """

    def __init__(self, plan: Plan, place: Place) -> None:
        self._plan, self._place = _plan_of(place, plan), place
        self._first = plan.first_step(place.consumed)

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, step: int) -> Indices:
        return self._plan.batch(self._place.epoch, step, self._place.consumed if step >= self._first else 0)
