"""What a scan finds, and the list of what to leave out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Something wrong with a sample (or a shard, a link, a class folder).

    Attributes:
        name: of the sample, as `sample_name` has it.
        kind: the sort of problem, to count by.
        reason: what was found, in one line.
        exclude: whether leaving `name` out is the remedy.
    """

    name: str
    kind: str
    reason: str
    exclude: bool = True


def write_exclude_list(path: str, findings: Iterable[Finding], known: Sequence[str] = (), title: str = "") -> int:
    """Write the names to leave out, for the `exclude=` of a source; the file is replaced as a whole.

    Text with a name a line, each reason above as a `#` comment; a JSON array if `path` ends in .json.

    Args:
        path: the file.
        findings: those with `exclude` are listed.
        known: names that are on the list already; they come first.
        title: what the list is of, for its first line.

    Returns:
        How many names the list has.

    Raises:
        ValueError: a name that a text cannot hold.
        OSError: the file cannot be written.
    """
    reasons = dict.fromkeys(known, "")
    for finding in findings:
        if finding.exclude and not reasons.get(finding.name):
            reasons[finding.name] = finding.reason
    if path.lower().endswith(".json"):
        text = json.dumps(list(reasons), indent=0, ensure_ascii=False) + "\n"
    else:
        odd = next((name for name in reasons if not _is_a_line(name)), None)
        if odd is not None:
            raise ValueError(
                f"{path} cannot hold the name {odd!r}: a line of a text list is UTF-8 and does not begin with #; "
                "give a name that ends in .json"
            )
        lines = [f"# {one_line(title)}"] if title else []
        for name, reason in reasons.items():
            lines += [f"# {one_line(reason)}", name] if reason else [name]
        text = "\n".join(lines) + "\n"
    # Bytes of a file name that are not UTF-8 come out as JSON has them: \udcff.
    _replace(path, text.encode("utf-8", "backslashreplace"))
    return len(reasons)


def require_place_for_list(path: str) -> None:
    """Raise OSError if `write_exclude_list` could not write to `path`; nothing changes there."""
    _replace(path, None)


def one_line(text: str) -> str:
    """`text` with line breaks, and bytes that are not UTF-8, written as escapes."""
    return text.replace("\r", "\\r").replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


def _is_a_line(name: str) -> bool:
    """Whether a line of a text list can hold `name` as it is."""
    return one_line(name) == name and bool(name.strip()) and not name.startswith("#")


def _replace(path: str, content: bytes | None) -> None:
    """Put `content` in place of the file, whole or not at all; None tries whether that can be done."""
    place = os.path.realpath(os.path.expanduser(path))  # a link stays one
    unfinished = f"{place}.{os.getpid()}"
    try:
        if os.path.exists(place) and not os.path.isfile(place):
            raise OSError(errno.EINVAL, "not a file")
        if os.path.exists(place) and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with open(unfinished, "wb") as file:
            file.write(content or b"")
        if content is not None:
            os.replace(unfinished, place)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
