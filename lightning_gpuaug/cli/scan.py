"""`gpuaug scan`: check every image of a data set before a training run does."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, run_command
from lightning_gpuaug.cli.record_options import add_record_options, record_options

if TYPE_CHECKING:
    from lightning_gpuaug.tools.report import ScanReport


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug scan",
        description="Check every image of a data set: unreadable, empty, cut, of a type that cannot be decoded, too "
        "large by its header. Counts classes and sizes. Reads every byte; JPEG and PNG are checked by their structure, "
        "without decoding, so it runs at about the speed of the disk.",
        epilog="example: gpuaug scan /data/train --exclude-list bad.txt",
        allow_abbrev=False,
    )
    parser.add_argument(
        "path",
        help="a folder of class folders (images, or .npy files), a folder of images, a list (.txt, .csv, .tsv), a "
        ".tar, TFRecord or .rec file, an LMDB, a folder of such files, or a quoted pattern of them "
        "('train-{000..146}.tar', 'train-*', 's3://b/{000..146}.tar')",
    )
    parser.add_argument(
        "--decode",
        action="store_true",
        help="also decode every image with DALI on the CPU, about 20 times slower. Finds what nothing else does: JPEGs "
        "overwritten in their middle, which decode without an error to wrong pixels",
    )
    parser.add_argument(
        "--duplicates",
        action="store_true",
        help="also hash every file (SHA-256): the second of two equal files is a finding, and both are when their "
        "labels differ",
    )
    parser.add_argument(
        "--max-pixels",
        type=int,
        metavar="N",
        help="an image whose header claims more is oversized (default: 178956970, where training refuses it)",
    )
    add_record_options(parser)
    parser.add_argument(
        "--multilabel", action="store_true", help="a record, or a line of a list, has any number of labels"
    )
    parser.add_argument("--no-labels", action="store_true", help="a text list names files alone, without labels")
    parser.add_argument("--exclude", metavar="FILE", help="leave out what this list names")
    parser.add_argument(
        "--exclude-list",
        metavar="FILE",
        help="write the names of what was found, for exclude= of the sources, behind those of --exclude; with reasons "
        "as comments, or as a JSON array if the name ends in .json",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: one a core; more for a slow network drive)"
    )
    parser.add_argument("--show", type=int, default=20, metavar="N", help="findings to print (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the whole report as JSON, and nothing else")
    return parser


def run_scan(args: argparse.Namespace) -> tuple[ScanReport, Exception | None]:
    """Scan, write the exclusion list if one is asked for; gives the report, and why there is no list."""
    from lightning_gpuaug.cli.progress import progress_bar
    from lightning_gpuaug.sources.exclude import excluded_names
    from lightning_gpuaug.sources.imagefile import MAX_PIXELS
    from lightning_gpuaug.tools.contents import contents_of
    from lightning_gpuaug.tools.findings import require_place_for_list, write_exclude_list
    from lightning_gpuaug.tools.report import make_report
    from lightning_gpuaug.tools.scan import scan_images
    from lightning_gpuaug.tools.shard_contents import find_shards, shard_contents

    started = time.perf_counter()
    if args.exclude_list is not None:
        try:
            require_place_for_list(args.exclude_list)  # before hours of work
        except OSError as error:
            raise UsageError(f"--exclude-list: {error}") from error
    try:
        known = excluded_names(args.exclude, "--exclude") if args.exclude else ()
        shards = find_shards(args.path)
        options = record_options(args, shards.format if shards else None)
        if shards is None:
            contents = contents_of(args.path, known, labelled=not args.no_labels, multilabel=args.multilabel)
        else:
            with progress_bar("index", len(shards.files), "shards") as advance:
                contents = shard_contents(shards, known, multilabel=args.multilabel, progress=advance, **options)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    with progress_bar("scan", len(contents), "images") as advance:
        facts = scan_images(
            contents,
            decode=args.decode,
            duplicates=args.duplicates,
            max_pixels=args.max_pixels or MAX_PIXELS,
            processes=args.workers,
            progress=advance,
        )
    found = make_report(contents, facts, time.perf_counter() - started)
    if args.exclude_list is not None:
        title = f"gpuaug scan {args.path}: {len(found.findings)} findings in {found.samples} samples"
        try:
            write_exclude_list(args.exclude_list, found.findings, known, title)
        except (OSError, ValueError) as error:
            return found, error
    return found, None


def _print(found: ScanReport, show: int, exclude_list: str | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from lightning_gpuaug.tools.findings import one_line

    # Names are shown as they are, whatever `[a]` or `:b:` in them may mean elsewhere.
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    table = Table(title=f"{one_line(found.where)}: {found.kind}", show_header=False, title_justify="left")
    rate = f"{found.samples / found.seconds:,.0f} images/s" if found.seconds > 0 else "-"
    table.add_row("samples", f"{found.samples:,} ({found.seconds:,.1f} s, {rate})")
    table.add_row("good", f"{found.good:,}")
    for kind, number in sorted(found.counts.items(), key=lambda pair: -pair[1]):
        table.add_row(Text(kind, style="red"), f"{number:,}")
    table.add_row("types", ", ".join(f"{name} {number:,}" for name, number in found.types.items()))
    if found.class_counts:
        fewest = min(found.class_counts.items(), key=lambda pair: pair[1])
        most = max(found.class_counts.items(), key=lambda pair: pair[1])
        table.add_row("classes", f"{len(found.class_counts):,}")
        table.add_row("samples a class", f"{fewest[1]:,} ({fewest[0]}) to {most[1]:,} ({most[0]})")
    for name, points in found.sizes.items():
        unit = "" if name == "bytes" else " px"
        table.add_row(name.replace("_", " "), ", ".join(f"{point} {value:,}{unit}" for point, value in points.items()))
    if found.misnamed:
        first = one_line(found.misnamed[0])
        table.add_row("named as another type", f"{len(found.misnamed):,} (they decode), such as {first}")
    for reason, number in sorted(found.unused.items()):
        table.add_row("left unused", f"{number:,} {reason}")
    console.print(table)
    for finding in found.findings[:show]:
        console.print(one_line(f"{finding.name}: {finding.reason}"))
    if len(found.findings) > show:
        console.print(f"… and {len(found.findings) - show:,} more (--show N, --json)")
    if exclude_list:
        console.print(f"to leave out: {one_line(exclude_list)}")


def main(args: list[str]) -> int:
    """Run `gpuaug scan` with `args` and return the exit code."""
    return run_command("scan", lambda: _run(args), interrupted="interrupted; nothing was written")


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    for name in ("workers", "max_pixels"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    found, no_list = run_scan(options)
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        _print(found, options.show, options.exclude_list if no_list is None else None)
    if no_list is not None:  # the report first, which may have taken hours
        raise ValueError(f"--exclude-list: {no_list}") from no_list
    return FOUND_PROBLEMS if found.findings else OK
