"""`gpuaug bench`: how fast augmentation and loading are here, beside what else is installed."""

from __future__ import annotations

from importlib import import_module

from lightning_gpuaug.cli.errors import OK, USAGE, report

WHAT = {
    "augment": (
        "lightning_gpuaug.cli.bench_augment",
        "augmentation of a batch: ours, torchvision, kornia, DALI, a copy",
    ),
    "loader": (
        "lightning_gpuaug.cli.bench_loader",
        "loading from files: ours, its stages, torchvision, timm, raw DALI",
    ),
}


def _overview() -> str:
    lines = "\n".join(f"  {name:<10} {line}" for name, (_, line) in WHAT.items())
    return f"""usage: gpuaug bench [--help] {{{",".join(WHAT)}}} ...

Measure on this machine, in one run, after a warm-up; medians; a table, JSON and a bar chart.

{lines}

`gpuaug bench WHAT --help` shows the options.

example: gpuaug bench loader --config configs/imagenet_resnet50.yaml --data.train /data/train --tune
"""


def main(args: list[str]) -> int:
    """Run `gpuaug bench` with `args` and return the exit code."""
    if not args or args[0] in ("-h", "--help"):
        print(_overview(), end="")
        return OK if args else USAGE
    if args[0] not in WHAT:
        report("bench", f"what to measure must be one of {', '.join(WHAT)}, got {args[0]!r}")
        return USAGE
    command = import_module(WHAT[args[0]][0])
    code: int = command.main(args[1:])
    return code
