"""What DALI cannot do, and what it says about it."""

from __future__ import annotations

_AROUND = ("Critical error", "Current pipeline", "C++ context", "Stacktrace", "[frame")


class DecodeError(RuntimeError):
    """DALI could not decode a batch. The pipeline that raised it is finished; build another."""


class FileError(RuntimeError):
    """DALI could not read a file; the message says why, not always which."""


def reason_of(error: Exception) -> str:
    """What DALI says went wrong, in one line, of all that it says around it.

    Its messages name the operator and the line of Python that made it, then come to the point behind "encountered:".
    """
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(_AROUND)]
    if "encountered:" in said:
        said = said[said.index("encountered:") + 1 :]
    return " ".join(said).rstrip(" :") or "no reason given"
