"""What a scan finds, and the list of what to leave out."""

from __future__ import annotations

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
        ValueError: a name that a text cannot hold (a line break, a `#` at its start).
        OSError: the file cannot be written.
    """
    reasons = dict.fromkeys(known, "")
    for finding in findings:
        if finding.exclude and not reasons.get(finding.name):
            reasons[finding.name] = finding.reason
    if path.lower().endswith(".json"):
        text = json.dumps(list(reasons), indent=0, ensure_ascii=False) + "\n"
    else:
        odd = next((name for name in reasons if name.startswith("#") or "\n" in name or "\r" in name), None)
        if odd is not None:
            raise ValueError(f"a text list cannot hold the name {odd!r}; write {path} as .json")
        lines = [f"# {title}"] if title else []
        for name, reason in reasons.items():
            lines += [f"# {reason}", name] if reason else [name]
        text = "\n".join(lines) + "\n"
    unfinished = f"{path}.{os.getpid()}"
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
    return len(reasons)
