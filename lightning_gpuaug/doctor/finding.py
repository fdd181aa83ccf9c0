"""What a check has found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "problem"]
"""A note costs speed, or is good to know; a problem stops training, or costs much of its speed."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        check: what was looked at, a short fixed name.
        level: "ok", "note" or "problem".
        found: what is there.
        advice: what to do; empty for "ok".
    """

    check: str
    level: Level
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, "ok", found)


def note(check: str, found: str, advice: str) -> Finding:
    """Good to know."""
    return Finding(check, "note", found, advice)


def problem(check: str, found: str, advice: str) -> Finding:
    """To be repaired."""
    return Finding(check, "problem", found, advice)
