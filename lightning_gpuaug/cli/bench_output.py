"""What the benchmark commands share: their output options and documents."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from lightning_gpuaug.cli.errors import UsageError

STDOUT = "-"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add `--json` and `--chart`."""
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="PATH",
        help="write the result as JSON to PATH; without PATH to stdout, and nothing else there",
    )  # fmt: skip
    parser.add_argument("--chart", metavar="PATH", help="draw a bar chart into this PNG")


def require_places(places: Mapping[str, str | None]) -> None:
    """Try the files that will be written, before the minutes of measuring; their folders are made.

    Args:
        places: paths by the option that gives them; None and "-" are no files.

    Raises:
        UsageError: one cannot be written, in one line that names its option.
    """
    for option, path in places.items():
        if path is not None and path != STDOUT:
            try:
                _try_to_write(path)
            except OSError as error:
                raise UsageError(
                    f"{option} must be a file that can be written to, got {path or repr(path)} ({error.strerror})"
                ) from error


def _try_to_write(path: str) -> None:
    folder = os.path.dirname(path)
    if folder and not os.path.exists(folder):
        os.makedirs(folder)
    if not os.path.exists(path):
        with open(path, "wb"):
            pass
        os.unlink(os.path.realpath(path))  # a link to it stays
    elif os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    elif not os.access(path, os.W_OK):  # not by opening: a pipe's reader would take the closing for the end
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def at_least(least: float, kind: type[int] | type[float]) -> Any:
    """An argparse type: a number of `kind`, `least` or more."""

    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {text}")
        return value

    return number


class Lines:
    """Where text goes: to stdout, or to stderr when stdout is for the JSON document alone."""

    def __init__(self, json_to: str | None) -> None:
        self._json_to = json_to

    def __call__(self, text: str) -> None:
        """Print a line now."""
        print(text, file=sys.stderr if self._json_to == STDOUT else sys.stdout, flush=True)

    def publish(self, found: dict[str, Any]) -> None:
        """Write the document where `--json` wants it, if it was given."""
        if self._json_to == STDOUT:
            print(json.dumps(found, indent=2))
        elif self._json_to is not None:
            from lightning_gpuaug.bench.report import write_json

            write_json(found, self._json_to)
            self(f"wrote {self._json_to}")
