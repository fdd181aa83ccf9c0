"""All checks in order, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lightning_gpuaug.doctor.cards import Driver, driver
from lightning_gpuaug.doctor.decoding import check_decoding, decode_in_a_process
from lightning_gpuaug.doctor.finding import Finding, problem
from lightning_gpuaug.doctor.host import check_host
from lightning_gpuaug.doctor.software import check_software
from lightning_gpuaug.doctor.storage import check_storage, file_system, image_files, read_rate


def examine(path: Path | None, seconds: float, doing: Callable[[str], None] = lambda what: None) -> Iterator[Finding]:
    """Look at this machine; each finding as it comes.

    Args:
        path: a folder with images whose storage is measured and whose images are decoded; None for made-up ones.
        seconds: of the decoding test, all devices together; 0 leaves it out.
        doing: told what comes next.
    """
    doing("driver, torch, DALI, native ops")
    there = driver()
    yield from _guarded("software", lambda: check_software(there))
    doing("cores, memory")
    yield from _guarded("host", lambda: check_host(len(there.cards)))
    files: list[str] = []
    if path is not None:
        doing(f"listing {path}")
        files = image_files(path)
        doing(f"reading {path}")
        rate = read_rate(files, max(2.0, seconds / 2))
    decoded: list[float] = []
    if seconds > 0:
        devices = ["cpu", "cuda"] if _usable(there) else ["cpu"]
        for device in devices:
            doing(f"decoding on the {device}")
            found = decode_in_a_process(files, device, seconds / len(devices))
            decoded += [found.img_per_s] if found.img_per_s is not None else []
            yield check_decoding(found)
    if path is not None:
        yield check_storage(path, rate, file_system(path), max(decoded, default=None))


def verdict(findings: Sequence[Finding]) -> str:
    """The report in one sentence."""
    problems = [finding.check for finding in findings if finding.level == "problem"]
    notes = sum(finding.level == "note" for finding in findings)
    noted = f", {notes} note(s)" if notes else ""
    if not problems:
        return f"fine{noted}"
    return f"{len(problems)} problem(s){noted}; first: {problems[0]}"


def _usable(there: Driver) -> bool:
    import torch

    return bool(there.cards) and torch.cuda.is_available()


def _guarded(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Findings of a check; what breaks it is a finding too."""
    try:
        yield from check()
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        yield problem(name, lines[0], "the message says what is broken; nothing behind it in this group was looked at")
