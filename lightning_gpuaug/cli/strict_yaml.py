"""YAML without its surprises: a key given twice is an error, and a value means what it looks like.

PyYAML follows YAML 1.1 and keeps the last of two equal keys without a word. Here:

- a key given twice in one mapping raises `DuplicateKeyError` with both line numbers;
- only `true` and `false` are booleans, so `on`, `off`, `yes` and `no` stay strings (YAML 1.2);
- a number with a leading zero stays a string: `007` is kept for a text field, and `010` is ten for an integer field,
  in a file as on the command line (YAML 1.1 reads eight);
- `1e-3` is a number; dates and sexagesimals (`12:30`) are strings;
- `None` is null, as Python writes it (and as jsonargparse does when it passes `--data.train_recipe.mix null` on).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:(?:0|[1-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|(?:0|[1-9][0-9_]*)[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)
_REPLACED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "timestamp")}


class DuplicateKeyError(yaml.MarkedYAMLError):
    """The same key stands twice in one mapping of a YAML document."""

    def __init__(self, key: str, first_line: int, second_line: int) -> None:
        """Name the dotted `key` and both of its (1-based) lines."""
        super().__init__(problem=f"key `{key}` is given twice, on lines {first_line} and {second_line}; keep one")

    def __str__(self) -> str:
        """Give the problem in one line."""
        return str(self.problem)


class StrictLoader(yaml.SafeLoader):
    """`yaml.SafeLoader` with the rules of this module."""


StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^None$"), ["N"])
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def _reject_duplicates(node: yaml.Node | None, path: str = "") -> None:
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value)
            dotted = f"{path}.{name}" if path else name
            line = key.start_mark.line + 1
            if name in lines and name != "<<":
                raise DuplicateKeyError(dotted, lines[name], line)
            lines[name] = line
            _reject_duplicates(value, dotted)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _reject_duplicates(item, f"{path}[{index}]")


def load(text: str) -> Any:
    """Parse one YAML document.

    Raises:
        DuplicateKeyError: a key stands twice in one mapping.
        yaml.YAMLError: the text is not YAML.
    """
    loader: StrictLoader | None = None
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        _reject_duplicates(node)
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply, or holds itself") from None
    finally:
        if loader is not None:
            loader.dispose()


def read(path: str | os.PathLike[str]) -> dict[Any, Any]:
    """Parse a configuration file.

    Raises:
        TypeError: in one line that names the file: it cannot be read, is not YAML, says something twice, or is no
            mapping.
    """
    try:
        document = load(Path(path).read_text(encoding="utf-8"))
    except DuplicateKeyError as error:
        raise TypeError(f"{path}: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise TypeError(f"{path}: is not YAML: {line}{error.problem or error.context}") from error
    except OSError as error:
        raise TypeError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TypeError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise TypeError(f"{path}: a configuration must be a mapping, got {type(document).__name__}")
    return document
