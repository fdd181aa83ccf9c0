"""YAML without its surprises: a key given twice is an error, and a value means what it looks like.

PyYAML follows YAML 1.1 and keeps the last of two equal keys without a word. Here:

- a key given twice in one mapping raises `DuplicateKeyError` with both line numbers, also where one of the two is
  dotted (`data.batch_size` beside a `data` that has a `batch_size`); other parts of one thing in two places, of which
  jsonargparse keeps what comes last, raise `SplitKeyError`;
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
from typing import Any, NoReturn

import yaml

_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^[-+]?(?:(?:0|[1-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|(?:0|[1-9][0-9_]*)[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)
_REPLACED_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "timestamp")}


CLASS_KEYS = ("class_path", "init_args", "dict_kwargs")
"""What the long form of a class with its arguments consists of."""

_OPTION_LEVELS = ("data", "data.init_args", "model", "model.init_args", "trainer")
"""Keys whose keys are names of options."""
_HOLDS_A_CLASS = re.compile(
    r"model|data(\.(train|val|test|predict))?|optimizer|lr_scheduler|trainer\.(callbacks|logger|plugins|strategy)(\[\d+\])?"
)
"""Keys whose value may be a class with its arguments; elsewhere `class_path` may be anybody's word."""


class KeyConflictError(yaml.MarkedYAMLError):
    """Two keys of a YAML document speak of one thing."""

    def __str__(self) -> str:
        """Give the problem in one line."""
        return str(self.problem)


class DuplicateKeyError(KeyConflictError):
    """The same key stands twice in one mapping of a YAML document.

    Attributes:
        key: dotted, from the document's root.
    """

    def __init__(self, key: str, first_line: int, second_line: int) -> None:
        """Name the dotted `key` and both of its (1-based) lines."""
        super().__init__(problem=f"key `{key}` is given twice, on lines {first_line} and {second_line}; keep one")
        self.key = key


class SplitKeyError(KeyConflictError):
    """A dotted key stands beside the key of which it is a part."""

    def __init__(self, key: str, line: int, whole: str, whole_line: int) -> None:
        """Name both dotted keys with their (1-based) lines."""
        beside = f"`{whole}` on line {whole_line}"
        super().__init__(problem=f"key `{key}` on line {line} stands beside {beside}; write it inside `{whole}`")


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


def _reject_conflicts(node: yaml.Node | None, path: str = "", of_options: bool = False) -> None:
    """Raise when two keys of one mapping speak of one thing.

    Args:
        node: of a document, or a part of it.
        path: its dotted key.
        of_options: its keys are names of options, so that `data: Class` and `data.batch_size: 4` speak of one thing.
    """
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            dotted = f"{path}.{name}" if path else name
            if name in entries and name != "<<":
                raise DuplicateKeyError(dotted, *sorted((entries[name][0], line)))
            entries[name] = line, value
            _reject_conflicts(value, dotted)
        # Below options, in a dictionary of somebody's own, a dot may be part of a name.
        split = [name for name in entries if "." in name] if of_options or path in _OPTION_LEVELS else []
        for name in split:
            line, parts = entries[name][0], name.split(".")
            for cut in range(1, len(parts)):
                whole = ".".join(parts[:cut])
                if whole in entries and (of_options or isinstance(entries[whole][1], yaml.MappingNode)):
                    _reject_split(path, whole, parts[cut:], line, *entries[whole])
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _reject_conflicts(item, f"{path}[{index}]")


def _reject_split(path: str, whole: str, rest: list[str], line: int, whole_line: int, inside: yaml.Node) -> NoReturn:
    """Raise for the key `whole` + `rest` on `line` beside the key `whole`, which has the value `inside`."""
    whole = f"{path}.{whole}" if path else whole
    key = ".".join([whole, *rest])
    found: yaml.Node | None = inside
    second = whole_line
    for part in rest:
        pairs = found.value if isinstance(found, yaml.MappingNode) else []
        found = None
        for name, value in pairs:
            if name.value == part:
                found, second = value, name.start_mark.line + 1
    if found is not None:
        raise DuplicateKeyError(key, *sorted((line, second)))
    raise SplitKeyError(key, line, whole, whole_line)


def mixed_forms(value: Any, name: str) -> str | None:
    """What is wrong where `value` writes arguments of a class in two ways; None if it does not.

    Args:
        value: of the key `name`, as YAML has it.
        name: dotted.
    """
    inside: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        form = [key for key in CLASS_KEYS if key in value] if _HOLDS_A_CLASS.fullmatch(name) else []
        other = [key for key in value if key not in CLASS_KEYS]
        if form and other:
            if "init_args" not in form:
                return f"{name}: `{other[0]}` stands beside {form[0]}; arguments of a class go into init_args"
            short = ", or leave init_args out" if form == ["init_args"] else ""
            return (
                f"{name}: `{other[0]}` stands beside init_args, which mixes the short and the long form; "
                f"move it into init_args{short}"
            )
        inside = [(name if key in CLASS_KEYS else f"{name}.{key}", part) for key, part in value.items()]
    elif isinstance(value, list):
        inside = [(f"{name}[{index}]", item) for index, item in enumerate(value)]
    return next((found for key, part in inside if (found := mixed_forms(part, key)) is not None), None)


def load(text: str, of_options: bool = False) -> Any:
    """Parse one YAML document.

    Args:
        text: the document.
        of_options: it is a configuration file, whose keys are names of options.

    Raises:
        KeyConflictError: a key stands twice in one mapping, or apart from the key of which it is a part.
        yaml.YAMLError: the text is not YAML.
    """
    loader: StrictLoader | None = None
    try:
        loader = StrictLoader(text)
        node = loader.get_single_node()
        _reject_conflicts(node, of_options=of_options)
        return None if node is None else loader.construct_document(node)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply, or holds itself") from None
    finally:
        if loader is not None:
            loader.dispose()


def _undotted(document: dict[Any, Any]) -> dict[Any, Any]:
    """`document` with `data.batch_size: 4` at its root written as `data: {batch_size: 4}`."""
    undotted: dict[Any, Any] = {}
    for key, value in document.items():
        *wholes, last = key.split(".") if isinstance(key, str) else [key]
        place = undotted
        for whole in wholes:
            below = place.get(whole)
            place[whole] = below = dict(below) if isinstance(below, dict) else {}  # it may be another key's too
            place = below
        place[last] = value
    return undotted


def read(path: str | os.PathLike[str]) -> dict[Any, Any]:
    """Parse a configuration file; dotted keys at its root come as nested ones.

    Raises:
        TypeError: in one line that names the file: it cannot be read, is not YAML, says something twice or in two
            forms, or is no mapping.
    """
    try:
        document = load(Path(path).read_text(encoding="utf-8"), of_options=True)
    except KeyConflictError as error:
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
    document = _undotted(document)
    for key, value in document.items():
        mixed = mixed_forms(value, str(key))
        if mixed is not None:
            raise TypeError(f"{path}: {mixed}")
    return document
