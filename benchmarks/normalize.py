"""How long the normalize op takes on a GPU, beside a device copy of the same bytes and torch, in one run.

    python -m benchmarks.normalize [--batch 256] [--size 224] [--json normalize.json]

CUDA events around every call, the queue filled ahead so that host time does not count, 30 warm-ups, median of 200 calls
over rotating inputs and outputs that are larger than the L2 cache together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from lightning_gpuaug import ops
from lightning_gpuaug.bench.environment import environment
from lightning_gpuaug.bench.timing import BUFFERS, Timing, copy_timing, time_calls
from lightning_gpuaug.ops import reference
from lightning_gpuaug.recipe import IMAGENET_MEAN as MEAN
from lightning_gpuaug.recipe import IMAGENET_STD as STD


@dataclass(frozen=True)
class Row:
    """One line of the table: times in µs a batch, traffic in bytes a batch."""

    what: str
    median_us: float
    p10_us: float
    p90_us: float
    host_us: float
    traffic_bytes: int
    copy_us: float

    @property
    def over_copy(self) -> float:
        return self.median_us / self.copy_us


def torch_normalize(
    x: torch.Tensor, flip: torch.Tensor | None, mean: torch.Tensor, std: torch.Tensor, dtype: torch.dtype,
    memory_format: torch.memory_format,
) -> torch.Tensor:  # fmt: skip
    """What a user of plain torch would write."""
    if flip is not None:
        x = torch.where(flip[:, None, None, None], x.flip(2), x)
    images = x.permute(0, 3, 1, 2).float().div(255).sub(mean).div(std)
    return images.to(dtype).contiguous(memory_format=memory_format)


def check(x: torch.Tensor, flip: torch.Tensor | None, dtype: torch.dtype, channels_last: bool) -> None:
    """A fast wrong answer is no answer."""
    few = x[:8].cpu()
    few_flips = None if flip is None else flip[:8].cpu()
    got = ops.normalize(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)[:8].cpu()
    if not torch.equal(got, reference.normalize(few, MEAN, STD, few_flips, dtype, channels_last)):
        raise SystemExit(f"wrong result: dtype={dtype}, channels_last={channels_last}, flip={flip is not None}")


def run(batch: int, size: int) -> list[Row]:
    inputs = [torch.randint(0, 256, (batch, size, size, 3), dtype=torch.uint8, device="cuda") for _ in range(BUFFERS)]
    flips = torch.arange(batch, device="cuda") % 2 == 1
    mean = torch.tensor(MEAN, device="cuda").view(1, 3, 1, 1)
    std = torch.tensor(STD, device="cuda").view(1, 3, 1, 1)
    copies: dict[int, Timing] = {}
    rows: list[Row] = []

    def measure(what: str, traffic: int, call: Callable[[int], object]) -> None:
        timing = time_calls(call)
        if traffic not in copies:
            copies[traffic] = copy_timing(traffic)
        rows.append(Row(what, **asdict(timing), traffic_bytes=traffic, copy_us=copies[traffic].median_us))
        print_row(rows[-1])

    for dtype in (torch.bfloat16, torch.float32, torch.uint8):
        traffic = inputs[0].numel() * (1 + dtype.itemsize)
        for channels_last in (True, False):
            for flip in (None, flips):
                name = (f"{str(dtype).removeprefix('torch.')} {'channels_last' if channels_last else 'NCHW'}"
                        f"{'' if flip is None else ' +flip'}")  # fmt: skip
                check(inputs[0], flip, dtype, channels_last)
                measure(
                    f"ops.normalize    {name}", traffic,
                    lambda i, f=flip, d=dtype, c=channels_last: ops.normalize(
                        inputs[i % BUFFERS], MEAN, STD, flip=f, dtype=d, channels_last=c),
                )  # fmt: skip
    odd = [torch.cat([torch.zeros(1, dtype=torch.uint8, device="cuda"), x.flatten()])[1:].view_as(x) for x in inputs]
    measure(
        "ops.normalize    bfloat16 channels_last, odd address", inputs[0].numel() * 3,
        lambda i: ops.normalize(odd[i % BUFFERS], MEAN, STD, dtype=torch.bfloat16),
    )  # fmt: skip
    compiled = torch.compile(torch_normalize, dynamic=False)
    for channels_last in (True, False):
        memory_format = torch.channels_last if channels_last else torch.contiguous_format
        for flip in (None, flips):
            name = f"bfloat16 {'channels_last' if channels_last else 'NCHW'}{'' if flip is None else ' +flip'}"
            for kind, function in (("torch eager  ", torch_normalize), ("torch.compile", compiled)):
                measure(
                    f"{kind}    {name}", inputs[0].numel() * 3,
                    lambda i, call=function, f=flip, m=memory_format: call(
                        inputs[i % BUFFERS], f, mean, std, torch.bfloat16, m),
                )  # fmt: skip
    return rows


def print_row(row: Row) -> None:
    rate = row.traffic_bytes / row.median_us * 1e-6
    print(f"{row.what:56} {row.median_us:8.1f} {row.p10_us:8.1f} {row.p90_us:8.1f} {row.host_us:8.1f} {rate:8.2f} "
          f"{row.copy_us:8.1f} {row.over_copy:8.2f}", flush=True)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="images a batch (default: 256)")
    parser.add_argument("--size", type=int, default=224, help="height and width in pixels (default: 224)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks/normalize.py needs a CUDA GPU; there is none here", file=sys.stderr)
        return 2
    facts = environment() | {"batch": options.batch, "size": options.size}
    print(f"{facts['gpu']}, torch {facts['torch']} (CUDA {facts['cuda']}), backend {facts['backend']}, "
          f"({options.batch}, {options.size}, {options.size}, 3) uint8, µs a batch")  # fmt: skip
    print(f"{'':56} {'median':>8} {'p10':>8} {'p90':>8} {'host':>8} {'TB/s':>8} {'copy':>8} {'/copy':>8}")
    rows = run(options.batch, options.size)
    if options.json:
        result = {"environment": facts, "rows": [asdict(row) | {"over_copy": row.over_copy} for row in rows]}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
        print(f"wrote {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
