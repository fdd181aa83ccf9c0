"""The cache of indexes: built once, built anew when the data changed, whole after a kill, one for many processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug.sources import TFRecord, WebDataset, index
from tests.record_files import example, jpeg, write_tar, write_tfrecord

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


def test_a_tar_that_is_packed_again_in_another_order(tmp_path: Path, builds: list[str]) -> None:
    """Of the same members, names and bytes: only the time of change tells."""
    members = {i: {f"{i}.jpg": jpeg(i), f"{i}.cls": b"%d" % i} for i in range(3)}
    path = write_tar(tmp_path / "a.tar", members[0] | members[1] | members[2])
    before = path.stat()
    source = WebDataset(path, index_dir=tmp_path / "index")
    assert source.targets.tolist() == [0, 1, 2]
    write_tar(path, members[2] | members[0] | members[1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert path.stat().st_size == before.st_size
    again = WebDataset(path, index_dir=tmp_path / "index")
    assert again.targets.tolist() == [2, 0, 1]
    assert [again.sample_name(i) for i in range(3)] == ["a.tar:2", "a.tar:0", "a.tar:1"]
    with closing(again.reader()) as reader:
        encoded = reader.begin(np.arange(3), False).result()
    assert [encoded.content(i) for i in range(3)] == [jpeg(2), jpeg(0), jpeg(1)]
    assert again.fingerprint() != source.fingerprint()
    assert builds == ["a.tar"] * 2


@pytest.mark.parametrize("name", ["影" * 80, "x" + "影" * 80, "x" * 250, "a" * 79 + "ü", "🖼" * 60])
def test_names_as_long_as_a_file_system_allows(tmp_path: Path, builds: list[str], name: str) -> None:
    source = write(tmp_path / name, 3)
    assert source.targets.tolist() == [3]
    assert TFRecord(source.paths, index_dir=source.index_dir).targets.tolist() == [3]
    assert builds == [name]
    (cached,) = (tmp_path / "index").glob("*.npz")
    assert cached.name.startswith(name[:20])
    assert name.startswith(cached.name[:-25])  # cut at the end of a character


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


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_an_index_is_for_whom_new_files_are(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write(tmp_path / "x", 3).check()
    finally:
        os.umask(before)
    (stored,) = (tmp_path / "index").glob("*.npz")
    assert stored.stat().st_mode & 0o777 == mode


def test_a_home_in_the_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPUAUG_INDEX_DIR", "~/kept")
    assert index.cache_folder(None) == str(tmp_path / "kept")


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


def test_what_a_killed_process_has_begun_to_write_is_removed(tmp_path: Path) -> None:
    source = write(tmp_path / "x", 4, 5)
    script = "import os\nfrom lightning_gpuaug.sources import TFRecord, index\n"
    script += "index.os.replace = lambda *a: os.kill(os.getpid(), 9)\n"
    script += f"TFRecord({str(tmp_path / 'x')!r}, index_dir={source.index_dir!r}).check()"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "index").glob("*.npz*.tmp"))) == 1
    (tmp_path / "index" / "y.npz1.tmp").touch()  # of another file
    assert source.targets.tolist() == [4, 5]
    assert [path.name for path in (tmp_path / "index").glob("*.tmp")] == ["y.npz1.tmp"]


def test_without_locks_what_others_may_be_writing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("lightning_gpuaug.sources.locks.fcntl.flock", no_locks)
    source = write(tmp_path / "x", 3)
    source.check()
    (cached,) = (tmp_path / "index").glob("*.npz")
    cached.unlink()
    old, new = Path(f"{cached}old.tmp"), Path(f"{cached}new.tmp")
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 3600,) * 2)
    TFRecord(source.paths, index_dir=source.index_dir).check()
    assert (cached.exists(), old.exists(), new.exists()) == (True, False, True)


def test_several_that_store_the_same_index_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locks keep nobody out: one's file is removed by another just before it gets its name."""
    monkeypatch.setattr("lightning_gpuaug.sources.locks.fcntl.flock", lambda *_: None)
    replace, removed = os.replace, []

    def late(unfinished: str, cache: str) -> None:
        if not removed:
            removed.append(unfinished)
            index._remove_left_over(cache, alone=True)
        replace(unfinished, cache)

    monkeypatch.setattr("os.replace", late)
    source = write(tmp_path / "x", 3)
    assert source.targets.tolist() == [3]
    assert removed
    assert not list((tmp_path / "index").glob("*.npz"))
    assert TFRecord(source.paths, index_dir=source.index_dir).targets.tolist() == [3]
    assert len(list((tmp_path / "index").glob("*.npz"))) == 1
