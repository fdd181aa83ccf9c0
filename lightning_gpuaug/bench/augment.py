"""How long augmentation takes: ours, torchvision, kornia, DALI, compiled torch and a plain copy, in one run.

Inputs are smooth pictures with some noise; they rotate, and so do the records, each batch drawn anew. Every row ends in
bfloat16 channels_last, normalised. GPU times are CUDA events over calls that are queued ahead (`timing.time_calls`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.augment import Params, sample_params
from lightning_gpuaug.bench.timing import BUFFERS, Timing, copy_timing, time_calls
from lightning_gpuaug.recipe import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    AugMix,
    AutoAugment,
    ColorJitter,
    GaussianBlur,
    Mix,
    RandAugment,
    RandomErasing,
    RandomResizedCrop,
    TrainRecipe,
    TrivialAugmentWide,
)

ERASING = RandomErasing(0.25)
RECIPES = {
    "flip + normalise": TrainRecipe(),
    "flip + normalise + erase": TrainRecipe(erasing=ERASING),
    "+ RandAugment(2, 9)": TrainRecipe(auto=RandAugment(), erasing=ERASING),
    "+ RandAugment(2, 9) + MixUp/CutMix": TrainRecipe(auto=RandAugment(), erasing=ERASING, mix=Mix(mode="elem")),
    "+ RandAugment(2, 9) bilinear": TrainRecipe(auto=RandAugment(interpolation="bilinear"), erasing=ERASING),
    "+ timm rand-m9-mstd0.5-inc1": TrainRecipe(auto="rand-m9-mstd0.5-inc1", erasing=ERASING),
    "+ AutoAugment": TrainRecipe(auto=AutoAugment(), erasing=ERASING),
    "+ TrivialAugmentWide": TrainRecipe(auto=TrivialAugmentWide(), erasing=ERASING),
    "+ AugMix, 3 chains": TrainRecipe(auto=AugMix()),
    "+ ColorJitter(0.4, 0.4, 0.4, 0.1)": TrainRecipe(color_jitter=ColorJitter(0.4, 0.4, 0.4, 0.1)),
    "+ GaussianBlur(23)": TrainRecipe(blur=GaussianBlur(23, (0.1, 2.0), 1.0)),
    "+ noise in a third of the image": TrainRecipe(erasing=RandomErasing(1.0, (0.33, 0.33), (1.0, 1.0), "pixel")),
}
HEADLINE = "+ RandAugment(2, 9)"
RAGGED_HEIGHT, RAGGED_WIDTH = 375, 500
"""Size of the decoded images of which crops are taken: ImageNet's usual one, upright on its side."""

HEADER = f"{'':56} {'median':>10} {'p10':>10} {'p90':>10} {'host':>8} {'draw':>8} {'MiB':>8} {'GB/s':>7} {'copy':>7}"


@dataclass(frozen=True)
class Row:
    """One line of the table: µs a batch.

    Attributes:
        what: which library, and what it does.
        ours: whether it is this package.
        median_us: middle of the calls; p10_us and p90_us: the deciles; host_us: what the Python thread spends.
        draw_us: median of drawing the records on the host, which a loader does in its worker; None for the others.
        peak_mib: device memory that one call takes beyond what was there; None where it was not measured.
        counted_bytes: what must be read and written at least once.
        copy_us: a copy within the device's memory that reads and writes as many bytes, in the same run.
    """

    what: str
    ours: bool
    median_us: float
    p10_us: float
    p90_us: float
    host_us: float
    draw_us: float | None
    peak_mib: float | None
    counted_bytes: int
    copy_us: float

    def __str__(self) -> str:
        """One line under HEADER."""
        draw = "" if self.draw_us is None else f"{self.draw_us:.0f}"
        memory = "" if self.peak_mib is None else f"{self.peak_mib:.0f}"
        rate = self.counted_bytes / self.median_us * 1e-3
        return (
            f"{self.what:56} {self.median_us:10.1f} {self.p10_us:10.1f} {self.p90_us:10.1f} {self.host_us:8.1f} "
            f"{draw:>8} {memory:>8} {rate:7.1f} {self.copy_us:7.1f}"
        )


class Bench:
    """Collects rows, each beside a copy of as many bytes.

    Args:
        device: where everything runs.
        batch: images a batch.
        size: their height and width, pixels.
        seconds: about how long a row may take on the CPU; a GPU is measured for a number of calls.
        told: called with each row as it comes: a run cut short still tells what it found.
    """

    def __init__(
        self, device: torch.device, batch: int, size: int, seconds: float, told: Callable[[Row], None]
    ) -> None:
        self.device, self.batch, self.size, self.seconds = device, batch, size, seconds
        self.rows: list[Row] = []
        self.inputs = [pictures((batch, size, size, 3), device, seed) for seed in range(BUFFERS)]
        self._copies: dict[int, Timing] = {}
        self._told = told

    @property
    def counted(self) -> int:
        """Bytes of a dense batch: uint8 read, bfloat16 written."""
        return self.inputs[0].numel() * 3

    def time(self, call: Callable[[int], object]) -> Timing:
        """Time a call on the bench's device."""
        return time_calls(call, self.device, self.seconds)

    def copy(self, counted: int) -> Timing:
        """The copy of so many bytes."""
        if counted not in self._copies:
            self._copies[counted] = copy_timing(counted, self.device, self.seconds)
        return self._copies[counted]

    def add(
        self,
        what: str,
        timing: Timing,
        *,
        ours: bool = False,
        counted: int | None = None,
        draw_us: float | None = None,
        peak: float | None = None,
    ) -> None:
        """Add a row.

        Args:
            what: its name.
            timing: what was measured.
            ours: whether it is this package.
            counted: bytes; those of a dense batch if None.
            draw_us: see `Row`.
            peak: see `Row.peak_mib`.
        """
        traffic = self.counted if counted is None else counted
        copy_us = self.copy(traffic).median_us
        row = Row(what, ours, **asdict(timing), draw_us=draw_us, peak_mib=peak, counted_bytes=traffic, copy_us=copy_us)
        self.rows.append(row)
        self._told(row)

    def peak_mib(self, call: Callable[[int], object]) -> float | None:
        """Device memory that one call takes beyond what was there; None on the CPU."""
        if self.device.type == "cpu":
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = call(0)
        torch.cuda.synchronize()
        del kept
        return (torch.cuda.max_memory_allocated() - before) / 2**20


def floor(bench: Bench) -> None:
    """The copy that no op can beat which reads and writes every byte."""
    bench.add("copy of the bytes, in and out", bench.copy(bench.counted))


def dense(bench: Bench) -> None:
    """Our programs on a dense batch, each result checked against the CPU first; the last one also as a CUDA graph."""
    cuda = bench.device.type == "cuda"
    for name, recipe in RECIPES.items():
        drawn, draw_us = _draw(recipe, bench)
        records = [torch.from_numpy(params.records).to(bench.device) for params in drawn]
        chains = drawn[0].chains

        def call(i: int, records: list[torch.Tensor] = records, chains: int = chains) -> torch.Tensor:
            return _augmented(bench.inputs[i % BUFFERS], records[i % BUFFERS], chains)

        if cuda:  # a fast wrong answer is no answer
            expected = _augmented(bench.inputs[0].cpu(), records[0].cpu(), chains)
            if not torch.equal(call(0).cpu()[:4], expected[:4]):
                raise RuntimeError(f"wrong result on {bench.device}: {name}")
        bench.add(f"ours: {name}", bench.time(call), ours=True, draw_us=draw_us, peak=bench.peak_mib(call))
    if not cuda:
        return
    graph = torch.cuda.CUDAGraph()
    call(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept = call(0)
    bench.add(f"ours: {name}, as a CUDA graph", bench.time(lambda _: graph.replay()), ours=True)
    del kept


def ragged(bench: Bench) -> None:
    """Our programs with the random crop in them, on images as a decoder leaves them."""
    batch, size, h, w = bench.batch, bench.size, RAGGED_HEIGHT, RAGGED_WIDTH
    lists = [
        list(torch.randint(0, 256, (batch, h, w, 3), dtype=torch.uint8, device=bench.device)) for _ in range(BUFFERS)
    ]
    packed = [torch.stack(images).flatten() for images in lists]
    offsets = torch.arange(batch, device=bench.device) * (3 * h * w)
    sizes = np.tile(np.array([[h, w]], dtype=np.int32), (batch, 1))
    there = torch.from_numpy(sizes).to(bench.device)
    for antialias in (False, True):
        drawn, draw_us = _draw(TrainRecipe(crop=RandomResizedCrop(antialias=antialias)), bench, sizes)
        records = [torch.from_numpy(params.records).to(bench.device) for params in drawn]
        window = int(np.mean([p.records[:, 10].astype(np.int64) @ p.records[:, 11] for p in drawn])) * 3
        counted = window + batch * size * size * 3 * 2
        name = f"RRC {h}x{w} {'antialiased' if antialias else 'bilinear'} + flip + normalise"

        def from_packed(i: int, records: list[torch.Tensor] = records) -> torch.Tensor:
            i %= BUFFERS
            return ops.augment_packed(
                packed[i], offsets, there, records[i], (size, size), IMAGENET_MEAN, IMAGENET_STD,
                dtype=torch.bfloat16, chains=0, mix=False,
            )  # fmt: skip

        def from_list(i: int, records: list[torch.Tensor] = records) -> torch.Tensor:
            i %= BUFFERS
            return ops.augment_list(
                lists[i], records[i], (size, size), IMAGENET_MEAN, IMAGENET_STD,
                dtype=torch.bfloat16, chains=0, mix=False,
            )  # fmt: skip

        peak = bench.peak_mib(from_packed)
        bench.add(
            f"ours, packed: {name}", bench.time(from_packed), ours=True, counted=counted, draw_us=draw_us, peak=peak
        )
        bench.add(f"ours, list: {name}", bench.time(from_list), ours=True, counted=counted, draw_us=draw_us)


def factors(rows: list[Row]) -> dict[str, float]:
    """How many times our headline is as fast as each other way to RandAugment."""
    headline = next((row for row in rows if row.what == f"ours: {HEADLINE}"), None)
    others = [row for row in rows if "RandAugment" in row.what and not row.ours]
    return {row.what: row.median_us / headline.median_us for row in others} if headline is not None else {}


def pictures(shape: tuple[int, int, int, int], device: torch.device, seed: int) -> torch.Tensor:
    """Smooth images with some noise: histograms of noise alone would flatter the ops that count values.

    Returns:
        `shape` (N, H, W, 3), uint8, contiguous, on `device`; not the same on the CPU and on a GPU.
    """
    n, h, w, c = shape
    generator = torch.Generator(device).manual_seed(seed)
    coarse = torch.rand((n, c, 9, 9), device=device, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (h, w), mode="bicubic").permute(0, 2, 3, 1)
    noise = torch.randn((n, h, w, c), device=device, generator=generator) * 8
    return (smooth + noise).clamp(0, 255).to(torch.uint8).contiguous()  # or every op would copy its input first


def _augmented(x: torch.Tensor, records: torch.Tensor, chains: int) -> torch.Tensor:
    return ops.augment(x, records, IMAGENET_MEAN, IMAGENET_STD, dtype=torch.bfloat16, chains=chains)


def _draw(recipe: TrainRecipe, bench: Bench, sizes: NDArray[np.int32] | None = None) -> tuple[list[Params], float]:
    """BUFFERS different batches of records, and the median µs of a draw."""
    drawn, times = [], []
    for i in range(BUFFERS + 5):
        start = time.perf_counter()
        indices = np.arange(bench.batch) + i * bench.batch
        drawn.append(sample_params(recipe, indices, i, 1, bench.size, bench.size, sizes))
        times.append((time.perf_counter() - start) * 1e6)
    return drawn[-BUFFERS:], statistics.median(times)
