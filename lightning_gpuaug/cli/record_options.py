"""What a command line says of how records are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lightning_gpuaug.cli.errors import UsageError

if TYPE_CHECKING:
    from lightning_gpuaug.sources.record_format import RecordFormat


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `record_options` reads; each is None where it is not given."""
    parser.add_argument("--image", metavar="NAME", help="the TFRecord feature, or the WebDataset endings, of the image")
    parser.add_argument(
        "--label",
        metavar="NAME",
        help='the TFRecord feature, or the WebDataset member, of the label; "none" if there is none',
    )
    parser.add_argument(
        "--label-offset", type=int, metavar="N", help="TFRecord: -1 where the files count classes from 1"
    )
    parser.add_argument(
        "--labels",
        choices=("auto", "index", "name"),
        help="records: what a label that is a whole number says (default: auto)",
    )
    parser.add_argument(
        "--idx",
        nargs="+",
        metavar="FILE",
        help="RecordIO: the .idx files, in the order of the data files; they name the records, which have numbers "
        "without them",
    )


def record_options(args: argparse.Namespace, form: RecordFormat | None) -> dict[str, Any]:
    """The options that were given, as fields of the format's source.

    Raises:
        UsageError: one means nothing for `form`; any does where that is None, for folders and lists.
    """
    from lightning_gpuaug.sources.record_format import FORMAT_OPTIONS

    names = {name for options in FORMAT_OPTIONS.values() for name in options}
    given = {name: value for name, value in vars(args).items() if name in names and value is not None}
    for name in given:
        if form is None or name not in FORMAT_OPTIONS[form]:
            raise UsageError(f"--{name.replace('_', '-')} means nothing for {form or 'folders and lists'}")
    return given
