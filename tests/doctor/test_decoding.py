"""Decoding in a process of its own: results, bad files, and ways to die."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuaug import Synthetic
from lightning_gpuaug.doctor import decoding
from lightning_gpuaug.doctor.decoding import Decoded, check_decoding, decode_in_a_process


def test_images_a_second_and_a_bad_file(tmp_path: Any) -> None:
    source = Synthetic(length=8, height=24, width=32)
    bad = tmp_path / "with space.jpg"
    bad.write_bytes(b"no image")
    found = decode_in_a_process([*source.paths, str(bad)], "cpu", 0.05)
    assert found.error == ""
    assert found.img_per_s is not None
    assert found.img_per_s > 0
    assert found.bad == (str(bad),)
    told = check_decoding(found)
    assert told.level == "note"
    assert "with space.jpg" in told.found


def test_any_name_of_a_file(tmp_path: Path) -> None:
    """Line breaks, quotes and commas are names as others; one that is not UTF-8 no data set has."""
    source = Synthetic(length=1, height=24, width=32)
    names = ["a\nb/c\r\nd.jpg", 'quo"te, 1.jpg', " blank .jpg ", "plain.jpg"]
    files = [tmp_path / name for name in names]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(Path(source.paths[0]).read_bytes())
    found = decode_in_a_process([*map(str, files), os.fsdecode(b"/\xff.jpg")], "cpu", 0.05)
    assert found.error == ""
    assert found.bad == ()
    assert found.img_per_s is not None


def died(monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "") -> Decoded:
    done = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    return decode_in_a_process([], "cuda", 1.0)


def test_how_it_died_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert died(monkeypatch, -11).error == "killed by SIGSEGV"
    assert died(monkeypatch, 1, "Traceback\n  ...\nImportError: libx.so\n").error == "ImportError: libx.so"
    assert died(monkeypatch, 1).error == "no message"
    found = check_decoding(died(monkeypatch, -11))
    assert (found.check, found.level) == ("decoding on the GPU", "problem")


def test_a_hang_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "no result within 121 s" in decode_in_a_process([], "cpu", 1.0).error
    monkeypatch.setattr(decoding, "_START_UP", 9.0)
    assert "no result within 10 s" in decode_in_a_process([], "cpu", 1.0).error


def test_a_good_result_is_ok() -> None:
    found = check_decoding(Decoded("cpu", 1234.5))
    assert (found.check, found.level) == ("decoding on the CPU", "ok")
    assert found.found.startswith("1,234 images/s") or found.found.startswith("1,235 images/s")
