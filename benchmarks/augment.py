"""How long augmentation takes on a GPU: ours, torchvision, kornia, DALI, compiled torch and a device copy, in one run.

    python -m benchmarks.augment [--batch 256] [--size 224] [--json augment.json] [--chart augment.png]

GPU times are CUDA events, queued ahead, 30 warm-ups, median of 200 calls over rotating inputs and outputs larger than
the L2 cache together; the records rotate too, each batch drawn anew. Per-sample loops and DALI are timed by the clock
over a few batches, since their cost is the host's. Every row ends in bfloat16 channels_last, normalised.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.normalize import BUFFERS, MEAN, STD, Timing, copy_timing, environment, time_calls
from lightning_gpuaug import ops
from lightning_gpuaug.augment import Params, sample_params
from lightning_gpuaug.recipe import (
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


@dataclass(frozen=True)
class Row:
    """One line of the table: µs a batch; counted bytes are what must be read and written at least once."""

    what: str
    median_us: float
    p10_us: float
    p90_us: float
    host_us: float
    draw_us: float | None
    peak_mib: float | None
    counted_bytes: int
    copy_us: float


def clock(call: Callable[[], object], calls: int = 5) -> Timing:
    """Median wall time of a call that ends on the GPU."""
    call()
    times = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return Timing(statistics.median(times), min(times), max(times), statistics.median(times))


class Bench:
    """Collects rows, each beside a copy of as many bytes."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._copies: dict[int, float] = {}

    def add(
        self, what: str, timing: Timing, counted: int, draw_us: float | None = None, peak: float | None = None
    ) -> None:
        if counted not in self._copies:
            self._copies[counted] = copy_timing(counted).median_us
        row = Row(
            what, **asdict(timing), draw_us=draw_us, peak_mib=peak, counted_bytes=counted, copy_us=self._copies[counted]
        )
        self.rows.append(row)
        draw = "" if draw_us is None else f"{draw_us:8.0f}"
        memory = "" if peak is None else f"{peak:8.0f}"
        print(f"{what:52} {row.median_us:10.1f} {row.p10_us:10.1f} {row.p90_us:10.1f} {row.host_us:8.1f} {draw:>8} "
              f"{memory:>8} {counted / row.median_us * 1e-6:7.2f} {row.copy_us:7.1f}", flush=True)  # fmt: skip


def peak_mib(call: Callable[[int], object]) -> float:
    """Device memory that one call takes beyond what was there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = call(0)
    torch.cuda.synchronize()
    del kept
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def draw_batches(
    recipe: TrainRecipe, batch: int, size: int, sizes: np.ndarray | None = None
) -> tuple[list[Params], float]:
    """BUFFERS different batches of records, and µs a draw."""
    drawn, times = [], []
    for i in range(BUFFERS + 5):
        start = time.perf_counter()
        drawn.append(sample_params(recipe, np.arange(batch) + i * batch, i, 1, size, size, sizes))
        times.append((time.perf_counter() - start) * 1e6)
    return drawn[-BUFFERS:], statistics.median(times)


def ours(bench: Bench, inputs: list[torch.Tensor]) -> None:
    batch, size = inputs[0].shape[:2]
    counted = inputs[0].numel() * 3
    for name, recipe in RECIPES.items():
        drawn, draw_us = draw_batches(recipe, batch, size)
        records = [torch.from_numpy(params.records).cuda() for params in drawn]
        chains = drawn[0].chains

        def call(i: int, records: list[torch.Tensor] = records, chains: int = chains) -> torch.Tensor:
            return ops.augment(
                inputs[i % BUFFERS], records[i % BUFFERS], MEAN, STD, dtype=torch.bfloat16, chains=chains
            )

        if not torch.equal(call(0).cpu()[:4], _on_cpu(inputs[0], records[0], chains)[:4]):
            raise SystemExit(f"wrong result: {name}")
        bench.add(f"ours: {name}", time_calls(call), counted, draw_us, peak_mib(call))
    graph = torch.cuda.CUDAGraph()
    call(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kept = call(0)
    bench.add(f"ours: {name}, as a CUDA graph", time_calls(lambda _: graph.replay()), counted)
    del kept


def _on_cpu(x: torch.Tensor, records: torch.Tensor, chains: int) -> torch.Tensor:
    return ops.augment(x.cpu(), records.cpu(), MEAN, STD, dtype=torch.bfloat16, chains=chains)


def ragged(bench: Bench, batch: int, size: int) -> None:
    height, width = 375, 500
    lists = [
        list(torch.randint(0, 256, (batch, height, width, 3), dtype=torch.uint8, device="cuda")) for _ in range(BUFFERS)
    ]
    packed = [torch.stack(images).flatten() for images in lists]
    offsets = torch.arange(batch, device="cuda") * (3 * height * width)
    sizes = np.tile(np.array([[height, width]], dtype=np.int32), (batch, 1))
    on_gpu = torch.from_numpy(sizes).cuda()
    for antialias in (False, True):
        recipe = TrainRecipe(crop=RandomResizedCrop(antialias=antialias))
        drawn, draw_us = draw_batches(recipe, batch, size, sizes)
        records = [torch.from_numpy(params.records).cuda() for params in drawn]
        window = int(np.mean([p.records[:, 10].astype(np.int64) @ p.records[:, 11] for p in drawn])) * 3
        counted = window + batch * size * size * 3 * 2
        name = f"RRC {height}x{width} {'antialiased' if antialias else 'bilinear'} + flip + normalise"

        def from_packed(i: int, records: list[torch.Tensor] = records) -> torch.Tensor:
            i %= BUFFERS
            return ops.augment_packed(packed[i], offsets, on_gpu, records[i], (size, size), MEAN, STD,
                                      dtype=torch.bfloat16, chains=0, mix=False)  # fmt: skip

        def from_list(i: int, records: list[torch.Tensor] = records) -> torch.Tensor:
            i %= BUFFERS
            return ops.augment_list(
                lists[i], records[i], (size, size), MEAN, STD, dtype=torch.bfloat16, chains=0, mix=False
            )

        bench.add(f"ours, packed: {name}", time_calls(from_packed), counted, draw_us, peak_mib(from_packed))
        bench.add(f"ours, list: {name}", time_calls(from_list), counted, draw_us)


def torchvision(bench: Bench, inputs: list[torch.Tensor]) -> None:
    try:
        from torchvision.transforms import v2
    except ImportError:
        print("torchvision: not installed")
        return
    images = [x.permute(0, 3, 1, 2) for x in inputs]
    counted = inputs[0].numel() * 3
    finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    layout = torch.channels_last
    plain = v2.Compose([v2.RandomHorizontalFlip(), finish, v2.RandomErasing(0.25)])
    randaugment = v2.Compose([v2.RandomHorizontalFlip(), v2.RandAugment(2, 9), finish, v2.RandomErasing(0.25)])

    def per_sample(transform: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: torch.stack([transform(image) for image in images[0]]).to(torch.bfloat16, memory_format=layout)

    def batched(transform: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[int], torch.Tensor]:
        return lambda i: transform(images[i % BUFFERS]).to(torch.bfloat16, memory_format=layout)

    bench.add("torchvision, a sample at a time: flip, normalise, erase", clock(per_sample(plain), 3), counted)
    bench.add("torchvision, a sample at a time: + RandAugment(2, 9)", clock(per_sample(randaugment), 3), counted)
    bench.add("torchvision, ops drawn once a batch: + RandAugment", clock(lambda: batched(randaugment)(0), 50), counted)


def kornia(bench: Bench, inputs: list[torch.Tensor]) -> None:
    try:
        from kornia import augmentation as K
        from kornia.augmentation.auto import RandAugment as KorniaRandAugment
    except ImportError:
        print("kornia: not installed")
        return
    counted = inputs[0].numel() * 3
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    auto = K.AugmentationSequential(K.RandomHorizontalFlip(), KorniaRandAugment(2, 9), K.Normalize(mean, std))
    jitter = K.AugmentationSequential(
        K.RandomHorizontalFlip(), K.ColorJitter(0.4, 0.4, 0.4, 0.1), K.Normalize(mean, std)
    )

    def run(augmentation: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: augmentation(inputs[0].permute(0, 3, 1, 2).float() / 255).to(torch.bfloat16)

    bench.add("kornia, ops drawn once a batch: + RandAugment(2, 9)", clock(run(auto), 20), counted)
    bench.add("kornia, a draw a sample: + ColorJitter", clock(run(jitter), 20), counted)


def dali(bench: Bench, inputs: list[torch.Tensor]) -> None:
    try:
        import nvidia.dali.fn as fn
        import nvidia.dali.types as types
        from nvidia.dali import pipeline_def
        from nvidia.dali.auto_aug import rand_augment
    except ImportError:
        print("DALI: not installed")
        return
    batch, size = inputs[0].shape[:2]
    pixels = [np.ascontiguousarray(x.cpu().numpy()) for x in inputs]

    def pipeline(augmented: bool) -> Callable[[], object]:
        @pipeline_def(batch_size=batch, num_threads=8, device_id=0, enable_conditionals=True, seed=1)
        def graph() -> object:
            images = fn.external_source(lambda i: pixels[i.iteration % BUFFERS], batch=True, batch_info=True).gpu()
            images = fn.reshape(images, layout="HWC")
            if augmented:
                images = rand_augment.rand_augment(images, n=2, m=9, shape=(size, size))
            mean, std = [255 * m for m in MEAN], [255 * s for s in STD]
            flip = fn.random.coin_flip()
            return fn.crop_mirror_normalize(
                images, dtype=types.FLOAT16, output_layout="HWC", mirror=flip, mean=mean, std=std
            )

        pipe = graph()
        pipe.build()
        return pipe.run

    for name, augmented in (
        ("flip + normalise (with the upload)", False),
        ("+ RandAugment(2, 9) (with the upload)", True),
    ):
        bench.add(f"DALI: {name}", clock(pipeline(augmented), 20), inputs[0].numel() * 3)


def compiled(bench: Bench, inputs: list[torch.Tensor]) -> None:
    mean, std = (torch.tensor(v, device="cuda").view(1, 3, 1, 1) for v in (MEAN, STD))
    flips = torch.arange(len(inputs[0]), device="cuda") % 2 == 1

    def normalise(x: torch.Tensor) -> torch.Tensor:
        x = torch.where(flips[:, None, None, None], x.flip(2), x)
        return x.permute(0, 3, 1, 2).float().div(255).sub(mean).div(std).to(torch.bfloat16)

    call = torch.compile(normalise, dynamic=False)
    bench.add(
        "compiled torch: flip + normalise", time_calls(lambda i: call(inputs[i % BUFFERS])), inputs[0].numel() * 3
    )


def chart(rows: list[Row], path: Path) -> None:
    """Bars on a logarithmic scale, ours in green."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 0.32 * len(rows) + 1.2))
    ordered = sorted(rows, key=lambda row: -row.median_us)
    colors = ["#2a9d4e" if row.what.startswith("ours") else "#8d99ae" for row in ordered]
    bars = axes.barh([row.what for row in ordered], [row.median_us for row in ordered], color=colors)
    axes.bar_label(bars, [f"{row.median_us:,.0f} µs" for row in ordered], padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("µs a batch (log scale)")
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def factors(rows: list[Row]) -> dict[str, float]:
    """How many times our headline is faster than each other way to RandAugment."""
    (headline,) = (row for row in rows if row.what == f"ours: {HEADLINE}")
    others = [row for row in rows if "RandAugment" in row.what and not row.what.startswith("ours")]
    return {row.what: row.median_us / headline.median_us for row in others}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="images a batch (default: 256)")
    parser.add_argument("--size", type=int, default=224, help="height and width in pixels (default: 224)")
    parser.add_argument("--only-ours", action="store_true", help="leave the other libraries out")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--chart", type=Path, help="also draw a bar chart into this PNG")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/augment.py needs a CUDA GPU; there is none here", file=sys.stderr)
        return 2
    facts = environment(options.batch, options.size)
    print(f"{facts['gpu']}, torch {facts['torch']} (CUDA {facts['torch_cuda']}), backend {facts['backend']}, "
          f"({options.batch}, {options.size}, {options.size}, 3) uint8 to bfloat16 channels_last, µs")  # fmt: skip
    print(f"{'':52} {'median':>10} {'p10':>10} {'p90':>10} {'host':>8} {'draw':>8} {'MiB':>8} {'TB/s':>7} {'copy':>7}")
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (options.batch, options.size, options.size, 3)
    inputs = [_pictures(shape, generator) for _ in range(BUFFERS)]
    bench = Bench()
    ours(bench, inputs)
    ragged(bench, options.batch, options.size)
    compiled(bench, inputs)
    if not options.only_ours:
        for other in (torchvision, kornia, dali):
            try:
                other(bench, inputs)
            except Exception as error:  # another library's failure must not lose our figures
                print(f"{other.__name__}: failed: {type(error).__name__}: {error}")
        for what, factor in factors(bench.rows).items():
            print(f"ours is {factor:,.0f} times as fast as {what}")
    if options.json:
        result = {"environment": facts, "rows": [asdict(row) for row in bench.rows], "factors": factors(bench.rows)}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {options.json}")
    if options.chart:
        chart(bench.rows, options.chart)
        print(f"wrote {options.chart}")
    return 0


def _pictures(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Smooth images with some noise: histograms of noise alone would flatter the ops that count values."""
    n, h, w, c = shape
    coarse = torch.rand((n, c, 9, 9), device="cuda", generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (h, w), mode="bicubic").permute(0, 2, 3, 1)
    noise = torch.randn((n, h, w, c), device="cuda", generator=generator) * 8
    return (smooth + noise).clamp(0, 255).to(torch.uint8).contiguous()  # or every op would copy its input first


if __name__ == "__main__":
    sys.exit(main())
