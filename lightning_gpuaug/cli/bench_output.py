"""What the benchmark commands share: their output options and documents."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

STDOUT = "-"


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add `--json` and `--chart`."""
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="PATH",
        help="write the result as JSON to PATH; without PATH to stdout, and nothing else there",
    )  # fmt: skip
    parser.add_argument("--chart", metavar="PATH", help="draw a bar chart into this PNG")


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
