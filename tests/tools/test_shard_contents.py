"""Scanning shards: every record, and the shards that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug.sources import LMDB, ImageFolder, RecordIO, TFRecord, WebDataset
from lightning_gpuaug.tools.convert import ConvertOptions, convert
from lightning_gpuaug.tools.pieces import PieceReader
from lightning_gpuaug.tools.report import ScanReport, make_report
from lightning_gpuaug.tools.scan import scan_images
from lightning_gpuaug.tools.shard_contents import find_shards, shard_contents
from tests.record_files import (
    MAGIC,
    datum,
    example,
    recordio_record,
    tar_member,
    write_lmdb,
    write_recordio,
    write_tar,
    write_tfrecord,
)
from tests.tools.broken import jpeg, write_tree


@pytest.fixture(autouse=True)
def index_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path_factory.mktemp("index")))


def scanned(path: Path | str, *exclude: str, **options: object) -> ScanReport:
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
    # What convert has written beside them is not meant, a damaged shard is.
    (one.parent / f"train-9{one.suffix}").write_bytes(b"cut")
    report = scanned(f"{tmp_path}/out/train-*")
    assert (report.samples, [f.kind for f in report.findings]) == (8, ["damaged shard"])
    with pytest.raises(FileNotFoundError, match=r"no file matches .*, but for what gpuaug has written beside shards"):
        find_shards(f"{tmp_path}/out/*.json")
    assert find_shards(f"{tmp_path}/out/train-classes.json") is None


def test_which_files_of_a_folder_are_tfrecords_by_their_names(tmp_path: Path) -> None:
    shards = ["A.TFRecord", "a.tfrecord", "a.tfrecord-00000-of-00002", "a.tfrecord.00001", "a.tfrecords", "b-0-of-2",
              "c.tfrecord (1)", "d.tfrecord.gz"]  # fmt: skip
    others = ["a.tfrecord.idx", "a.tfrecord.json", "a.tfrecord-00000-of-00002.idx", "a.tfrecord.md5", "a.tfrecordx",
              "b-0-of-2.txt", "tfrecord"]  # fmt: skip
    for name in shards + others:
        (tmp_path / name).write_bytes(b"")
    found = find_shards(str(tmp_path))
    assert found is not None
    assert [Path(file).name for file in found.files] == shards


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


def test_names_are_those_over_all_shards_though_some_are_damaged(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
    half = jpeg(2)[:3000]
    members = {"1.jpg": jpeg(1), "1.cls": b"0", "2.jpg": half, "2.cls": b"1", "3.jpg": jpeg(3)}
    write_tar(tmp_path / "a/x.tar", members)
    whole = write_tar(tmp_path / "b/x.tar", {"1.jpg": half[:-1], "1.cls": b"1", "2.jpg": jpeg(4), "2.cls": b"0"})
    content = whole.read_bytes()
    whole.write_bytes(content[:700])
    pattern = f"{tmp_path}/{{a,b}}/*.tar"
    report = scanned(pattern)
    assert [(f.name, f.kind) for f in report.findings] == [
        ("b/x.tar", "damaged shard"),
        ("a/x.tar", "incomplete record"),
        ("a/x.tar:2", "truncated"),
    ]
    assert [f.kind for f in scanned(pattern, "a/x.tar:2").findings] == ["damaged shard", "incomplete record"]
    whole.write_bytes(content)
    source = WebDataset(pattern, missing="skip", exclude=["a/x.tar:2"])
    assert [source.sample_name(i) for i in range(len(source))] == ["a/x.tar:1", "b/x.tar:1", "b/x.tar:2"]
    assert [f.name for f in scanned(pattern, "a/x.tar:2").findings] == ["a/x.tar", "b/x.tar:1"]


def test_recordio_with_parts_and_names_by_its_index(tmp_path: Path) -> None:
    good = [jpeg(i) for i in range(2)]
    in_parts = _with_magic(jpeg(5))
    records = [recordio_record(image, i) for i, image in enumerate([*good, jpeg(2)[:3000], in_parts, good[0]])]
    write_recordio(tmp_path / "x.rec", records)
    offsets = [sum(map(len, records[:i])) for i in range(len(records))]
    (tmp_path / "x.idx").write_text("".join(f"k{i}\t{offset}\n" for i, offset in reversed([*enumerate(offsets)])))
    for where in (tmp_path / "x.rec", tmp_path):
        report = scanned(where)
        assert report.kind == "RecordIO files"
        assert [(f.name, f.kind) for f in report.findings] == [
            ("x.rec:2", "truncated"),
            ("x.rec:0", "duplicate with another label"),
            ("x.rec:4", "duplicate with another label"),
        ]
        shards = find_shards(str(where))
        assert shards is not None
        piece, reader = shard_contents(shards).piece(3), PieceReader()
        assert len(piece.cuts) > 0
        assert reader.read(piece) == in_parts
        assert reader.size(piece) == len(in_parts)
        reader.close()
        assert report.class_counts == {str(i): 1 for i in range(5)}
    assert RecordIO(str(tmp_path / "x.rec"), exclude=["x.rec:2"]).targets.tolist() == [0, 1, 3, 4]
    by_key = scanned(tmp_path / "x.rec", idx=[str(tmp_path / "x.idx")])
    assert [f.name for f in by_key.findings] == ["x.rec:k2", "x.rec:k4", "x.rec:k0"]
    source = RecordIO(str(tmp_path / "x.rec"), idx=str(tmp_path / "x.idx"), exclude=["x.rec:k2"])
    assert source.targets.tolist() == [4, 3, 1, 0]
    (tmp_path / "y.rec").write_bytes(records[0][:-9])
    assert [(f.name, f.kind) for f in scanned(tmp_path).findings if "duplicate" not in f.kind] == [
        ("y.rec", "damaged shard"),
        ("x.rec:2", "truncated"),
    ]


def _with_magic(image: bytes) -> bytes:
    """The image with a comment that holds what a RecordIO file is cut at, at whichever multiple of four it comes."""
    comment = b"".join(MAGIC + bytes(1) for _ in range(4))
    return image[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + image[2:]


def test_lmdb_by_its_folder_its_file_and_a_pattern(tmp_path: Path) -> None:
    raw = datum(bytes(12), 0, encoded=False, shape=(3, 2, 2))
    for name, first in (("one_lmdb", 0), ("two_lmdb", 3)):
        entries = {f"{i:02d}".encode(): datum(jpeg(i), i % 2) for i in range(first, first + 3)}
        entries[b"99"] = datum(jpeg(9)[:3000], 1)
        write_lmdb(tmp_path / name, {**entries, b"98": raw})
    for where in (tmp_path / "one_lmdb", tmp_path / "one_lmdb/data.mdb"):
        report = scanned(where)
        assert report.kind == "LMDB databases"
        assert [(f.name, f.kind) for f in report.findings] == [
            ("data.mdb", "incomplete record"),
            ("data.mdb:99", "truncated"),
        ]
        assert "raw pixels" in report.findings[0].reason
        assert report.class_counts == {"0": 2, "1": 2}
    pattern = f"{tmp_path}/{{one,two}}_lmdb"
    data = tmp_path / "one_lmdb/data.mdb"
    content = data.read_bytes()
    data.write_bytes(content[:9000])
    assert [(f.name, f.kind) for f in scanned(pattern).findings] == [
        ("one_lmdb/data.mdb", "damaged shard"),
        ("two_lmdb/data.mdb", "incomplete record"),
        ("two_lmdb/data.mdb:99", "truncated"),
    ]
    data.write_bytes(content)
    names = [f.name for f in scanned(pattern).findings if f.exclude]
    assert names == ["one_lmdb/data.mdb:99", "two_lmdb/data.mdb:99"]
    assert LMDB(pattern, missing="skip", exclude=names).targets.tolist() == [0, 1, 0, 1, 0, 1]


def test_labels_that_look_like_numbers_are_what_the_run_says(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", {"1.jpg": jpeg(1), "1.cls": b"2.0", "2.jpg": jpeg(2), "2.cls": b"10"})
    shards = find_shards(str(tar))
    assert shards is not None
    unclear = shard_contents(shards)
    assert (len(unclear), unclear.classes, unclear.targets) == (2, None, None)
    assert [(found.kind, found.exclude) for found in unclear.findings] == [("unclear labels", False)]
    assert "a.tar:1: all labels must be class numbers, or all class names" in unclear.findings[0].reason
    assert shard_contents(shards, labels="name").classes == ("10", "2.0")
    several = write_tar(tmp_path / "b.tar", {"1.jpg": jpeg(1), "1.cls": b"0 3"})
    shards = find_shards(str(several))
    assert shards is not None
    assert shard_contents(shards, multilabel=True).targets is None


def test_records_with_several_labels_contradict_each_other_too(tmp_path: Path) -> None:
    def rows(*labels: object) -> list[bytes]:
        images = [jpeg(i) for i in (0, 1, 0, 1)]
        return [
            example({"image/encoded": [image], "image/class/label": label})  # type: ignore[dict-item]
            for image, label in zip(images, labels, strict=True)
        ]

    cases = {
        "numbers": (rows([2, 0], [1], [0, 2], [1, 7]), "'1', '1' + '7'"),
        "names": (rows(["b", "a"], ["c"], ["a", "b"], ["c", "a"]), "'c', 'a' + 'c'"),
        "vectors": (rows([0.5, 0.25], [0.0, 0.5], [0.5, 0.25], [0.5, 0.5]), "[0.0, 0.5], [0.5, 0.5]"),
    }
    for name, (records, labels) in cases.items():
        report = scanned(write_tfrecord(tmp_path / f"{name}.tfrecord", records), multilabel=True)
        reason = f"under another label ({labels})"
        assert [(f.name, f.reason) for f in report.findings] == [
            (f"{name}.tfrecord:1", f"same bytes as {name}.tfrecord:3 {reason}"),
            (f"{name}.tfrecord:2", f"same bytes as {name}.tfrecord:0"),
            (f"{name}.tfrecord:3", f"same bytes as {name}.tfrecord:1 {reason}"),
        ]


def test_class_numbers_with_an_offset_are_compared_as_the_run_has_them(tmp_path: Path) -> None:
    rows = [example({"image/encoded": [jpeg()], "image/class/label": label}) for label in ([1, 2], [2, 1], [3])]
    shard = write_tfrecord(tmp_path / "x.tfrecord", rows)
    report = scanned(shard, multilabel=True, label_offset=-1)
    assert {f.kind for f in report.findings} == {"duplicate with another label"}
    assert {f.reason.partition(" under ")[2] for f in report.findings} == {"another label ('0' + '1', '2')"}
    kept = scanned(shard, "x.tfrecord:2", multilabel=True, label_offset=-1)
    assert [(f.name, f.kind) for f in kept.findings] == [("x.tfrecord:1", "duplicate")]


def test_records_with_class_numbers_of_any_size_are_counted(tmp_path: Path) -> None:
    record = example({"image/encoded": [jpeg()], "image/class/label": [2**63 - 1]})
    assert scanned(write_tfrecord(tmp_path / "x.tfrecord", [record])).class_counts == {str(2**63 - 1): 1}
