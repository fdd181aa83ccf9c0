"""The cache of indexes: built once, built anew when the data changed, whole after a kill, one for many processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lightning_gpuaug.sources import TFRecord, index
from tests.record_files import example, jpeg, write_tfrecord

REPOSITORY = Path(__file__).resolve().parents[2]


def write(path: Path, *labels: int) -> TFRecord:
    rows = [{"image/encoded": jpeg(label), "image/class/label": label} for label in labels]
    write_tfrecord(path, [example(row) for row in rows])
    return TFRecord(path, index_dir=path.parent / "index")


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files indexed so far."""
    seen: list[str] = []
    build = index._build

    def counted(file, indexer):  # type: ignore[no-untyped-def]
        seen.append(Path(file.path).name)
        return build(file, indexer)

    monkeypatch.setattr(index, "_build", counted)
    return seen


def test_built_once_and_anew_when_the_file_changes(tmp_path: Path, builds: list[str]) -> None:
    source = write(tmp_path / "x", 1, 2)
    assert source.targets.tolist() == [1, 2]
    assert TFRecord(source.paths, index_dir=source.index_dir).targets.tolist() == [1, 2]
    assert builds == ["x"]
    before = os.stat(tmp_path / "x")
    again = write(tmp_path / "x", 2, 1)  # of the same size
    os.utime(tmp_path / "x", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert os.stat(tmp_path / "x").st_size == before.st_size
    assert again.targets.tolist() == [2, 1]
    longer = write(tmp_path / "x", 2, 1, 0)
    os.utime(tmp_path / "x", ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert longer.targets.tolist() == [2, 1, 0]
    assert builds == ["x"] * 3
    TFRecord(tmp_path / "x", label=None, index_dir=tmp_path / "index").check()  # another question, another index
    assert builds == ["x"] * 4


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * len(data)]
)
def test_a_damaged_index_is_built_anew(tmp_path: Path, builds: list[str], damage) -> None:  # type: ignore[no-untyped-def]
    source = write(tmp_path / "x", 3)
    source.check()
    (cached,) = (tmp_path / "index").glob("*.npz")
    cached.write_bytes(damage(cached.read_bytes()))
    assert TFRecord(tmp_path / "x", index_dir=tmp_path / "index").targets.tolist() == [3]
    assert builds == ["x", "x"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "x", 3)
    monkeypatch.setattr("os.replace", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        source.check()
    assert [path.suffix for path in (tmp_path / "index").iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file")
    with pytest.raises(OSError, match=r"index of .*x cannot be kept in .*index.*give another index_dir"):
        write(tmp_path / "x", 3).check()


SCRIPT = """
import sys, time
from lightning_gpuaug.sources import TFRecord, index
build, wait = index._build, float(sys.argv[2])
def slow(path, indexer):
    print("building", flush=True)
    made = build(path, indexer)
    time.sleep(wait)
    return made
index._build = slow
print(TFRecord(sys.argv[1], index_dir=sys.argv[1] + ".index").targets.tolist(), flush=True)
"""


def start(path: Path, wait: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(wait)], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_killed_in_the_middle_then_run_by_two_at_once(tmp_path: Path) -> None:
    write(tmp_path / "x", 4, 5)
    killed = start(tmp_path / "x", 60)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "building\n"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert not list((tmp_path / "x.index").glob("*.npz"))
    both = [start(tmp_path / "x", 0.5) for _ in range(2)]
    begin = time.monotonic()
    told = [process.communicate(timeout=120)[0].splitlines() for process in both]
    assert time.monotonic() - begin < 120
    assert [lines[-1] for lines in told] == ["[4, 5]"] * 2
    assert sum(lines.count("building") for lines in told) == 1  # the other one waited and took it
    assert not list((tmp_path / "x.index").glob("*.tmp"))
