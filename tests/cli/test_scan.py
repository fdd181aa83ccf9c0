"""`gpuaug scan`: exit codes, the report, and training without what it found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lightning_gpuaug import FileList, ImageDataModule, ImageFolder
from lightning_gpuaug.bad_images import BadImageError
from lightning_gpuaug.cli import main
from lightning_gpuaug.sources import Source
from tests import record_files
from tests.tools.broken import EXPECTED, break_tree, jpeg, write_tree


def test_clean_is_0_and_findings_are_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path / "clean")
    assert main(["scan", str(tmp_path / "clean")]) == 0
    assert "samples" in capsys.readouterr().out
    write_tree(tmp_path / "bad")
    break_tree(tmp_path / "bad")
    assert main(["scan", str(tmp_path / "bad"), "--show", "2"]) == 1
    out = capsys.readouterr().out
    assert "a/dangling.jpg: link leads nowhere" in out
    assert f"and {len(EXPECTED) - 2} more" in out


def test_json_is_the_whole_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(tmp_path)
    break_tree(tmp_path)
    assert main(["scan", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert {finding["name"] for finding in report["findings"]} == EXPECTED.keys()
    assert report["class_counts"].keys() == {"a", "b"}
    assert report["sizes"]["width"]["median"] > 0


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["{}/none"], "no such folder"),
        (["{}", "--workers", "0"], "--workers must be at least 1"),
        (["{}", "--exclude", "{}/none.txt"], "--exclude"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], complaint: str) -> None:
    write_tree(tmp_path)
    assert main(["scan", *(arg.format(tmp_path) for arg in args)]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/bad.txt", "No such file or directory"),
        ("folder", "not a file"),
        ("file/bad.txt", "Not a directory"),
        ("read-only.txt", "Permission denied"),
        ("", "not a file"),
    ],
)
def test_a_list_that_cannot_be_written_is_told_before_the_scan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    write_tree(tmp_path / "data")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "read-only.txt").touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "read-only" not in str(path) and allowed(path, mode))
    monkeypatch.setattr("lightning_gpuaug.tools.scan.scan_images", lambda *a, **k: pytest.fail("was scanned"))
    before = sorted(tmp_path.rglob("*"))
    path = str(tmp_path / name) if name else ""
    assert main(["scan", str(tmp_path / "data"), "--exclude-list", path]) == 2
    assert capsys.readouterr().err == f"gpuaug scan: error: --exclude-list: {path} cannot be written: {reason}\n"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [b"a\nb.jpg", b"\xff.jpg"])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_report_is_printed_though_a_list_cannot_hold_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: bytes, as_json: bool
) -> None:
    data, text = tmp_path / "data", os.fsdecode(name)
    data.mkdir()
    (data / "good.jpg").write_bytes(jpeg())
    (data / text).write_bytes(b"")
    bad, options = str(tmp_path / "bad"), ["--json"] * as_json
    assert main(["scan", str(data), "--exclude-list", f"{bad}.txt", *options]) == 1
    told = capsys.readouterr()
    if as_json:
        assert [finding["name"] for finding in json.loads(told.out)["findings"]] == [text]
    else:
        assert told.out.splitlines()[-1] == repr(text)[1:-1] + ": empty file"
    assert f"error: --exclude-list: {bad}.txt cannot hold the name {text!r}: a line of a text list is" in told.err
    assert not (tmp_path / "bad.txt").exists()
    assert main(["scan", str(data), "--exclude-list", f"{bad}.json", *options]) == 1
    assert json.loads((tmp_path / "bad.json").read_text()) == [text]
    assert main(["scan", str(data), "--exclude", f"{bad}.json"]) == 0


def test_shards_are_scanned_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))
    write_tree(tmp_path / "data")
    out = str(tmp_path / "out")
    assert main(["convert", str(tmp_path / "data"), out, "--to=webdataset", "--shard-images=4", "--workers=1"]) == 0
    assert main(["scan", out]) == 0
    assert "WebDataset shards" in capsys.readouterr().out
    shard = tmp_path / "out/data-000001.tar"
    shard.write_bytes(shard.read_bytes()[:1400])
    assert main(["scan", f"{out}/data-{{000000..000001}}.tar", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [(finding["name"], finding["kind"]) for finding in report["findings"]] == [
        ("data-000001.tar", "damaged shard")
    ]
    assert report["samples"] == 4
    assert main(["scan", f"{out}/none-*.tar"]) == 2


@pytest.mark.parametrize(
    ("file", "option"), [("from-minus-1.tfrecord", "--label-offset=1"), ("several.tfrecord", "--multilabel")]
)
def test_labels_of_shards_are_read_as_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str, option: str
) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))
    labels = {"from-minus-1.tfrecord": [-1, 0], "several.tfrecord": [[0, 2], [1]]}[file]
    rows = [
        record_files.example({"image/encoded": record_files.jpeg(i), "image/class/label": label})
        for i, label in enumerate(labels)
    ]
    record_files.write_tfrecord(tmp_path / file, rows)
    assert main(["scan", str(tmp_path / file)]) != 0
    capsys.readouterr()
    assert main(["scan", str(tmp_path / file), option, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["samples"] == 2
    assert report["findings"] == []


@pytest.mark.parametrize(
    ("option", "kind"),
    [("--label-offset=1", "folders and lists"), ("--image=png", "folders and lists"), ("--label=x", "recordio")],
)
def test_an_option_of_another_format_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, kind: str
) -> None:
    write_tree(tmp_path / "data")
    record_files.write_recordio(tmp_path / "recordio.rec", [record_files.recordio_record(record_files.jpeg(0), 0)])
    where = tmp_path / ("data" if kind == "folders and lists" else "recordio.rec")
    assert main(["scan", str(where), option]) == 2
    assert f"{option.split('=')[0]} means nothing for {kind}" in capsys.readouterr().err


def test_names_are_printed_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))
    entries = {b"a": record_files.datum(record_files.jpeg(0), 0), b"[b]": record_files.datum(b"<html>", 0)}
    record_files.write_lmdb(tmp_path / "[db]", {**entries, b"b": record_files.datum(record_files.jpeg(0)[:99], 0)})
    assert main(["scan", str(tmp_path / "[db]")]) == 1
    out = capsys.readouterr().out
    assert "[db]: LMDB databases" in out.replace("\n", "")
    assert "data.mdb:[b]: is HTML" in out
    assert "data.mdb:b: truncated" in out  # `:b:` is an emoji to rich


def test_recordio_by_its_index_and_what_it_says_of_a_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))
    records = [record_files.recordio_record(data, 0) for data in (record_files.jpeg(0), b"<html>")]
    rec = str(record_files.write_recordio(tmp_path / "x.rec", records))
    (tmp_path / "x.idx").write_text(f"70\t0\n71\t{len(records[0])}\n")
    bad = tmp_path / "bad.txt"
    assert main(["scan", rec, "--idx", f"{tmp_path}/x.idx", "--exclude-list", str(bad)]) == 1
    assert bad.read_text().splitlines()[-1] == "x.rec:71"
    assert main(["scan", rec, "--exclude-list", str(bad)]) == 1
    assert bad.read_text().splitlines()[-1] == "x.rec:1"
    assert main(["scan", rec, "--exclude", str(bad)]) == 0
    capsys.readouterr()
    assert main(["scan", rec, "--idx", f"{tmp_path}/none.idx"]) == 2
    assert "RecordIO.idx: no such file" in capsys.readouterr().err


def names_trained_on(source: Source) -> list[str]:
    data = ImageDataModule(train=source, batch_size=2, image_size=16, decode="cpu", num_threads=1, drop_last=False)
    loader = data.setup_for("cpu").train_dataloader()
    count = sum(len(targets) for _, targets in loader)
    data.teardown("fit")
    assert count == len(source)
    return sorted(source.sample_name(i) for i in range(len(source)))


def test_a_run_with_the_exclusion_list_meets_no_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, bad = tmp_path / "data", tmp_path / "bad.txt"
    write_tree(root)
    break_tree(root)
    (root / "a/dangling.jpg").unlink()
    listing = root / "list.txt"
    whole = ImageFolder(root)
    listing.write_text("".join(f"{whole.sample_name(i)} {whole.targets[i]}\n" for i in range(len(whole))))
    with pytest.raises(BadImageError):
        names_trained_on(FileList(listing))
    listing.rename(tmp_path / "list.txt")
    with pytest.raises(BadImageError):
        names_trained_on(whole)

    assert main(["scan", str(root), "--exclude-list", str(bad)]) == 1
    good = sorted(whole.sample_name(i) for i in range(len(whole)) if whole.sample_name(i) not in EXPECTED)
    assert names_trained_on(ImageFolder(root, exclude=str(bad))) == good
    assert names_trained_on(FileList(tmp_path / "list.txt", root=root, exclude=str(bad))) == good

    before = bad.read_text().splitlines()
    (root / "b/new.jpg").write_bytes(b"")
    capsys.readouterr()
    assert main(["scan", str(root), "--exclude", str(bad), "--exclude-list", str(bad)]) == 1
    assert "b/new.jpg: empty file" in capsys.readouterr().out
    assert [line for line in before if line[0] != "#"] == bad.read_text().splitlines()[1:-2]
    assert main(["scan", str(root), "--exclude", str(bad)]) == 0
