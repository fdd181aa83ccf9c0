"""Scanning: what is found, what is not, and what the report says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightning_gpuaug.sources import FileList, ImageFolder, NumpyFolder
from lightning_gpuaug.sources.exclude import excluded_names
from lightning_gpuaug.tools.contents import contents_of
from lightning_gpuaug.tools.findings import Finding, write_exclude_list
from lightning_gpuaug.tools.report import ScanReport, make_report
from lightning_gpuaug.tools.scan import CHUNK, scan_images
from tests.tools.broken import EXPECTED, break_tree, jpeg, overwritten_jpeg, write_tree


def scanned(path: Path, exclude: tuple[str, ...] = (), labelled: bool = True, **options: object) -> ScanReport:
    contents = contents_of(str(path), exclude, labelled)
    return make_report(contents, scan_images(contents, **options), 1.0)  # type: ignore[arg-type]


def test_every_kind_of_bad_file_is_found_and_nothing_else(tmp_path: Path) -> None:
    write_tree(tmp_path)
    break_tree(tmp_path)
    report = scanned(tmp_path)
    found = {finding.name: finding for finding in report.findings}
    assert found.keys() == EXPECTED.keys()
    for name, (kind, reason) in EXPECTED.items():
        assert found[name].kind == kind
        assert found[name].reason.startswith(reason)
    assert len({finding.reason for finding in report.findings}) == len(EXPECTED)
    assert report.samples == 6 + len(EXPECTED) - 1 + 2  # the link is no sample
    assert report.good == 8
    assert report.counts["truncated"] == 2
    assert report.types["png"] == 3
    assert report.misnamed == ["b/png_named.jpg"]
    assert json.loads(json.dumps(report.to_json()))["findings"][0]["name"] == "a/dangling.jpg"


def test_a_clean_tree_has_counts_and_sizes(tmp_path: Path) -> None:
    write_tree(tmp_path, good=4)
    Image.fromarray(np.zeros((300, 200, 3), dtype=np.uint8)).save(tmp_path / "b/tall.png")
    (tmp_path / "a/.hidden.jpg").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("x")
    report = scanned(tmp_path)
    assert report.findings == []
    assert report.good == report.samples == 9
    assert report.class_counts == {"a": 4, "b": 5}
    assert report.sizes["width"] == {"min": 60, "p5": 60, "median": 60, "p95": 200, "max": 200}
    assert report.sizes["height"]["max"] == 300
    assert report.sizes["shorter_side"]["max"] == 200
    assert report.sizes["bytes"]["max"] == max(p.stat().st_size for p in tmp_path.rglob("*.[jp][pn]g"))
    assert sum(report.unused.values()) == 2


def test_several_processes_say_the_same(tmp_path: Path) -> None:
    write_tree(tmp_path, good=CHUNK)
    break_tree(tmp_path)
    seen: list[int] = []
    contents = contents_of(str(tmp_path))
    alone = scan_images(contents, processes=1)
    together = scan_images(contents, processes=2, progress=seen.append)
    assert together.problems == alone.problems
    np.testing.assert_array_equal(together.sizes, alone.sizes)
    np.testing.assert_array_equal(together.types, alone.types)
    assert sum(seen) == len(contents)


def test_decoding_finds_what_structure_does_not(tmp_path: Path) -> None:
    write_tree(tmp_path, good=2)
    (tmp_path / "a/over.jpg").write_bytes(overwritten_jpeg())
    (tmp_path / "a/whole.jpg").write_bytes(jpeg())
    twelve_bits = jpeg().replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c", 1)
    (tmp_path / "a/twelve_bits.jpg").write_bytes(twelve_bits)
    Image.fromarray(np.zeros((9, 7, 4), dtype=np.uint8)).save(tmp_path / "b/rgba.png")
    assert scanned(tmp_path).findings == []
    found = scanned(tmp_path, decode=True).findings
    assert [finding.name for finding in found] == ["a/over.jpg", "a/twelve_bits.jpg"]
    assert {finding.kind for finding in found} == {"damaged"}
    assert found[0].reason.startswith("decodes to wrong pixels (Corrupt JPEG data")
    assert found[1].reason.startswith("does not decode (")


def test_duplicates_keep_the_first_and_trust_no_contradiction(tmp_path: Path) -> None:
    write_tree(tmp_path)
    shutil.copy(tmp_path / "a/1.jpg", tmp_path / "a/again.jpg")
    shutil.copy(tmp_path / "a/2.jpg", tmp_path / "b/claimed.jpg")
    assert scanned(tmp_path).findings == []
    found = {finding.name: finding for finding in scanned(tmp_path, duplicates=True).findings}
    assert found.keys() == {"a/again.jpg", "a/2.jpg", "b/claimed.jpg"}
    assert found["a/again.jpg"].reason == "same bytes as a/1.jpg"
    assert found["b/claimed.jpg"].kind == found["a/2.jpg"].kind == "duplicate with another label"
    assert found["b/claimed.jpg"].reason == "same bytes as a/2.jpg under another label ('a', 'b')"
    assert found["a/2.jpg"].reason.startswith("same bytes as b/claimed.jpg")


def test_a_file_that_a_list_names_twice_is_no_duplicate_of_itself(tmp_path: Path) -> None:
    for i in (0, 1, 2):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(i))
    shutil.copy(tmp_path / "1.jpg", tmp_path / "copy.jpg")
    listing = tmp_path / "list.txt"
    listing.write_text("0.jpg 5\n1.jpg 7\n0.jpg 5\n1.jpg 7\ncopy.jpg 7\n2.jpg 5\ncopy.jpg 7\n")
    report = scanned(listing, duplicates=True)
    assert [(f.name, f.reason) for f in report.findings] == [("copy.jpg", "same bytes as 1.jpg")] * 2
    assert (report.samples, report.good) == (7, 5)
    listing.write_text("0.jpg 5\n1.jpg 7\n0.jpg 10\n2.jpg 5\n2.jpg 5\n")
    report = scanned(listing, duplicates=True)
    assert {f.kind for f in report.findings} == {"duplicate with another label"}
    assert [(f.name, f.reason) for f in report.findings] == [("0.jpg", "listed under another label (5, 10)")] * 2
    assert (report.samples, report.good) == (5, 3)
    listing.write_text("0.jpg 5\ncut.jpg 7\ncut.jpg 7\n")
    (tmp_path / "cut.jpg").write_bytes(jpeg()[:99])
    assert scanned(listing, duplicates=True).good == 1


@pytest.mark.parametrize(
    ("name", "text", "multilabel"),
    [
        ("list.csv", "file,cat,dog\n0.jpg,1,0\n1.jpg,0,1\nsame.jpg,1,0\nother.jpg,1,1\nbare.jpg,0,0\n", False),
        ("list.txt", "0.jpg cat\n1.jpg dog\nsame.jpg cat\nother.jpg dog;cat\nbare.jpg ;\n", True),
    ],
)
def test_several_labels_a_sample_are_compared(tmp_path: Path, name: str, text: str, multilabel: bool) -> None:
    for file, image in {"0": 0, "1": 1, "same": 0, "other": 1, "bare": 1}.items():
        (tmp_path / f"{file}.jpg").write_bytes(jpeg(image))
    (tmp_path / name).write_text(text)
    contents = contents_of(str(tmp_path / name), multilabel=multilabel)
    report = make_report(contents, scan_images(contents, duplicates=True), 1.0)
    labels = "under another label ('dog', 'cat' + 'dog', none)"
    assert [(f.name, f.reason) for f in report.findings] == [
        ("1.jpg", f"same bytes as other.jpg {labels}"),
        ("same.jpg", "same bytes as 0.jpg"),
        ("other.jpg", f"same bytes as 1.jpg {labels}"),
        ("bare.jpg", f"same bytes as 1.jpg {labels}"),
    ]
    assert report.class_counts == {}


def test_class_numbers_of_any_size_are_counted(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(jpeg(0))
    (tmp_path / "list.txt").write_text(f"0.jpg 3000000000\n0.jpg {2**63 - 1}\n0.jpg 3000000000\n")
    assert scanned(tmp_path / "list.txt").class_counts == {"3000000000": 2, str(2**63 - 1): 1}


def test_max_pixels(tmp_path: Path) -> None:
    write_tree(tmp_path, good=1)
    assert scanned(tmp_path, max_pixels=60 * 40).findings == []
    found = scanned(tmp_path, max_pixels=60 * 40 - 1).findings
    assert {finding.kind for finding in found} == {"oversized"}
    assert len(found) == 2


def test_a_class_without_images_is_told_but_not_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path)
    (tmp_path / "c").mkdir()
    report = scanned(tmp_path)
    assert [(f.name, f.exclude) for f in report.findings] == [("c/", False)]
    assert report.good == 6
    assert report.class_counts["c"] == 0


def test_a_flat_folder(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(jpeg())
    (tmp_path / "y.jpg").write_bytes(b"")
    (tmp_path / ".z.jpg").write_bytes(b"")
    (tmp_path / "readme.md").write_bytes(b"")
    report = scanned(tmp_path)
    assert report.samples == 2
    assert [finding.name for finding in report.findings] == ["y.jpg"]
    assert report.class_counts == {}
    assert report.unused == {"hidden": 1, "without an image extension": 1}
    assert scanned(tmp_path, exclude=("y.jpg",)).findings == []


def test_nothing_to_scan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to scan"):
        contents_of(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no such folder"):
        contents_of(str(tmp_path / "none"))


def test_a_list_with_a_missing_file(tmp_path: Path) -> None:
    write_tree(tmp_path)
    listing = tmp_path / "list.txt"
    listing.write_text("a/0.jpg 0\na/none.jpg 1\nb/1.jpg 1\n")
    report = scanned(listing)
    assert [(f.name, f.reason) for f in report.findings] == [("a/none.jpg", "unreadable: no such file or directory")]
    assert report.class_counts == {"0": 1, "1": 2}
    listing.write_text("a/0.jpg\nb/1.jpg\n")
    assert scanned(listing, labelled=False).class_counts == {}


def test_the_list_of_what_to_leave_out_serves_folder_and_list(tmp_path: Path) -> None:
    write_tree(tmp_path / "data")
    break_tree(tmp_path / "data")
    report = scanned(tmp_path / "data")
    for name in ("bad.txt", "bad.json"):
        path = tmp_path / name
        assert write_exclude_list(str(path), report.findings, title="two\nlines"[:3]) == len(EXPECTED)
        folder = ImageFolder(tmp_path / "data", exclude=str(path))
        folder.check()
        assert len(folder) == report.good
        assert scanned(tmp_path / "data", exclude=tuple(EXPECTED)).findings == []
        (tmp_path / "data/list.csv").write_text("file,label\na/0.jpg,x\na/half.jpg,x\nb/0.jpg,y\n")
        listed = FileList(tmp_path / "data/list.csv", exclude=str(path))
        with pytest.warns(UserWarning, match="excluded names match nothing"):
            assert len(listed) == 2
        (tmp_path / "data/list.csv").unlink()


def test_what_was_known_stays_on_the_list(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    known = ("old.jpg", "both.jpg")
    findings = [Finding("both.jpg", "empty", "empty file"), Finding("c/", "class", "no images", False)]
    assert write_exclude_list(str(path), findings, known, "title") == 2
    assert path.read_text() == "# title\nold.jpg\n# empty file\nboth.jpg\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["#1/x.jpg", "a/x\ny.jpg", "a/x\ry.jpg", "a/\udcff.jpg", " "])
def test_names_that_a_text_cannot_hold_need_json(tmp_path: Path, name: str) -> None:
    findings = [Finding(name, "empty", "empty file")]
    with pytest.raises(ValueError, match="cannot hold the name"):
        write_exclude_list(str(tmp_path / "bad.txt"), findings)
    write_exclude_list(str(tmp_path / "bad.json"), findings)
    assert json.loads((tmp_path / "bad.json").read_text()) == [name]
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]


def test_what_is_said_of_a_name_excludes_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a\ngood.png", "a\rgood.png", "b.png", "good.png"):
        Image.fromarray(np.zeros((9, 7, 3), dtype=np.uint8)).save(tmp_path / "data" / name)
    Image.fromarray(np.ones((9, 7, 3), dtype=np.uint8)).save(tmp_path / "data/good.png")
    report = scanned(tmp_path / "data", duplicates=True)
    findings = [found for found in report.findings if "\r" not in found.name]
    path = str(tmp_path / "bad.txt")
    write_exclude_list(path, findings, title="gpuaug scan a\ngood.png\rgood.png \udcff")
    assert excluded_names(path, "exclude") == ("b.png",)
    assert (tmp_path / "bad.txt").read_text().splitlines() == [
        "# gpuaug scan a\\ngood.png\\rgood.png \\udcff",
        "# same bytes as a\\ngood.png",
        "b.png",
    ]


def test_a_list_can_be_had_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("old\n")
    (tmp_path / "link.txt").symlink_to("list.txt")
    write_exclude_list(str(tmp_path / "link.txt"), [Finding("x.jpg", "empty", "empty file")])
    assert (tmp_path / "list.txt").read_text() == "# empty file\nx.jpg\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.txt", "list.txt"]


def test_arrays_are_good_where_training_can_use_them(tmp_path: Path) -> None:
    rows = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    arrays = {
        "a/good.npy": rows, "a/other.npy": rows + 1, "a/sub/more.npy": rows[:3], "b/claimed.npy": rows,
        "a/floats.npy": rows.astype(np.float32), "a/gray.npy": rows[..., 0], "b/rgba.npy": rows.reshape(5, 3, 4),
        "b/fortran.npy": np.asfortranarray(rows), "b/none.npy": rows[:0],
        "b/wide.npy": np.zeros((1, 65536, 3), np.uint8),
    }  # fmt: skip
    for folder in ("a/sub", "b", "c"):
        (tmp_path / folder).mkdir(parents=True)
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
    good = (tmp_path / "a/good.npy").read_bytes()
    (tmp_path / "b/version2.npy").write_bytes(b"\x93NUMPY\2\0" + good[8:10] + b"\0\0" + good[10:-1] + b"!")
    bad = {
        "a/cut.npy": good[:-1], "a/header.npy": good[:40], "a/empty.npy": b"", "b/jpeg.npy": jpeg(),
        "b/syntax.npy": good.replace(b"(4, 5, 3)", b"(4, 5, 3 "), "b/negative.npy": good.replace(b"(4, ", b"(-4,"),
    }  # fmt: skip
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a/gone.npy").symlink_to("nowhere")
    (tmp_path / "a/notes.txt").write_text("x")
    report = scanned(tmp_path)
    kinds = {finding.name: finding.kind for finding in report.findings}
    assert kinds == {
        "a/gone.npy": "unreadable", "c/": "class without images",
        "a/floats.npy": "undecodable type", "a/gray.npy": "undecodable type", "b/rgba.npy": "undecodable type",
        "b/none.npy": "undecodable type", "b/wide.npy": "oversized",
        "a/cut.npy": "truncated", "a/header.npy": "not an image", "a/empty.npy": "empty", "b/jpeg.npy": "not an image",
        "b/syntax.npy": "not an image", "b/negative.npy": "undecodable type",
    }  # fmt: skip
    assert report.kind == "folder of class folders of .npy files"
    assert report.class_counts == {"a": 8, "b": 9, "c": 0}
    assert report.sizes["height"] == {"min": 3, "p5": 3, "median": 4, "p95": 4, "max": 4}
    assert report.sizes["width"]["max"] == 5
    assert report.types == {"npy": 15, "jpeg": 1, "empty": 1}
    assert report.unused == {"without an image extension": 1}
    assert scanned(tmp_path, decode=True).findings == report.findings
    assert {f.name for f in scanned(tmp_path, max_pixels=19).findings} - kinds.keys() == {
        "a/good.npy", "a/other.npy", "b/claimed.npy", "b/fortran.npy", "b/version2.npy",
    }  # fmt: skip
    duplicates = {f.name: f.kind for f in scanned(tmp_path, duplicates=True).findings if "duplicate" in f.kind}
    assert duplicates == dict.fromkeys(("a/good.npy", "b/claimed.npy"), "duplicate with another label")

    # The same verdict as training's, and its exclusion list is taken.
    (tmp_path / "a/gone.npy").unlink()
    (tmp_path / "c").rmdir()
    source = NumpyFolder(tmp_path)
    reader = source.reader()
    read = reader.begin(np.arange(len(source)), False).result()
    reader.close()
    assert {source.sample_name(i) for i in read.problems} == {f.name for f in scanned(tmp_path).findings}
    write_exclude_list(str(tmp_path / "bad.txt"), scanned(tmp_path).findings)
    left = NumpyFolder(tmp_path, exclude=str(tmp_path / "bad.txt"))
    assert [left.sample_name(i) for i in range(len(left))] == [
        "a/good.npy", "a/other.npy", "a/sub/more.npy", "b/claimed.npy", "b/fortran.npy", "b/version2.npy",
    ]  # fmt: skip


def test_arrays_beside_images_are_no_samples(tmp_path: Path) -> None:
    write_tree(tmp_path, good=1)
    np.save(tmp_path / "a/x.npy", np.zeros(3))
    report = scanned(tmp_path)
    assert (report.samples, report.findings, report.unused) == (2, [], {"without an image extension": 1})


def test_a_file_of_no_format_is_told_what_could_be_one(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"a list \(.txt, .csv, .tsv\) or a shard \(.tar, .tfrecord, .rec, .mdb\), got"
    ):
        contents_of(str(tmp_path / "x.zip"))
