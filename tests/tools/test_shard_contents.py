"""Scanning shards: every record, and the shards that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.sources import ImageFolder, TFRecord, WebDataset
from lightning_gpuaug.tools.convert import ConvertOptions, convert
from lightning_gpuaug.tools.report import ScanReport, make_report
from lightning_gpuaug.tools.scan import scan_images
from lightning_gpuaug.tools.shard_contents import find_shards, shard_contents
from tests.record_files import example, tar_member, write_tar, write_tfrecord
from tests.tools.broken import jpeg, write_tree


@pytest.fixture(autouse=True)
def index_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path_factory.mktemp("index")))


def scanned(path: Path | str, *exclude: str, **options: str) -> ScanReport:
    shards = find_shards(str(path))
    assert shards is not None
    contents = shard_contents(shards, exclude, **options)  # type: ignore[arg-type]
    return make_report(contents, scan_images(contents, duplicates=True), 1.0)


@pytest.mark.parametrize("form", ["webdataset", "tfrecord"])
def test_what_was_converted_scans_clean(tmp_path: Path, form: str) -> None:
    write_tree(tmp_path / "data", good=4)
    options = ConvertOptions(form, "train", shard_images=3, processes=1)  # type: ignore[arg-type]
    done = convert(ImageFolder(tmp_path / "data"), tmp_path / "out", options)
    for where in (tmp_path / "out", tmp_path / "out" / done.pattern):
        report = scanned(where)
        assert (report.samples, report.good, report.findings) == (8, 8, [])
        assert report.class_counts == {"0": 4, "1": 4}
        assert report.types == {"jpeg": 8}
    one = min((tmp_path / "out").glob("train-0*"))
    assert scanned(one).samples == 3


def test_bad_records_are_named_as_an_exclusion_list_needs_them(tmp_path: Path) -> None:
    whole, half = jpeg(1), jpeg(2)[:3000]
    write_tar(tmp_path / "a.tar", {"x/1.jpg": whole, "x/1.cls": b"0", "x/2.jpg": half, "x/2.cls": b"1",
                                   "x/3.jpg": b"<html>", "x/3.cls": b"1", "x/4.jpg": jpeg(4)})  # fmt: skip
    write_tar(tmp_path / "b.tar", {"y.jpg": whole, "y.cls": b"0"})
    report = scanned(tmp_path)
    assert [(f.name, f.kind, f.exclude) for f in report.findings] == [
        ("a.tar", "incomplete record", False),
        ("a.tar:x/2", "truncated", True),
        ("a.tar:x/3", "not an image", True),
        ("b.tar:y", "duplicate", True),
    ]
    assert "x/4: has no cls" in report.findings[0].reason
    names = [finding.name for finding in report.findings if finding.exclude]
    source = WebDataset(str(tmp_path / "*.tar"), missing="skip", exclude=names)
    assert [source.sample_name(i) for i in range(len(source))] == ["a.tar:x/1"]
    assert [finding.kind for finding in scanned(tmp_path, *names).findings] == ["incomplete record"]


def test_tfrecords_with_other_names_and_without_labels(tmp_path: Path) -> None:
    records = [example({"jpg": [jpeg(i) if i else b""]}) for i in range(3)]
    write_tfrecord(tmp_path / "x.tfrecord", records)
    report = scanned(tmp_path, image="jpg", label="none")
    assert [(f.name, f.reason) for f in report.findings] == [("x.tfrecord:0", "empty file")]
    assert report.class_counts == {}
    source = TFRecord(str(tmp_path / "x.tfrecord"), image="jpg", label=None, exclude=["x.tfrecord:0"])
    assert len(source) == 2
    (finding,) = scanned(tmp_path).findings
    assert finding.kind == "no records"
    assert "3 skipped" in finding.reason
    assert "'image/encoded' is missing" in finding.reason


def test_damaged_shards_are_findings_beside_whole_ones(tmp_path: Path) -> None:
    data = [example({"image/encoded": [jpeg(i)], "image/class/label": [i]}) for i in range(2)]
    whole = write_tfrecord(tmp_path / "0.tfrecord", data).read_bytes()
    (tmp_path / "1.tfrecord").write_bytes(whole[:-100])
    (tmp_path / "2.tfrecord").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (tmp_path / "3.tfrecord").write_bytes(b"")
    damaged = bytearray(whole)
    damaged[len(whole) // 4] ^= 1
    (tmp_path / "4.tfrecord").write_bytes(damaged)
    report = scanned(tmp_path)
    found = [(f.name, f.kind) for f in report.findings if f.kind != "duplicate"]
    assert found == [
        ("1.tfrecord", "damaged shard"),
        ("2.tfrecord", "damaged shard"),
        ("4.tfrecord", "incomplete record"),
    ]
    assert "cut off in record 1" in report.findings[0].reason
    assert "git-lfs" in report.findings[1].reason
    assert "checksum" in report.findings[2].reason
    assert report.samples == 3


def test_nothing_but_damaged_shards(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_member(b"x.jpg", jpeg())[:700])
    report = scanned(tmp_path / "a.tar")
    assert report.samples == 0
    assert [finding.kind for finding in report.findings] == ["damaged shard"]


def test_what_is_no_place_of_shards(tmp_path: Path) -> None:
    write_tree(tmp_path / "data")
    write_tar(tmp_path / "data/extra.tar", {})
    assert find_shards(str(tmp_path / "data")) is None
    assert find_shards(str(tmp_path / "none")) is None
    (tmp_path / "both").mkdir()
    write_tar(tmp_path / "both/x.tar", {})
    write_tfrecord(tmp_path / "both/x.tfrecord", [])
    with pytest.raises(ValueError, match="name those to scan by a pattern"):
        find_shards(str(tmp_path / "both"))
    with pytest.raises(FileNotFoundError, match="no file matches"):
        find_shards(str(tmp_path / "y-*.tar"))
