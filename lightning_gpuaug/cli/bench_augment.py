"""`gpuaug bench augment`: what augmenting a batch costs, beside the other ways to do it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.bench_output import Lines, add_output_options, at_least, require_places
from lightning_gpuaug.cli.errors import OK, UsageError, run_command
from lightning_gpuaug.cli.progress import step_bar

if TYPE_CHECKING:
    from lightning_gpuaug.bench.augment import Bench, Row
    from lightning_gpuaug.bench.environment import Environment

PEERS = ("torchvision", "kornia", "dali", "compiled")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug bench augment",
        description="How long one batch takes: ours (a program for every sample), torchvision sample by sample and "
        "batched, kornia, DALI, compiled torch, and a copy of as many bytes, which is the floor. Every row ends in "
        "bfloat16 channels_last, normalised. On a GPU: CUDA events, 30 warm-ups, median of 200 calls over rotating "
        "inputs. On the CPU: as many calls as fit into --seconds.",
        epilog="example: gpuaug bench augment --json augment.json --chart augment.png",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--batch", type=at_least(2, int), help="images a batch, an even number (default: 256; 32 on the CPU)"
    )
    parser.add_argument(
        "--size", type=at_least(8, int), default=224, help="height and width, pixels (default: %(default)s)"
    )
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="where (default: the GPU if there is one)"
    )
    parser.add_argument(
        "--seconds", type=at_least(0, float), default=1.0, help="of each row, on the CPU (default: %(default)s)"
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME",
        help=f"others to measure: {', '.join(PEERS)} (default: all that are installed)",
    )  # fmt: skip
    others.add_argument("--only-ours", action="store_true", help="leave the others out")
    add_output_options(parser)
    return parser


def run(options: argparse.Namespace, say: Lines) -> None:
    """Measure and publish."""
    import torch

    from lightning_gpuaug.bench import augment, augment_peers
    from lightning_gpuaug.bench.environment import environment, one_line
    from lightning_gpuaug.bench.report import document
    from lightning_gpuaug.devices import torch_device

    there = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch_device(there if options.device == "auto" else options.device)
    batch = options.batch if options.batch is not None else 256 if device.type == "cuda" else 32
    if batch % 2:
        raise UsageError(f"--batch must be even, for mixing pairs the images, got {batch}")
    peers = [] if options.only_ours else options.peers
    facts = environment()
    title = f"({batch}, {options.size}, {options.size}, 3) uint8 to bfloat16 channels_last on {device.type}, µs a batch"
    say(one_line(facts))
    say(f"\n{title}\n{augment.HEADER}")
    missing: dict[str, str] = {}
    with step_bar(3 + len(peers)) as doing:
        doing("inputs")
        bench = augment.Bench(device, batch, options.size, options.seconds, lambda row: say(str(row)))
        augment.floor(bench)
        doing("ours, dense")
        augment.dense(bench)
        doing("ours, with the crop")
        augment.ragged(bench)
        for name in peers:
            doing(name)
            reason = augment_peers.measure(name, bench)
            if reason is not None:
                missing[name] = reason
                say(f"{name}: {reason}")
    for what, factor in augment.factors(bench.rows).items():
        say(f"ours is {factor:,.1f} times as fast as {what}")
    settings = {"device": str(device), "batch": batch, "size": options.size}
    found = document(title, facts, settings, [asdict(row) for row in bench.rows])
    say.publish(found | {"factors": augment.factors(bench.rows), "missing": missing})
    if options.chart is not None:
        _draw(bench, facts, Path(options.chart))
        say(f"wrote {options.chart}")


def _draw(bench: Bench, facts: Environment, path: Path) -> None:
    from lightning_gpuaug.bench.chart import Bar, Panel, bar_chart
    from lightning_gpuaug.bench.environment import machine

    def time_of(row: Row) -> str:
        return f"{row.median_us:,.0f} us" if row.median_us < 10_000 else f"{row.median_us / 1000:,.0f} ms"

    rows = sorted(bench.rows, key=lambda row: -row.median_us)
    bars = [Bar(row.what, row.median_us, time_of(row), row.ours) for row in rows]
    bar_chart(
        [Panel(bars, "µs a batch, less is better", log=True)],
        path,
        title=f"Augmenting a batch of {bench.batch} at {bench.size} x {bench.size}, uint8 to bfloat16",
        note=machine(facts),
    )


def main(args: list[str]) -> int:
    """Run `gpuaug bench augment` with `args` and return the exit code."""
    return run_command("bench augment", lambda: _run(args))


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    require_places({"--json": options.json, "--chart": options.chart})
    run(options, Lines(options.json))
    return OK
