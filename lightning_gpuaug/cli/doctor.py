"""`gpuaug doctor`: is this machine fit to feed a GPU, and what to do where it is not."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.bench_output import at_least
from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, run_command
from lightning_gpuaug.cli.progress import step_bar

if TYPE_CHECKING:
    from lightning_gpuaug.bench.environment import Environment
    from lightning_gpuaug.doctor.finding import Finding

SCHEMA_VERSION = 1
_MARKS = {"ok": ("✓", "green"), "note": ("·", "yellow"), "problem": ("✗", "bold red")}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug doctor",
        description="Check this machine: driver, torch, DALI and its flavour, native ops, JPEG engine, CUDA queues, "
        "cores and their quota, shared memory, storage, and a few seconds of decoding. Says what to do about each "
        "finding. A machine without a GPU is no problem by itself.",
        epilog="example: gpuaug doctor --path /data/train",
        allow_abbrev=False,
    )
    parser.add_argument("--path", help="folder of images: measure its storage, decode its images")
    parser.add_argument(
        "--seconds", type=at_least(0, float), default=5.0, help="of decoding, 0 for none (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON, and nothing else")
    return parser


def _print(findings: list[Finding], verdict: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.level]
        table.add_row(Text(mark, style), finding.check, Text(finding.found))
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", style))
    console = Console()
    console.print(table)
    console.print(f"\nverdict: {verdict}", highlight=False)


def _environment() -> Environment | None:
    try:
        from lightning_gpuaug.bench.environment import environment

        return environment()
    except (ImportError, RuntimeError):  # what is broken is among the findings
        return None


def main(args: list[str]) -> int:
    """Run `gpuaug doctor` with `args` and return the exit code."""
    return run_command("doctor", lambda: _run(args))


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    path = None if options.path is None else Path(options.path)
    if path is not None and (not options.path or not path.is_dir()):  # an empty text would be the current folder
        raise UsageError(f"--path must be a folder of images, got {options.path or repr(options.path)}")
    from lightning_gpuaug.doctor.report import examine, verdict

    with step_bar(6) as doing:
        findings = list(examine(path, options.seconds, doing))
    word = verdict(findings)
    if options.json:
        found = {"schema": SCHEMA_VERSION, "verdict": word, "environment": _environment()}
        json.dump(found | {"findings": [asdict(finding) for finding in findings]}, sys.stdout, indent=2)
        print()
    else:
        _print(findings, word)
    return FOUND_PROBLEMS if any(finding.level == "problem" for finding in findings) else OK
