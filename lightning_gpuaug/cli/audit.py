"""`gpuaug audit`: prove, by counting, that a configuration delivers every sample as promised."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, run_command

if TYPE_CHECKING:
    from lightning_gpuaug.cli.data_config import DataParser
    from lightning_gpuaug.data import ImageDataModule, Stage
    from lightning_gpuaug.plan import Plan
    from lightning_gpuaug.tools.audit import Coverage

DEFAULT_WORLDS = (1, 2, 4, 8)


def run_audit(
    data: ImageDataModule,
    stages: list[Stage],
    worlds: list[int] | None,
    epochs: int,
    progress: Callable[[int], None],
) -> list[Coverage]:
    """Audit the plans of a data module.

    Args:
        data: it needs no device.
        stages: those to walk; it has data for them.
        worlds: numbers of ranks; if None 1, 2, 4, 8, without those for which there are too few samples.
        epochs: training epochs to walk.
        progress: told how many more walks are done.
    """
    from lightning_gpuaug.tools.audit import audit_epochs, audit_resume

    rows: list[Coverage] = []
    for stage in stages:

        def plans(rank: int, world: int, stage: Stage = stage) -> Plan:
            return data.plan(stage, rank, world)

        possible = []
        for world in worlds or DEFAULT_WORLDS:
            row = audit_epochs(stage, plans, world, epochs if stage == "train" else 1)
            if not row.refused:
                possible.append(world)
            if not row.refused or worlds is not None or world == 1:
                rows.append(row)
            progress(1)
        if stage == "train":
            for pair in combinations(possible, 2):
                resumed = audit_resume(stage, plans, pair)
                rows += [resumed] if resumed is not None else []
                progress(1)
    return rows


def _parser() -> DataParser:
    from lightning_gpuaug.cli.data_config import data_parser

    parser = data_parser(
        "audit",
        "Walk the plan of every stage with every rank and count: no sample missing or twice, no empty batch, equal "
        "steps on all ranks; then the same for a training epoch that is interrupted and continued by other ranks. "
        "No image is opened, no GPU is needed. Exit code 1 if a promise is broken.",
        "gpuaug audit --config configs/imagenet_resnet50.yaml --data.train /data/train --data.val /data/val",
    )
    parser.add_argument(
        "--world",
        type=list[int] | int | None,
        default=None,
        help="numbers of ranks, one or a list: [1,2,8]; 1, 2, 4 and 8 if left out, as far as there are samples",
    )
    parser.add_argument("--epochs", type=int, default=2, help="training epochs to walk")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON, and nothing else")
    return parser


def _audit(args: list[str]) -> tuple[list[Coverage], bool]:
    """The rows, and whether they are wanted as JSON."""
    from lightning_gpuaug.cli.data_config import made_data
    from lightning_gpuaug.cli.progress import progress_bar
    from lightning_gpuaug.data import STAGES

    parser = _parser()
    config = parser.parse_args(args)
    worlds = [config.world] if isinstance(config.world, int) else config.world
    if config.epochs < 1:
        raise UsageError(f"--epochs must be at least 1, got {config.epochs}")
    if worlds is not None and (not worlds or min(worlds) < 1 or len(set(worlds)) < len(worlds)):
        raise UsageError(f"--world must be numbers of ranks from 1, each once, got {worlds}")
    arguments = config.get("data.init_args")
    if arguments is None or "eval_recipe" not in arguments:
        raise UsageError(f"data must be an ImageDataModule, got {config.get('data.class_path')}")
    stages = [stage for stage in STAGES if arguments.get(stage) is not None]
    if not stages:
        raise UsageError("no data: give --data.train a folder of class folders, or --config a file that does")
    data = made_data(parser, config)
    count = len(worlds or DEFAULT_WORLDS)
    total = len(stages) * count + ("train" in stages) * count * (count - 1) // 2
    with progress_bar("audit", total, "walks") as advance:
        return run_audit(data, stages, worlds, config.epochs, advance), config.json


def _print(rows: list[Coverage]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 100)  # a table cut short tells nothing
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("stage", "ranks", "batch", "samples", "steps", "per rank", "missing", "twice", "left out", ""):
        table.add_column(name, justify="left" if name in ("stage", "ranks", "") else "right", no_wrap=True)
    for row in rows:
        low, high = row.per_rank
        share = "" if high == 0 else f"{low:,}" if low == high else f"{low:,}–{high:,}"
        numbers = (row.batch_size, row.samples, row.steps, share, row.missing, row.twice, row.left_out)
        cells = [number if isinstance(number, str) else f"{number:,}" for number in numbers]
        verdict = "[green]holds[/green]" if not row.problems else "[red]broken[/red]"
        if row.refused:
            cells, verdict = [""] * len(cells), "[red]refused[/red]"
        table.add_row(row.stage, _ranks(row), *cells, verdict)
    console.print(table)
    if any(len(row.worlds) > 1 for row in rows):
        console.print("a→b→a: an epoch begun by a ranks, continued by b, ended by a", markup=False)
    for row in rows:
        for problem in row.problems:
            console.print(f"{row.stage}, {_ranks(row)} rank(s): {problem}", markup=False)


def _ranks(row: Coverage) -> str:
    return "→".join(map(str, row.worlds))


def main(args: list[str]) -> int:
    """Run `gpuaug audit` with `args` and return the exit code."""
    return run_command("audit", lambda: _run(args))


def _run(args: list[str]) -> int:
    rows, as_json = _audit(args)
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2))
    else:
        _print(rows)
    return FOUND_PROBLEMS if any(row.problems for row in rows) else OK
