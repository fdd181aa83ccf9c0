"""`gpuaug doctor`: the report, its exit codes, and machines that are broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuaug.cli import main
from lightning_gpuaug.cli.digits import DigitsTree
from lightning_gpuaug.doctor import report
from lightning_gpuaug.doctor.cards import Card, Driver
from lightning_gpuaug.doctor.decoding import Decoded
from lightning_gpuaug.doctor.finding import note, ok, problem


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of the tests: no GPU, nothing decoded in a process."""
    monkeypatch.setattr(report, "driver", lambda: Driver(trouble="NVML Shared Library Not Found"))
    monkeypatch.setattr(report, "check_host", lambda gpus: iter([ok("cpu", f"{gpus} GPUs")]))
    monkeypatch.setattr(report, "decode_in_a_process", lambda files, device, seconds: Decoded(device, 100.0))


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["doctor", *args, "--json"])
    return code, json.loads(capsys.readouterr().out)


def levels(found: dict[str, Any]) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in found["findings"]}


def test_a_machine_without_gpu_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = printed(capsys)
    assert code == 0
    assert set(found) == {"schema", "verdict", "environment", "findings"}
    assert found["verdict"].startswith("fine")
    assert all(set(finding) == {"check", "level", "found", "advice"} for finding in found["findings"])
    assert levels(found) == {
        "driver": "note", "torch": "ok", "dali": "ok", "native ops": "ok", "cpu": "ok", "decoding on the CPU": "ok",
    }  # fmt: skip
    for finding in found["findings"]:
        assert bool(finding["advice"]) == (finding["level"] != "ok")


def test_storage_is_read_and_compared(
    tree: DigitsTree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found = printed(capsys, "--path", str(tree.train))
    assert code == 0
    assert levels(found)["storage"] in ("ok", "note")  # by the file system of the temporary folder
    monkeypatch.setattr(report, "decode_in_a_process", lambda files, device, seconds: Decoded(device, 1e12))
    code, found = printed(capsys, "--path", str(tree.train))
    assert code == 1
    assert levels(found)["storage"] == "problem"
    assert found["verdict"] == "1 problem(s), 1 note(s); first: storage"


def test_nothing_is_decoded_in_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert "decoding on the CPU" not in levels(printed(capsys, "--seconds", "0")[1])


def test_a_broken_machine_is_1_and_the_report_complete(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(driver: Driver) -> Any:
        yield ok("driver", "there")
        raise RuntimeError("libx.so does not load\nmore")

    monkeypatch.setattr(report, "check_software", broken)
    failed = Decoded("cpu", None, error="killed by SIGSEGV")
    monkeypatch.setattr(report, "decode_in_a_process", lambda files, device, seconds: failed)
    code, found = printed(capsys)
    assert code == 1
    assert levels(found) == {"driver": "ok", "software": "problem", "cpu": "ok", "decoding on the CPU": "problem"}
    assert found["findings"][1]["found"] == "libx.so does not load"


def test_with_a_gpu_both_decoders_are_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    def decode(files: list[str], device: str, seconds: float) -> Decoded:
        asked.append((device, seconds))
        return Decoded(device, 100.0)

    monkeypatch.setattr(report, "driver", lambda: Driver("580.1", (13, 0), (Card("NVIDIA H200", (9, 0)),) * 2))
    monkeypatch.setattr(report, "_usable", lambda there: True)
    monkeypatch.setattr(report, "check_software", lambda there: iter(()))
    monkeypatch.setattr(report, "decode_in_a_process", decode)
    _, found = printed(capsys, "--seconds", "5")
    assert asked == [("cpu", 2.5), ("cuda", 2.5)]
    assert found["findings"][0]["found"] == "2 GPUs"


def test_the_table_says_what_to_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    findings = [ok("a", "fine"), note("b", "slow", "wait [longer]"), problem("c", "broken", "mend it")]
    monkeypatch.setattr(report, "examine", lambda *_: iter(findings))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "→ wait [longer]" in out
    assert "→ mend it" in out
    assert "verdict: 1 problem(s), 1 note(s); first: c" in out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--path", "/no/such"], "--path must be a folder of images, got /no/such\n"),
        (["--path", ""], "--path must be a folder of images, got ''\n"),
        (["--seconds", "-1"], "0 or more"),
    ],
)
def test_wrong_usage_is_2(options: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *options]) == 2
    assert line in capsys.readouterr().err


def test_the_path_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jpg").write_bytes(b"x")
    assert main(["doctor", "--path", str(tmp_path / "a.jpg")]) == 2
