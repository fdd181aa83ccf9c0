"""`gpuaug index`: what it says, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_gpuaug.cli import main
from lightning_gpuaug.sources import TFRecord
from tests import record_files as files
from tests.record_files import example, jpeg


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [example({"image/encoded": jpeg(i), "image/class/label": i}) for i in range(3)]
    files.write_tfrecord(tmp_path / "a-00", rows)
    files.write_tfrecord(tmp_path / "a-01", rows[:1])
    files.write_tar(tmp_path / "a.tar", {"1.jpg": jpeg(1), "1.cls": b"1", "2.jpg": jpeg(2)})
    files.write_tfrecord(tmp_path / "from-minus-1", [example({"image/encoded": jpeg(0), "image/class/label": -1})])
    files.write_tar(tmp_path / "several.tar", {"1.jpg": jpeg(1), "1.cls": b"1,2"})
    files.write_recordio(tmp_path / "a.rec", [files.recordio_record(jpeg(0), 0)], tmp_path / "a.idx")
    files.write_lmdb(tmp_path / "db", {b"0": files.datum(jpeg(0), 0)})
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["index", *map(str, args)])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_an_index_that_a_run_then_uses(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, data / "a-*", "--index-dir", data / "i", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert {k: result[k] for k in ("format", "files", "records", "skipped", "index_dir")} == {
        "format": "tfrecord", "files": 2, "records": 4, "skipped": 0, "index_dir": str(data / "i"),
    }  # fmt: skip
    monkeypatch.setattr("lightning_gpuaug.sources.index._build", lambda *a: pytest.fail("indexed again"))
    assert TFRecord(data / "a-*", index_dir=data / "i").targets.tolist() == [0, 1, 2, 0]


def test_an_index_beside_the_shards_is_no_shard(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(capsys, data / "a-*", "--index-dir", data)[0] == 0
    [index] = data.glob("a-00-*.npz")
    index.with_name(f"{index.name}abc.tmp").touch()  # of a run that was killed
    assert "4 records in 2 tfrecord file" in run(capsys, data / "a-*", "--index-dir", data)[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a.tar", "--missing", "skip"], "1 records in 1 webdataset file"),
        (["a.tar", "--label", "none"], "2 records in 1 webdataset file"),
        (["a.rec"], "1 records in 1 recordio file"),
        (["db"], "1 records in 1 lmdb file"),
        (["a-00", "--checksums", "lengths"], "3 records in 1 tfrecord file"),
        (["from-minus-1", "--label-offset", "1"], "1 records in 1 tfrecord file"),
        (["several.tar", "--multilabel"], "1 records in 1 webdataset file"),
    ],
)
def test_every_format(data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    code, out, err = run(capsys, data / arguments[0], *arguments[1:], "--index-dir", data / "i")
    assert told in out
    assert f"index: {data}/i" in out
    assert code == ("skip" in arguments)
    assert err == ""
    if code:
        assert "skipped: 1, the first being" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a.tar"], 1, "a.tar:2: has no cls; it has jpg"),
        (["none-*"], 1, "no file matches"),
        (["a-00", "--image", "img"], 1, "record 0: feature 'img' is missing"),
        (["from-minus-1"], 1, "from-minus-1:0: label must be a class from 0, got -1"),
        (["i"], 1, "no data.mdb in the folder"),
        (["a.rec", "--label-offset", "1"], 2, "--label-offset means nothing for recordio"),
        (["a.rec", "--label", "x"], 2, "--label means nothing for recordio"),
        (["a.tar", "--label", "json"], 2, "must name a field of the JSON"),
        (["a.tar", "--format", "zip"], 2, "invalid choice"),
    ],
)
def test_exit_codes(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    (data / "i").mkdir()
    got, out, err = run(capsys, data / arguments[0], *arguments[1:], "--index-dir", data / "i")
    assert (got, out) == (code, "")
    assert message in err


def test_cut_and_foreign_files_have_their_reason(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (data / "a-00").read_bytes()
    (data / "cut").write_bytes(content[:-9])
    (data / "lfs").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (data / "empty").touch()
    for name, reason in (("cut", "is cut off in record 2"), ("lfs", "is a git-lfs pointer"), ("empty", "no records")):
        code, _, err = run(capsys, data / name, "--index-dir", data / "i")
        assert code == 1
        assert reason in err
    assert run(capsys, data / "empty", data / "a-01", "--index-dir", data / "i")[0] == 0
