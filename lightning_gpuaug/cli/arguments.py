"""Options of a training command line: in what order they count, and where two of them contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import yaml

from lightning_gpuaug.cli import strict_yaml
from lightning_gpuaug.cli.errors import UsageError


@dataclass(frozen=True)
class _Option:
    """One option and the words that belong to it.

    Attributes:
        words: as they stand on the command line, the option first.
    """

    words: tuple[str, ...]

    @cached_property
    def flag(self) -> str:
        """`--data.init_args.batch_size` of `--data.init_args.batch_size=8`; of `--list+=item` without the plus."""
        return self.words[0].partition("=")[0].removesuffix("+")

    @property
    def appends(self) -> bool:
        return self.words[0].partition("=")[0].endswith("+")

    @property
    def is_config(self) -> bool:
        return self.flag == "--config" or (self.words[0].startswith("-c") and not self.words[0].startswith("--"))

    @cached_property
    def name(self) -> str:
        """What it sets, by its short name: `data.batch_size`."""
        parts = self.flag.removeprefix("--").split(".")
        return ".".join(part for part in parts if part not in strict_yaml.CLASS_KEYS)

    @cached_property
    def text(self) -> str:
        _, equals, value = self.words[0].partition("=")
        return " ".join([value] * bool(equals) + [*self.words[1:]])

    @cached_property
    def value(self) -> Any:
        """What the text is as YAML."""
        try:
            return strict_yaml.load(self.text)
        except strict_yaml.DuplicateKeyError as error:
            raise UsageError(f"{self.flag}: key `{error.key}` is given twice; keep one") from error
        except strict_yaml.KeyConflictError as error:
            raise UsageError(f"{self.flag}: {error}") from error
        except (yaml.YAMLError, ValueError, KeyError, AttributeError):  # the latter of explicit tags
            return self.text

    def below(self, names: Sequence[str]) -> str | None:
        """Of `names`, the one that it sets or is a part of."""
        return next((name for name in names if f"{self.name}.".startswith(f"{name}.")), None)


def _is_option(word: str) -> bool:
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()  # others with a dash are negative numbers


def _split(args: Sequence[str]) -> tuple[list[str], list[_Option]]:
    """The words before the first option, and the options."""
    starts = [place for place, word in enumerate(args) if _is_option(word)]
    bounds = [*starts, len(args)]
    options = [_Option(tuple(args[start:end])) for start, end in pairwise(bounds)]
    return list(args[: bounds[0]]), options


def in_order(args: Sequence[str]) -> list[str]:
    """`args` with the configuration files first, and what is given as a whole before its parts.

    The parser keeps of two values the later one. So the command line wins over the files wherever they stand, and
    `--model.model_args` given after `--model.model_args.drop_rate` does not throw that away.
    """
    leading, options = _split(args)
    lists = [option.name for option in options if option.appends]

    def place(option: _Option) -> tuple[int, bool]:
        if option.is_config:
            return 0, False
        # An appended item and its own options stay together, behind the list itself.
        return 1 + (option.below(lists) or option.name).count("."), not _is_list(option, lists)

    return [*leading, *(word for option in sorted(options, key=place) for word in option.words)]


def refuse_conflicts(args: Sequence[str]) -> None:
    """Refuse two values for one thing, whether an option gives it or a whole of which it is a part.

    `--config` layers and `--list+=item` appends are meant to repeat, and so are the options of appended items.

    Raises:
        UsageError: in one line that names both; or a value mixes the short and the long form of a class's arguments.
    """
    _, options = _split(args)
    lists = [option.name for option in options if option.appends]
    wholes: dict[str, _Option] = {}
    parts: dict[str, tuple[_Option, Any]] = {}
    for option in options:
        if option.is_config or not option.flag.startswith("--"):
            continue
        if option.below(lists) and not _is_list(option, lists):
            continue
        first = wholes.setdefault(option.flag.replace(".init_args.", "."), option)
        if first.text != option.text and repr(first.value) != repr(option.value):
            raise UsageError(f"{option.flag} is given twice, as {first.text!r} and {option.text!r}; keep one")
        mixed = strict_yaml.mixed_forms(option.value, option.name)
        if mixed is not None:
            raise UsageError(f"--{mixed}")
        for name, value in _parts(option.name, option.value):
            other, said = parts.setdefault(name, (option, value))
            if repr(said) != repr(value):  # .nan is .nan, and 1 is not true
                raise UsageError(
                    f"{name} is given twice, as {said!r} by {other.flag} and as {value!r} by {option.flag}; keep one"
                )


def _is_list(option: _Option, lists: Sequence[str]) -> bool:
    """Whether an option gives the whole of a list to which others append."""
    return option.name in lists and not option.appends


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """By short name, what a value sets: each of a mapping's own values, however deep, else the value."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        if key in ("init_args", "dict_kwargs") and not isinstance(inner, dict):
            continue  # none
        yield from _parts(name if key in strict_yaml.CLASS_KEYS else f"{name}.{key}", inner)
