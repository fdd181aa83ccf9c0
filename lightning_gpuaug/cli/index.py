"""`gpuaug index`: find the records of data files ahead of a run."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, get_args

from lightning_gpuaug.cli.errors import FOUND_PROBLEMS, OK, UsageError, run_command
from lightning_gpuaug.cli.record_options import add_record_options, record_options

if TYPE_CHECKING:
    from lightning_gpuaug.sources.record_format import RecordFormat
    from lightning_gpuaug.sources.records import RecordSource

Format = Literal["auto", "tfrecord", "webdataset", "recordio", "lmdb"]


@dataclass(frozen=True)
class IndexResult:
    """What was indexed.

    Attributes:
        format: of the files.
        files: number of data files.
        records: that can be used.
        skipped: records left out, with `--missing skip`.
        first_skipped: the first of them and why; "" if there are none.
        index_dir: where the indexes are.
        seconds: it took, nearly none for what was indexed before.
    """

    format: str
    files: int
    records: int
    skipped: int
    first_skipped: str
    index_dir: str
    seconds: float


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuaug index",
        description="Find the records of TFRecord, WebDataset, RecordIO or LMDB files and keep where they are, so that "
        "the first training run starts at once. A run does it by itself otherwise. An index belongs to the options it "
        "was made with: give those that the run will use.",
        epilog="example: gpuaug index '/data/train-*' --image image/encoded --label image/class/label",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", help="data files or quoted patterns ('train-{000..146}.tar', 'train-*')")
    parser.add_argument(
        "--format",
        choices=get_args(Format),
        default="auto",
        help="by default .tar is webdataset, .rec recordio, a folder or .mdb lmdb, everything else tfrecord",
    )
    add_record_options(parser)
    parser.add_argument("--multilabel", action="store_true", help="a record has any number of labels")
    parser.add_argument(
        "--missing", choices=("raise", "skip"), default="raise", help="records without a usable image or label"
    )
    parser.add_argument(
        "--checksums", choices=("all", "lengths"), help="TFRecord: read and check every byte (the default), or not"
    )
    parser.add_argument("--index-dir", help="where to keep it ($GPUAUG_INDEX_DIR, or a folder in ~/.cache)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and nothing else")
    return parser


def _format_of(files: list[str]) -> RecordFormat:
    from lightning_gpuaug.sources.record_format import FORMAT_OF_ENDING

    first = files[0].rstrip("/")
    if os.path.isdir(first):
        return "lmdb"
    return FORMAT_OF_ENDING.get(os.path.splitext(first)[1].lower(), "tfrecord")


def _source(args: argparse.Namespace) -> tuple[RecordFormat, RecordSource]:
    from lightning_gpuaug.sources.record_format import record_source

    form = _format_of(args.files) if args.format == "auto" else args.format
    options = record_options(args, form)
    common = {"missing": args.missing, "multilabel": args.multilabel, "index_dir": args.index_dir}
    try:
        return form, record_source(form, args.files, **options, **common)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def run_index(args: argparse.Namespace) -> IndexResult:
    """Index the files, and look at every label as a run would."""
    from lightning_gpuaug.cli.progress import progress_bar
    from lightning_gpuaug.sources.index import cache_folder

    begin = time.perf_counter()
    form, source = _source(args)
    with progress_bar("index", len(source.files), "files") as advance:
        records = source.build_index(lambda _: advance(1))
    if not source.needs_class_names:  # those only the run is told
        _ = source.targets  # labels are looked at together
    first = records.skipped[0] if records.skipped else ""
    seconds = time.perf_counter() - begin
    where = cache_folder(args.index_dir)
    return IndexResult(form, len(source.files), len(records), records.skipped_count, first, where, seconds)


def main(args: list[str]) -> int:
    """Run `gpuaug index` with `args` and return the exit code."""
    return run_command("index", lambda: _run(args), interrupted="interrupted; files that were done stay indexed")


def _run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    result = run_index(options)
    if options.json:
        print(json.dumps(asdict(result), indent=2))
    else:
        rate = f" ({result.records / result.seconds:,.0f} records/s)" if result.seconds >= 1 else ""
        print(f"{result.records:,} records in {result.files:,} {result.format} file(s), {result.seconds:.1f} s{rate}")
        print(f"index: {result.index_dir}")
        if result.skipped:
            print(f"skipped: {result.skipped:,}, the first being {result.first_skipped}")
    return FOUND_PROBLEMS if result.skipped else OK
