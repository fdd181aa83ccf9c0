"""Record formats: what their files say, and what is refused, with the file and the record named."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug.sources import LMDB, RecordIO, TFRecord, WebDataset
from lightning_gpuaug.sources.names import NameList
from lightning_gpuaug.sources.records import RecordSource
from lightning_gpuaug.sources.shards import expand
from tests import record_files as files
from tests.record_files import datum, example, jpeg, recordio_record, tar_member

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUAUG_INDEX_DIR", str(tmp_path / "index"))


def images(source: RecordSource) -> list[bytes]:
    """What the source's reader reads, sample by sample, asked for in reverse."""
    reader = source.reader()
    encoded = reader.begin(np.arange(len(source))[::-1].copy(), False).result()
    reader.close()
    assert encoded.problems == {}
    return [encoded.content(i) for i in range(len(source))][::-1]


# ---- TFRecord ------------------------------------------------------------------------------------------------------


def tfrecord(path: Path, *features: dict[str, files.Value], **how: bool) -> Path:
    return files.write_tfrecord(path, [example(f, **how) for f in features])


def numbered(count: int, first: int = 0) -> list[dict[str, files.Value]]:
    return [{"image/encoded": jpeg(i), "image/class/label": i} for i in range(first, first + count)]


@pytest.mark.parametrize("how", [{}, {"packed": False}, {"value_first": True}], ids=["packed", "unpacked", "reordered"])
def test_tfrecord(tmp_path: Path, how: dict[str, bool]) -> None:
    extra: dict[str, files.Value] = {"a": 1.5, "image/encoded2": b"x", "image": [3, -4]}
    tfrecord(tmp_path / "b.tfrecord", *({**extra, **f} for f in numbered(3, 2)), **how)
    tfrecord(tmp_path / "a.tfrecord", *({**f, **extra} for f in numbered(2)), **how)
    (tmp_path / "c.tfrecord").touch()  # an empty shard is fine beside others
    source = TFRecord(tmp_path / "*.tfrecord")
    source.check()
    assert source.targets.tolist() == [0, 1, 2, 3, 4]
    assert source.targets.dtype == np.int64
    assert source.classes is None
    assert source.num_classes == 5
    assert images(source) == [jpeg(i) for i in range(5)]
    assert [source.sample_name(i) for i in (0, 2, -1)] == ["a.tfrecord:0", "b.tfrecord:0", "b.tfrecord:2"]
    assert source.location(3) == f"{tmp_path}/b.tfrecord:1"
    again = pickle.loads(pickle.dumps(source))
    assert (again == source, again.fingerprint()) == (True, source.fingerprint())


def test_tfrecord_labels_of_every_kind(tmp_path: Path) -> None:
    def source(*labels: files.Value | None, **fields: object) -> TFRecord:
        rows = [{"i": jpeg(0)} | ({} if label is None else {"l": label}) for label in labels]
        return TFRecord(tfrecord(tmp_path / "x", *rows), "i", "l", **fields)  # type: ignore[arg-type]

    assert source(1, 1000, label_offset=-1).targets.tolist() == [0, 999]
    assert source("dog", "cat", "dog").targets.tolist() == [1, 0, 1]
    assert source("dog", "cat", "dog").classes == ("cat", "dog")
    assert source("dog", class_names=("dog", "cat")).targets.tolist() == [0]
    assert source([0, 2], [1], multilabel=True, class_names=("a", "b", "c")).targets.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert source(["b", "a"], ["b"], multilabel=True).targets.tolist() == [[1, 1], [0, 1]]
    assert source([0.5, 1.0], [0.0, 0.25], multilabel=True).targets.tolist() == [[0.5, 1], [0, 0.25]]
    with pytest.warns(UserWarning, match="no samples of classes 'a', 'b', 'c'"):
        assert source(3, class_names=("a", "b", "c", "d")).with_classes(("d", "c", "b", "a")).targets.tolist() == [0]
    assert TFRecord(tmp_path / "x", "i", None).targets.tolist() == [-1]
    for wrong, message in {
        (0, "label_offset=-1"): r"x:0: label must be a class from 0, got 0 with label_offset -1",
        (
            -(2**63),
            "label_offset=-1",
        ): r"x:0: label must be within 64 bits, got -9223372036854775808 with label_offset -1",
        (
            2**63 - 1,
            "label_offset=1",
        ): r"x:0: label must be within 64 bits, got 9223372036854775807 with label_offset 1",
        (7, "class_names=abc"): r"x:0: label must be in 0\.\.2, got 7",
        ("z", "class_names=abc"): r"x:0: label must be one of the 3 classes, got 'z'",
        (0.5, ""): r"x:0: label must be a whole number .*got 0\.5",
    }.items():
        name, _, value = wrong[1].partition("=")
        fields = {name: int(value) if name == "label_offset" else tuple(value)} if name else {}
        with pytest.raises(ValueError, match=message):
            source(wrong[0], **fields).check()
    for values, count in ([1, 2], 2), ([], 0):
        with pytest.raises(
            ValueError, match=rf"x: record 1: feature 'l' must hold one value .*, holds {count}; it has"
        ):
            source(1, values).check()
    with pytest.raises(ValueError, match=r"x: record 1: labels must be of one type, got 'a' after whole numbers"):
        source(1, "a").check()
    with pytest.raises(ValueError, match="needs class_names"):
        source([1, 2], multilabel=True).check()
    with pytest.raises(ValueError, match=r"x:1: label must have 2 values, one a class, got 1"):
        source([0.5, 1.0], [0.5], multilabel=True).check()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"image/encodes": b"x"},
            r"feature 'image/encoded' is missing; it has image/class/label \(int64\), image/encodes",
        ),
        ({"image/encoded": [1, 2]}, r"feature 'image/encoded' must be a bytes list \(an encoded image\), is int64"),
        ({"image/encoded": [b"a", b"b"]}, r"feature 'image/encoded' must hold one image, holds 2"),
    ],
)
def test_tfrecord_features_that_are_wrong(tmp_path: Path, row: dict[str, files.Value], message: str) -> None:
    good = {"image/encoded": jpeg(0), "image/class/label": 5}
    path = tfrecord(tmp_path / "x.tfrecord", good, {**row, "image/class/label": 1}, good)
    with pytest.raises(ValueError, match=rf"x\.tfrecord: record 1: {message}"):
        TFRecord(path).check()
    source = TFRecord(path, missing="skip")
    with pytest.warns(UserWarning, match=r"2 records used, 1 skipped, the first being .*record 1"):
        source.check()
    assert source.targets.tolist() == [5, 5]
    assert [source.sample_name(i) for i in range(2)] == ["x.tfrecord:0", "x.tfrecord:2"]
    assert images(source) == [jpeg(0)] * 2


def test_tfrecord_without_a_label(tmp_path: Path) -> None:
    path = tfrecord(tmp_path / "x.tfrecord", {"image/encoded": jpeg(0)})
    with pytest.raises(
        ValueError, match=r"record 0: feature 'image/class/label' is missing; it has image/encoded \(bytes\)"
    ):
        TFRecord(path).check()
    with pytest.raises(ValueError, match=r"no records in 1 file.*1 skipped, the first being"):
        TFRecord(path, missing="skip").check()


def test_damaged_tfrecords_are_named(tmp_path: Path) -> None:
    whole = tfrecord(tmp_path / "w", *numbered(3)).read_bytes()
    second = len(files.frame(example(numbered(1)[0])))
    cases = {
        whole[:-1]: "is cut off in record 2, which needs",
        whole[: second + 5]: "is cut off in record 1, 5 bytes after its start",
        LFS: "is a git-lfs pointer",
        b"<html>not found": "is an HTML page",
        b"\x1f\x8b\x08 gzip": "is compressed with gzip",
        b"no record here at all": "is no TFRecord file",
        whole[:second] + b"\x01" + whole[second + 1 :]: "length of record 1 has a wrong checksum",
        whole[: second + 40] + b"\x01" + whole[second + 41 :]: "record 1: is damaged.*checksum",
    }
    for i, (content, message) in enumerate(cases.items()):
        path = tmp_path / f"case{i}"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"case{i}: .*{message}"):
            TFRecord(path).check()
    last = TFRecord(tmp_path / f"case{len(cases) - 1}", missing="skip")
    with pytest.warns(UserWarning, match="1 skipped"):
        last.check()
    assert last.targets.tolist() == [0, 2]


def test_lengths_alone_can_be_checked(tmp_path: Path) -> None:
    path = tfrecord(tmp_path / "x", *numbered(2))
    content = bytearray(path.read_bytes())
    content[content.rindex(jpeg(1)) + 99] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"record 1: .*checksum"):
        TFRecord(path).check()
    assert len(TFRecord(path, checksums="lengths").targets) == 2


# ---- WebDataset ----------------------------------------------------------------------------------------------------


def test_webdataset(tmp_path: Path) -> None:
    files.write_tar(
        tmp_path / "s-00.tar",
        {
            "./a/0.jpg": jpeg(0),
            "./a/0.cls": b" 0\n",
            "a/1.5.x.JPG": b"no",
            "a/1.CLS": b"1",
            "a/1.PNG": jpeg(1),
            ".hid.jpg": b"",
        },
    )
    (tmp_path / "s-01.tar").write_bytes(files.TAR_END)
    files.write_tar(tmp_path / "s-02.tar", {"b.cls": b"2", "b.jpeg": jpeg(2), "b.txt": b"?"})
    source = WebDataset(str(tmp_path / "s-{00..02}.tar"))
    source.check()
    assert source.targets.tolist() == [0, 1, 2]
    assert images(source) == [jpeg(i) for i in range(3)]
    assert [source.sample_name(i) for i in range(3)] == ["s-00.tar:a/0", "s-00.tar:a/1", "s-02.tar:b"]


@pytest.mark.parametrize("length", [90, 120, 180, 300])
@pytest.mark.parametrize("member", [files.gnu_long, lambda n, c: files.pax(n.decode(), c)], ids=["gnu", "pax"])
def test_long_names_that_are_not_ascii(tmp_path: Path, length: int, member: Callable[[bytes, bytes], bytes]) -> None:
    stem = ("ordner/" + "ü" * length)[: length // 2] + "/x"
    path = tmp_path / "a.tar"
    parts = [member(f"{stem}.JPG".encode(), jpeg(0)), member(f"{stem}.cls".encode(), b"4")]
    path.write_bytes(b"".join(parts) + files.TAR_END)
    source = WebDataset(path)
    assert source.sample_name(0) == f"a.tar:{stem}"
    assert source.targets.tolist() == [4]
    assert images(source) == [jpeg(0)]


def test_ustar_prefixes_and_pax_sizes(tmp_path: Path) -> None:
    stem = "p" * 90 + "/" + "q" * 90
    image = tar_member(b"PaxHeaders/x", files.pax_record("size", str(len(jpeg(1)))), b"x")
    image += tar_member(f"{stem}.jpg".encode(), jpeg(1), size=0)
    (tmp_path / "a.tar").write_bytes(image + tar_member(f"{stem}.cls".encode(), b"1") + files.TAR_END)
    source = WebDataset(tmp_path / "a.tar")
    assert source.sample_name(0) == f"a.tar:{stem}"
    assert images(source) == [jpeg(1)]


def test_missing_members(tmp_path: Path) -> None:
    members = {"1.jpg": jpeg(1), "1.cls": b"1", "2.jpg": jpeg(2), "3.cls": b"3", "4.jpg": jpeg(4), "4.cls": b"4"}
    path = files.write_tar(tmp_path / "a.tar", members)
    with pytest.raises(ValueError, match=r"a\.tar:2: has no cls; it has jpg"):
        WebDataset(path).check()
    source = WebDataset(path, missing="skip")
    with pytest.warns(UserWarning, match="2 records used, 2 skipped"):
        source.check()
    assert source.targets.tolist() == [1, 4]


def _pax(key: str, value: str) -> bytes:
    return tar_member(b"PaxHeaders/x", files.pax_record(key, value), b"x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda tar: tar[:-1024], "is cut off at byte"),
        (lambda tar: tar[:700], "is cut off: the member at byte 0 needs"),
        (lambda tar: tar[:100], "is no tar file"),
        (lambda tar: tar + tar, r"goes on behind its end at byte \d+ \(two tars in one file"),
        (lambda tar: tar[:520] + b"x" + tar[521:-1024] + b"y" * 512, "is damaged: no tar header at byte"),
        (lambda tar: LFS, "git-lfs"),
        (lambda tar: tar_member(b"a.jpg", b"", b"2") + tar, "member 'a.jpg' is a link"),
        (lambda tar: tar_member(b"a/b.jpg", b"x", b"M") + tar, r"'a/b\.jpg' at byte 0 is continued.*\(type 'M'\)"),
        (lambda tar: tar_member(b"b.jpg", b"x", b"8") + tar, r"member 'b\.jpg' at byte 0 is unknown \(type '8'\)"),
        (lambda tar: tar[:-1024] + tar_member(b"1.jpg", b"", b"\xe9") + files.TAR_END, r"unknown \(type 'é'\)"),
        (lambda tar: tar_member(b"a.jpg", b"x" * 9, b"S") + tar, "the member at byte 0 is a sparse file"),
        (lambda tar: _pax("GNU.sparse.major", "1") + tar, "the member at byte 1024 is a sparse file"),
        (lambda tar: _pax("size", "abc") + tar, "the PAX size of the member at byte 1024 must be .*, got 'abc'"),
        (lambda tar: _pax("size", "1_0") + tar, "the PAX size of the member at byte 1024 must be .*, got '1_0'"),
        (lambda tar: _pax("size", "9" * 5000) + tar, r"the PAX size of the member at byte \d+ must be"),
        (lambda tar: tar_member(b"0.jpg", jpeg(0)) + tar, r":0: has two members 'jpg'"),
        (lambda tar: tar_member(b"\xff.jpg", b"") + tar, "names must be UTF-8"),
    ],
)  # fmt: skip
def test_damaged_tars_are_named(tmp_path: Path, content: Callable[[bytes], bytes], message: str) -> None:
    path = files.write_tar(tmp_path / "a.tar", {"0.jpg": jpeg(0), "0.cls": b"0"})
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"a\.tar.*({message})"):
        WebDataset(path).check()


def test_members_that_are_no_files_are_passed_over(tmp_path: Path) -> None:
    """Folders, devices and pipes, GNU's listings of folders and labels of volumes."""
    path = files.write_tar(tmp_path / "a.tar", {"0.jpg": jpeg(0), "0.cls": b"0"})
    others = [tar_member(b"f/", b"", b"5"), tar_member(b"d/", b"Y0.jpg\0\0", b"D"), tar_member(b"volume", b"", b"V")]
    others += [tar_member(b"device", b"", kind, size=700) for kind in (b"3", b"4", b"6")]
    path.write_bytes(b"".join(others) + path.read_bytes())
    source = WebDataset(path)
    assert source.targets.tolist() == [0]
    assert images(source) == [jpeg(0)]


def test_keys_that_come_again(tmp_path: Path) -> None:
    twice = {"a.jpg": jpeg(0), "a.cls": b"1", "b.jpg": jpeg(1), "b.cls": b"1"}
    tar = files.write_tar(tmp_path / "a.tar", twice)
    tar.write_bytes(tar.read_bytes()[:-1024] + tar_member(b"a.jpg", jpeg(3)) + files.TAR_END)
    with pytest.raises(ValueError, match=r"a\.tar:a: members of one sample must be neighbours"):
        WebDataset(tar).check()


def test_webdataset_labels_of_every_kind(tmp_path: Path) -> None:
    def source(label: str | None, *contents: bytes, **fields: object) -> WebDataset:
        ending = (label or "cls").partition(":")[0]
        members = {
            f"{i}.{e}": c for i, content in enumerate(contents) for e, c in (("jpg", jpeg(i)), (ending, content))
        }
        return WebDataset(files.write_tar(tmp_path / "x.tar", members), label=label, **fields)  # type: ignore[arg-type]

    assert source("cls", b"dog\n", b"\xef\xbb\xbfcat").classes == ("cat", "dog")
    assert source("json:a.b", b'{"a": {"b": 7}}').targets.tolist() == [7]
    assert source("json:a", b'{"a": "dog"}').classes == ("dog",)
    assert source("JSON:a", b'{"a": 1.0}').targets.tolist() == [1]
    assert source("cls", b"0, 2", b"1", multilabel=True, class_names=("a", "b", "c")).targets.tolist() == [
        [1, 0, 1],
        [0, 1, 0],
    ]
    assert source("json:a", b'{"a": ["x", "y"]}', b'{"a": []}', multilabel=True).targets.tolist() == [[1, 1], [0, 0]]
    assert source("json:a", b'{"a": [0.5, 1]}', multilabel=True).targets.tolist() == [[0.5, 1]]
    assert source(None, b"?").targets.tolist() == [-1]
    for label, content, message in (
        ("cls", b"", "cls must be a class number or name, got nothing"),
        ("cls", b"\xff\xfe", "cls must be UTF-8 text"),
        ("json:b", b'{"a": 1}', r"json:b must have the field 'b', which has a"),
        ("json:a", b"{", "json:a must be JSON"),
        ("json:a", b"[" * 100_000, "json:a must be JSON"),
        ("json:a", b'{"a": true}', "json:a must be a number or a name, got true"),
        ("json:a", b'{"a": [1]}', r"json:a must be a number or a name, got \[1\]"),
    ):
        with pytest.raises(ValueError, match=rf"x\.tar:0: {message}"):
            source(label, content).check()
    with pytest.raises(ValueError, match=r"x\.tar:0: json:a must be numbers that a float holds, got \[0\.5, 10"):
        source("json:a", b'{"a": [0.5, 1' + b"0" * 400 + b"]}", multilabel=True).check()
    with pytest.raises(ValueError, match=r"x\.tar:1: labels must be of one type, got 'b' after whole numbers"):
        source("json:a", b'{"a": 1}', b'{"a": "b"}').check()


def test_no_record_with_a_label_is_still_multilabel(tmp_path: Path) -> None:
    """The records of a shard, or of all, may have none of the classes."""
    tar = files.write_tar(tmp_path / "x.tar", {"1.jpg": jpeg(1), "1.cls": b""})
    source = WebDataset(tar, multilabel=True, class_names=("a", "b"))
    assert source.targets.dtype == np.float32
    assert source.targets.tolist() == [[0, 0]]
    with pytest.warns(UserWarning, match="no samples of classes"):
        assert source.with_classes(("b", "c", "a")).targets.tolist() == [[0, 0, 0]]
    assert WebDataset(tar, label=None, multilabel=True, class_names=("a", "b")).targets.tolist() == [-1]
    with pytest.raises(ValueError, match="no record has a label; class_names must say"):
        WebDataset(tar, multilabel=True).check()


def test_names_with_a_nul_are_refused(tmp_path: Path) -> None:
    """They would shift the names of all records behind them."""
    tar = tmp_path / "x.tar"
    tar.write_bytes(files.pax("a\0b.jpg", jpeg(0)) + files.TAR_END)
    with pytest.raises(ValueError, match=r"x\.tar: member names must not hold a NUL"):
        WebDataset(tar, label=None).check()
    rec = files.write_recordio(tmp_path / "a.rec", [recordio_record(jpeg(0), 0)])
    (tmp_path / "a.idx").write_bytes(b"a\0b\t0\n")
    with pytest.raises(ValueError, match=r"a\.idx:1: must be a key, a tab and a byte"):
        RecordIO(rec, tmp_path / "a.idx").check()
    with pytest.raises(ValueError, match=r"a name must not hold a NUL, got 'a\\x00b'"):
        NameList.of(["x", "a\0b"])
    assert list(NameList.of([""])) == [""]
    assert list(NameList.of([])) == []


# ---- RecordIO ------------------------------------------------------------------------------------------------------


def test_recordio(tmp_path: Path) -> None:
    holed = jpeg(1) + files.MAGIC * 2 + b"abcd" + files.MAGIC + b"x"  # cut by the writer wherever it is aligned
    holed = holed[: len(jpeg(1))] + bytes(-len(jpeg(1)) % 4) + holed[len(jpeg(1)) :]
    contents = [jpeg(0), holed, jpeg(2), files.MAGIC + jpeg(3)]
    records = [recordio_record(content, i) for i, content in enumerate(contents)]
    assert len(records[1]) > len(holed) + 40  # it was cut
    rec = files.write_recordio(tmp_path / "a.rec", records, tmp_path / "a.idx")
    plain, keyed = RecordIO(rec), RecordIO(rec, tmp_path / "a.idx", exclude=("a.rec:0",))
    assert plain.targets.tolist() == [0, 1, 2, 3]
    assert images(plain) == contents
    assert keyed.targets.tolist() == [1, 2, 3]
    assert images(keyed) == contents[1:]
    assert keyed.sample_name(0) == "a.rec:1"


def test_the_order_of_an_idx_file_counts(tmp_path: Path) -> None:
    records = [recordio_record(jpeg(i), i) for i in range(3)]
    rec = files.write_recordio(tmp_path / "a.rec", records, tmp_path / "a.idx")
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text("\n".join([f"k{line}" for line in lines[::-1]]) + "\n")
    source = RecordIO(rec, tmp_path / "a.idx")
    assert source.targets.tolist() == [2, 1, 0]
    assert source.sample_name(0) == "a.rec:k2"


def test_recordio_labels(tmp_path: Path) -> None:
    vectors = [recordio_record(jpeg(0), [0.5, 1.0]), recordio_record(jpeg(1), [1.0, 0.0])]
    rec = files.write_recordio(tmp_path / "a.rec", vectors)
    assert RecordIO(rec, multilabel=True).targets.tolist() == [[0.5, 1], [1, 0]]
    assert images(RecordIO(rec, multilabel=True)) == [jpeg(0), jpeg(1)]
    with pytest.raises(ValueError, match=r"a\.rec:0: a label must be one value"):
        RecordIO(rec).check()
    files.write_recordio(rec, [recordio_record(jpeg(0), 1.5)])
    with pytest.raises(ValueError, match=r"a\.rec:0: label must be a whole number .*got 1\.5"):
        RecordIO(rec).check()


def test_pairs_that_do_not_belong_together(tmp_path: Path) -> None:
    records = [recordio_record(jpeg(i, (12, 10 + 9 * i)), i) for i in range(4)]
    for name, part in (("a", records[:2]), ("c", records[2:])):
        files.write_recordio(tmp_path / f"{name}.rec", part, tmp_path / f"{name}.idx")
    recs, idxs = [str(tmp_path / f"{n}.rec") for n in "ac"], [str(tmp_path / f"{n}.idx") for n in "ca"]
    with pytest.raises(ValueError, match=r"c\.idx:2: .*a\.rec has no record at byte \d+: they do not belong together"):
        RecordIO(recs, idxs).check()
    with pytest.raises(ValueError, match=r"RecordIO.idx must name one file for each of rec, got 1 for 2"):
        RecordIO(recs, idxs[0]).check()
    with pytest.raises(ValueError, match=r"a\.rec: must be lines of .* is a RecordIO file itself"):
        RecordIO(recs[0], recs[0]).check()
    (tmp_path / "a.idx").write_bytes(b"\n0\t\xff\n")
    with pytest.raises(ValueError, match=r"a\.idx:2: must be text in UTF-8: a key, a tab and a byte, got b'0"):
        RecordIO(recs[0], idxs[1]).check()
    (tmp_path / "a.idx").write_text(f"7\t0\n\n7\t{len(records[0])}\n")
    with pytest.raises(ValueError, match=r"a\.idx:3: keys must be distinct, got '7' in line 1 too"):
        RecordIO(recs[0], idxs[1]).check()
    files.write_recordio(tmp_path / "a.rec", records[:1] + records[:1])
    (tmp_path / "a.idx").write_text("0\t0\n")
    with pytest.raises(ValueError, match=r"a\.idx: lists 1 records, .*a\.rec has 2"):
        RecordIO(recs[0], idxs[1]).check()


def test_damaged_recordio_is_named(tmp_path: Path) -> None:
    whole = b"".join(recordio_record(jpeg(i), i) for i in range(2))
    first = len(recordio_record(jpeg(0), 0))
    for i, (content, message) in enumerate({
        whole[:-4]: "is cut off in record 1",
        whole[: first + 4]: "is cut off in record 1",
        whole[:first] + b"abcd" + whole[first:]: "is damaged: no record at byte",
        b"abcdefgh": "is no RecordIO file",
        files._part(1, b"abcd"): "is cut off in record 0",
        files._part(3, b"abcd"): "has parts out of order",
        files._part(0, b"abcd"): "record 0: is 4 bytes long",
        recordio_record(b"", 1): "record 0: holds no image",
    }.items()):  # fmt: skip
        path = tmp_path / f"case{i}.rec"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"case{i}\.rec: .*{message}"):
            RecordIO(path).check()


# ---- LMDB ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "per_leaf"), [(1, 3), (3, 3), (20, 2), (30, 7)])
def test_lmdb(tmp_path: Path, count: int, per_leaf: int) -> None:
    contents = [
        jpeg(i, (12, 10)) if i % 2 else jpeg(i, (60, 200)) for i in range(count)
    ]  # in leaves and outside of them
    entries = {f"{i:08d}_x".encode(): datum(contents[i], i, encoded=i % 3 > 0) for i in range(count)}
    source = LMDB(files.write_lmdb(tmp_path / "db", entries, per_leaf))
    source.check()
    assert source.targets.tolist() == list(range(count))
    assert images(source) == contents
    assert source.sample_name(count - 1) == f"data.mdb:{count - 1:08d}_x"
    assert LMDB(tmp_path / "db" / "data.mdb").fingerprint() == source.fingerprint()


def test_raw_pixels_in_an_lmdb(tmp_path: Path) -> None:
    entries = {
        b"a": datum(jpeg(0), 1),
        b"b": datum(b"\7" * 12, 2, encoded=False, shape=(3, 2, 2)),
        b"c": datum(jpeg(1), 3),
    }
    path = files.write_lmdb(tmp_path / "db", entries)
    with pytest.raises(ValueError, match=r"data\.mdb:b: holds raw pixels \(3 × 2 × 2\)"):
        LMDB(path).check()
    source = LMDB(path, missing="skip")
    with pytest.warns(UserWarning, match="1 skipped"):
        source.check()
    assert source.targets.tolist() == [1, 3]


def test_damaged_lmdbs_are_named(tmp_path: Path) -> None:
    entries = {f"{i}".encode(): datum(jpeg(i, (60, 200)), i) for i in range(7)}
    path = files.write_lmdb(tmp_path / "db", entries, 2) / "data.mdb"
    whole = path.read_bytes()
    for content, message in {
        whole[:-4096]: "is cut off",
        whole[: 5 * 4096]: "is cut off",
        b"x" * 9000: "is no LMDB database",
        whole[:4112] + b"\0\0\0\0" + whole[4116:]: "no records",  # the first, empty transaction is left
        whole[:-4080] + b"\xff" * 4080: "is damaged|is cut off",
    }.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            LMDB(path).check()


# ---- all of them ---------------------------------------------------------------------------------------------------


def test_exclude_leaves_out_by_name(tmp_path: Path) -> None:
    path = tfrecord(tmp_path / "x.tfrecord", *numbered(4))
    (tmp_path / "bad.txt").write_text("# found by a scan\nx.tfrecord:1\nx.tfrecord:9\n")
    source = TFRecord(path, exclude=tmp_path / "bad.txt")
    with pytest.warns(UserWarning, match=r"1 of the excluded names match nothing.*x\.tfrecord:9"):
        source.check()
    assert source.targets.tolist() == [0, 2, 3]
    assert [source.sample_name(i) for i in range(3)] == ["x.tfrecord:0", "x.tfrecord:2", "x.tfrecord:3"]
    assert images(source) == [jpeg(i) for i in (0, 2, 3)]
    assert source.fingerprint() != TFRecord(path).fingerprint()
    with pytest.raises(ValueError, match="leaves none of the 4 records"):
        TFRecord(path, exclude=[f"x.tfrecord:{i}" for i in range(4)]).check()


def test_fingerprints_know_the_data_and_not_its_place(tmp_path: Path) -> None:
    prints = set()
    for name, rows in (("a", numbered(2)), ("b", numbered(2)), ("c", numbered(3)), ("d", [numbered(1)[0]] * 2)):
        (tmp_path / name).mkdir()
        prints.add(TFRecord(tfrecord(tmp_path / name / "x", *rows)).fingerprint())
    assert len(prints) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: TFRecord(p / "none.tfrecord"), "no such file: .*none.tfrecord"),
        (lambda p: TFRecord(p / "*.tfrecord"), r"no file matches .*\*\.tfrecord"),
        (lambda p: TFRecord("s3://bucket/x-*.tfrecord"), r"TFRecord\.paths: objects in S3 are not searched.*braces"),
        (lambda p: TFRecord("s3://bucket/a/../x"), r"TFRecord\.paths in S3 must have no '/\.\./', got 's3://bucket/a"),
        (lambda p: TFRecord("s3://bucket/a#x"), r"TFRecord\.paths in S3 must have no '#'.* DALI would read another"),
        (lambda p: TFRecord("s3://bucket/folder/"), r"TFRecord\.paths in S3 must be s3://bucket/key of one object"),
        (lambda p: TFRecord("s3://bucket"), r"TFRecord\.paths in S3 must be s3://bucket/key of one object"),
        (lambda p: RecordIO(p / "two", "s3://b/?.idx"), r"RecordIO\.idx: objects in S3 are not searched.*use braces"),
        (lambda p: LMDB("s3://bucket/db"), r"LMDB\.path must be on a file system, got 's3://bucket/db'.*mount it"),
        (lambda p: TFRecord(["s3://b/{x,y}", "s3://b/x"]), r"must name each file once, got s3://b/x twice"),
        (lambda p: TFRecord([str(p / "two"), str(p / "link")]), r"once, got .*/link twice \(.*/two\)"),
        (lambda p: TFRecord([str(p / "hard"), str(p / "two")]), r"once, got .*/two twice \(.*/hard\)"),
        (lambda p: TFRecord([str(p / "two"), str(p / "folder/two")]), r"once, got .*/folder/two twice"),
        (lambda p: WebDataset("https://host/{0..3}.tar"), r"WebDataset.urls must be on a file system or in S3.*https://"),
        (lambda p: WebDataset("pipe:cat x.tar"), r"no such file: pipe:cat x\.tar"),
        (lambda p: TFRecord(p), r"TFRecord\.paths must name files, \S+ is a folder; give .* such as \S+/\*\.tfrecord"),
        (lambda p: WebDataset([str(p / "two"), str(p)]), r"WebDataset\.urls must name files, .*such as \S+/\*\.tar"),
        (lambda p: RecordIO(p / "f*"), r"RecordIO\.rec must name files, \S+/folder is a folder; .*/folder/\*\.rec"),
        (lambda p: RecordIO(p / "two", p), r"RecordIO\.idx must name files, \S+ is a folder; .* as \S+/\*\.idx"),
        (lambda p: TFRecord(()), "TFRecord.paths must name at least one file"),
        (lambda p: TFRecord(p / "x", missing="ignore"), 'TFRecord.missing must be "raise" or "skip"'),
        (lambda p: TFRecord(p / "x", checksums="none"), "TFRecord.checksums must be"),
        (lambda p: WebDataset(p / "x", label="json"), "must name a field"),
        (lambda p: WebDataset(p / "x", label="JPG"), "must not be one of the image's endings"),
        (lambda p: TFRecord([str(p / "two"), str(p / "two")]), "must name each file once"),
        (lambda p: TFRecord([str(p / "two"), f"{p}/./two"]), r"must name each file once, got .*/\./two twice"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(tmp_path: Path, make: Callable[[Path], RecordSource], message: str) -> None:
    (tmp_path / "two").touch()
    (tmp_path / "link").symlink_to("two")
    (tmp_path / "hard").hardlink_to(tmp_path / "two")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises((ValueError, OSError), match=message):
        make(tmp_path).check()


def test_shards_with_labels_of_different_types(tmp_path: Path) -> None:
    tfrecord(tmp_path / "a", {"i": jpeg(0), "l": 1})
    tfrecord(tmp_path / "b", {"i": jpeg(0), "l": "dog"})
    with pytest.raises(ValueError, match=r"b: labels are class names, but whole numbers in .*a"):
        TFRecord([str(tmp_path / "a"), str(tmp_path / "b")], "i", "l").check()


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("{a,{b,c}}", "a b c"),
        ("{{a,b},c}-{0,1}", "a-0 a-1 b-0 b-1 c-0 c-1"),
        ("x{a{1..2},b}{,y}", "xa1 xa1y xa2 xa2y xb xby"),
        ("x{foo}-{0..2}", "x{foo}-0 x{foo}-1 x{foo}-2"),
        ("{}{a{b,c}}{", "{}{ab}{ {}{ac}{"),
        ("a}{08..11}{x", "a}08{x a}09{x a}10{x a}11{x"),
        ("{3..1}{-1..1}", "3-1 30 31 2-1 20 21 1-1 10 11"),
        ("{1..2,5}", "1..2 5"),
        ("{a{b,c}", "{ab {ac"),
        ("{here,there}", "{here,there}"),  # a file that is called so
    ],
)
def test_braces_are_those_of_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, files: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in {*files.split(), "{here,there}"}:
        Path(name).write_text(name)
    assert expand(pattern, "paths") == tuple(files.split())
