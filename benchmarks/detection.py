"""nms, roi_align and warp against torchvision, grid_sample and kornia, side by side in one run.

    python -m benchmarks.detection                  # the GPU if there is one
    python -m benchmarks.detection --device cpu     # nms and roi_align on one and two threads
    python -m benchmarks.detection --json out.json

On a GPU a figure is the median of 100 CUDA-event timings after 20 warm-ups, over inputs that rotate through more than
the L2 cache where the op is bound by memory. On the CPU it is the median of the runs that fit in about two seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision

from benchmarks.report import environment
from lightning_gpuaug import ops
from lightning_gpuaug.ops import matrices

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One comparison; times in milliseconds."""

    what: str
    ours: float
    other: str
    theirs: float
    target: float | None
    note: str = ""

    @property
    def ratio(self) -> float:
        """How many times faster than the other."""
        return self.theirs / self.ours

    def __str__(self) -> str:
        """One line of the table."""
        verdict = (
            "" if self.target is None else f"{'ok' if self.ratio >= self.target else 'MISSED'} (>= {self.target}x)"
        )
        return (
            f"{self.what:58} {self.ours:9.3f} ms   {self.other:24} {self.theirs:9.3f} ms   {self.ratio:6.2f}x  "
            f"{verdict:18} {self.note}"
        )


def time_cuda(call: Call, repeats: int = 100, warm_up: int = 20) -> float:
    for _ in range(warm_up):
        call()
    torch.cuda.synchronize()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in pairs:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


def time_cpu(call: Call) -> float:
    call()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < 2 and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def boxes_like_a_detector(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes at a constant density, as in a larger and larger picture; most of them stay."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * (n / 1000) ** 0.5 * 1000
    size = torch.rand(n, 2, generator=g) * 100 + 1
    return torch.cat([corner, corner + size], 1), torch.rand(n, generator=g)


def boxes_that_overlap(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes on one picture; the more, the more are suppressed."""
    g = torch.Generator().manual_seed(seed)
    corner = torch.rand(n, 2, generator=g) * 1000
    size = torch.rand(n, 2, generator=g) * 100 + 1
    return torch.cat([corner, corner + size], 1), torch.rand(n, generator=g)


def nms_rows(device: str, timer: Callable[[Call], float], sizes: tuple[int, ...], target: float) -> Iterator[Row]:
    for name, make in (("sparse", boxes_like_a_detector), ("crowded", boxes_that_overlap)):
        for n in sizes:
            boxes, scores = (t.to(device) for t in make(n))
            kept = ops.nms(boxes, scores, 0.5)
            assert torch.equal(kept, torchvision.ops.nms(boxes, scores, 0.5))
            yield Row(
                f"nms {name} {n:,} boxes ({len(kept):,} kept)",
                timer(lambda b=boxes, s=scores: ops.nms(b, s, 0.5)),
                "torchvision",
                timer(lambda b=boxes, s=scores: torchvision.ops.nms(b, s, 0.5)),
                target,
                f"padded, no wait: {timer(lambda b=boxes, s=scores, n=n: ops.nms_padded(b, s, 0.5, n)):.3f} ms",
            )


def batched_nms_row(device: str, timer: Callable[[Call], float], n: int) -> Row:
    boxes, scores = (t.to(device) for t in boxes_that_overlap(n))
    classes = torch.randint(0, 80, (n,), generator=torch.Generator().manual_seed(1)).to(device)
    kept = ops.batched_nms(boxes, scores, classes, 0.5)
    return Row(
        f"batched_nms {n:,} boxes in 80 classes ({len(kept):,} kept)",
        timer(lambda: ops.batched_nms(boxes, scores, classes, 0.5)),
        "torchvision",
        timer(lambda: torchvision.ops.batched_nms(boxes, scores, classes, 0.5)),
        None,
    )


def regions(k: int, images: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    part = torch.rand(k, 4, generator=g)
    x, y = part[:, 0] * 1000, part[:, 1] * 700
    image = torch.randint(0, images, (k,), generator=g).float()
    return torch.stack([image, x, y, x + part[:, 2] * 300 + 8, y + part[:, 3] * 300 + 8], 1)


def roi_align_rows(
    device: str, timer: Callable[[Call], float], k: int, dtypes: tuple[torch.dtype, ...]
) -> Iterator[Row]:
    rois = regions(k, 2).to(device)
    for layout, layout_name, target in (
        (torch.contiguous_format, "NCHW", 1.0),
        (torch.channels_last, "channels_last", 1.5 if device == "cuda" else 1.0),
    ):
        for dtype in dtypes:
            x = torch.randn(2, 256, 100, 152, generator=torch.Generator().manual_seed(0))
            x = x.to(device, dtype).to(memory_format=layout)
            # torchvision's CUDA op has no bfloat16: float16 stands for it.
            peer = torch.float16 if dtype == torch.bfloat16 and device == "cuda" else dtype
            their_x, theirs = x.to(peer), rois.to(peer)
            peer_name = f"torchvision {str(peer)[6:]}" if peer != dtype else "torchvision"
            for ratio in (2, 0):
                name = f"roi_align {k} x 256 x 7 x 7 {layout_name} {str(dtype)[6:]} {ratio or 'adaptive'}"

                def ours_forward(x: torch.Tensor = x, ratio: int = ratio) -> torch.Tensor:
                    return ops.roi_align(x, rois, 7, 1 / 8, ratio, True)

                def theirs_forward(
                    x: torch.Tensor = their_x, theirs: torch.Tensor = theirs, ratio: int = ratio
                ) -> torch.Tensor:
                    return torchvision.ops.roi_align(x, theirs, 7, 1 / 8, ratio, True)

                yield Row(f"{name} forward", timer(ours_forward), peer_name, timer(theirs_forward), target)
                times = []
                for forward, images in ((ours_forward, x), (theirs_forward, their_x)):
                    leaf = images.detach().requires_grad_()
                    result = forward(leaf)
                    upstream = torch.ones_like(result)
                    times.append(
                        timer(lambda r=result, v=leaf, u=upstream: torch.autograd.grad(r, v, u, retain_graph=True))
                    )
                yield Row(f"{name} backward", times[0], peer_name, times[1], target)


def warp_rows(timer: Callable[[Call], float]) -> Iterator[Row]:
    n, side = 256, 224
    m = matrices.compose(
        matrices.rotation(torch.linspace(-30, 30, n), (side / 2, side / 2)),
        matrices.scaling(torch.linspace(0.8, 1.25, n), 1.1, (side / 2, side / 2)),
    ).cuda()
    try:
        import kornia
    except ImportError:
        kornia = None
    for dtype in (torch.uint8, torch.float16, torch.float32):
        size = n * 3 * side * side * torch.empty(0, dtype=dtype).element_size()
        count = max(2, int(200e6 / size) + 1)  # more than the L2 cache holds
        buffers = [torch.randint(0, 256, (n, 3, side, side), device="cuda").to(dtype) for _ in range(count)]
        outs = [torch.empty_like(b) for b in buffers]
        pairs = cycle(zip(buffers, outs, strict=True))
        inputs = cycle(buffers)

        def copy(pairs: Iterator[tuple[torch.Tensor, torch.Tensor]] = pairs) -> None:
            source, target = next(pairs)
            target.copy_(source)

        copied = timer(copy)
        grid = F.affine_grid(torch.eye(2, 3, device="cuda").expand(n, 2, 3), [n, 3, side, side], align_corners=False)
        pixels = (grid + 1) * side / 2
        moved = torch.cat([pixels, torch.ones_like(pixels[..., :1])], -1).flatten(1, 2) @ m[:, :2].mT
        grid = (moved / side * 2 - 1).view(n, side, side, 2)
        for kind in ("bilinear", "nearest", "bicubic"):
            ours = timer(lambda i=inputs, k=kind: ops.warp(next(i), m, interpolation=k))
            note = f"{copied / ours:.0%} of a copy ({2 * size / copied / 1e6:.0f} GB/s)"
            what = f"warp ({n},3,{side},{side}) {str(dtype)[6:]} {kind}"
            work = torch.float32 if dtype == torch.uint8 else dtype

            places = grid.to(work)

            def sample(i: Iterator[torch.Tensor] = inputs, k: str = kind, g: torch.Tensor = places) -> torch.Tensor:
                return F.grid_sample(next(i).to(g.dtype), g, k, align_corners=False)

            yield Row(what, ours, "grid_sample, grid given", timer(sample), None, note)
            if kornia is not None and dtype != torch.uint8 and kind != "bicubic":
                forward = torch.linalg.inv(m)[:, :2].to(dtype)

                def with_kornia(i: Iterator[torch.Tensor] = inputs, k: str = kind, f: torch.Tensor = forward) -> object:
                    return kornia.geometry.warp_affine(next(i), f, (side, side), k, align_corners=False)

                yield Row(what, ours, "kornia", timer(with_kornia), None)
        last = cycle([b.to(memory_format=torch.channels_last) for b in buffers])
        ours = timer(lambda i=last: ops.warp(next(i), m))
        yield Row(
            f"warp ({n},3,{side},{side}) {str(dtype)[6:]} bilinear channels_last", ours, "a copy", copied, None,
            f"{copied / ours:.0%} of a copy",
        )  # fmt: skip


def rows(device: str) -> Iterator[Row]:
    if device == "cuda":
        yield from nms_rows("cuda", time_cuda, (1_000, 10_000, 50_000), 2.0)
        yield batched_nms_row("cuda", time_cuda, 100_000)
        boxes, scores = (t.cuda() for t in boxes_that_overlap(2_000))
        soft = time_cuda(lambda: ops.soft_nms(boxes, scores), repeats=20, warm_up=3)
        cpu = time_cpu(lambda: ops.soft_nms(boxes.cpu(), scores.cpu()))
        yield Row("soft_nms 2,000 boxes", soft, "ours on the CPU", cpu, None)
        yield from roi_align_rows("cuda", time_cuda, 1000, (torch.float32, torch.float16, torch.bfloat16))
        yield from warp_rows(time_cuda)
        return
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for row in (
            *nms_rows("cpu", time_cpu, (1_000, 10_000), 1.0),
            batched_nms_row("cpu", time_cpu, 20_000),
            *roi_align_rows("cpu", time_cpu, 200, (torch.float32,)),
        ):
            yield Row(f"{threads} thread(s): {row.what}", row.ours, row.other, row.theirs, row.target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    assert ops.backend(arguments.device) == f"native-{arguments.device}", ops.build_info()
    about = environment()
    print(", ".join(f"{key} {value}" for key, value in about.items() if value is not None), flush=True)
    found = []
    for row in rows(arguments.device):
        print(row, flush=True)
        found.append(asdict(row) | {"ratio": row.ratio})
    missed = [row["what"] for row in found if row["target"] is not None and row["ratio"] < row["target"]]
    print(f"{len(missed)} of {sum(row['target'] is not None for row in found)} targets missed")
    if arguments.json:
        arguments.json.write_text(json.dumps({"environment": about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
