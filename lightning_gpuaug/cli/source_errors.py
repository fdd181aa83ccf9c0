"""Why a data source of a configuration is none.

A source may also be a path, which is a text: what jsonargparse cannot make a source of, it hands on as the text of a
path. The reason is found by parsing it again as nothing but a source.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import re
from collections.abc import Iterable
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from lightning_gpuaug import sources
from lightning_gpuaug.cli.errors import UsageError, one_line
from lightning_gpuaug.data import STAGES
from lightning_gpuaug.sources import Source

# What jsonargparse makes of --data.train.key val.
_PART = re.compile(r"NestedArg\(key='([^']*)', val=(.*)\)$", re.DOTALL)
_NOT_ACCEPTED = re.compile(r"Option '([^']*)' is not accepted")
_NO_CLASS = re.compile(r"no known class|has no attribute")


def refuse_wrong_sources(arguments: Namespace | None) -> None:
    """Refuse a text in place of a source that is no path.

    Args:
        arguments: of an `ImageDataModule`, parsed; None for another data module.

    Raises:
        UsageError: in one line that names the key, the field or class, and the value.
    """
    for key, value in _given(arguments):
        if not isinstance(value, str) or os.path.exists(value):
            continue
        if not value.strip():
            raise UsageError(f"{key} is empty; give it a folder or a source, or leave it out")
        if part := _PART.match(value):
            raise UsageError(
                f"{key}.{part[1]}: fields of a source are given with the source, in a file or as --{key}="
                f"'{{class_path: …, init_args: {{{part[1]}: …}}}}', got {part[2]} alone"
            )
        if value.startswith("Namespace("):
            raise UsageError(f"{key}: a source is {{class_path: …, init_args: {{…}}}}, got {value}")
        given = _mapping(value)
        if given is not None:
            _refuse(key, given)


def refuse_sources_that_cannot_be_built(arguments: Namespace | None) -> None:
    """Say what a source has against its arguments, where the data module could not be built.

    Args:
        arguments: of an `ImageDataModule`, parsed; None for another data module.

    Raises:
        UsageError: in one line that names the key, and the source's own words.
    """
    for key, value in _given(arguments):
        if not isinstance(value, Namespace) or "class_path" not in value:
            continue
        parser = _source_parser()
        try:
            parser.instantiate_classes(parser.parse_object({"source": value.as_dict()}))
        except Exception as error:  # of the source, or of what it holds: a dataset of any kind
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UsageError(f"{key}: {reason}") from error


def _given(arguments: Namespace | None) -> list[tuple[str, Any]]:
    """The sources' keys, and what is given for them."""
    if arguments is None:
        return []
    return [(f"data.{stage}", arguments.get(stage)) for stage in STAGES]


def _mapping(text: str) -> dict[str, Any] | None:
    """The mapping that jsonargparse has written as `text`."""
    if not text.startswith("{"):
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _source_parser() -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--source", type=Source)
    return parser


def _refuse(key: str, given: dict[str, Any]) -> None:
    name = given.get("class_path")
    if not isinstance(name, str):
        raise UsageError(f"{key}: a source is {{class_path: …, init_args: {{…}}}}, got {given}")
    try:
        _source_parser().parse_object({"source": given})
    except ArgumentError as error:
        line = one_line(str(error)).removeprefix("source")
        known = {cls.__name__: cls for cls in _public_sources()}
        short = name.rpartition(".")[2]
        if _NO_CLASS.search(line):
            names = [known_name for known_name in sources.__all__ if known_name in known]
            raise UsageError(f"{key}: no source is called {name}{_nearest(short, known, names)}") from error
        if (field := _NOT_ACCEPTED.search(line)) and short in known:
            fields = [*inspect.signature(known[short]).parameters]
            raise UsageError(f"{key}: {short} has no field {field[1]}{_nearest(field[1], fields, fields)}") from error
        raise UsageError(f"{key}{line}") from error


def _public_sources() -> list[type[Source]]:
    """The sources that a configuration may name by class name alone: this package's, and imported ones of others."""
    found: list[type[Source]] = []
    below = Source.__subclasses__()
    while below:
        cls = below.pop()
        below += cls.__subclasses__()
        own = cls.__module__.startswith(f"{sources.__name__}.")
        if not inspect.isabstract(cls) and (not own or cls.__name__ in sources.__all__):
            found.append(cls)
    return found


def _nearest(word: str, known: Iterable[str], all_of_them: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word, [*known], n=1)
    return f"; nearest: {matches[0]}" if matches else f"; there are {', '.join(all_of_them)}"
