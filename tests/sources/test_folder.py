"""ImageFolder: labels as torchvision gives them, and every way a folder can be wrong."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuaug.sources import ImageFolder, as_source


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def relative(source: ImageFolder) -> list[str]:
    return [source.sample_name(i) for i in range(len(source))]


def test_numbered_classes_sort_as_text(tmp_path: Path) -> None:
    source = ImageFolder(touch(tmp_path, "2/a.jpg", "10/a.jpg", "1/a.jpg", "1/b.jpg"))
    assert source.classes == ("1", "10", "2")
    assert source.class_to_idx == {"1": 0, "10": 1, "2": 2}
    assert source.num_classes == 3
    assert list(source.paths) == [str(tmp_path / n) for n in ("1/a.jpg", "1/b.jpg", "10/a.jpg", "2/a.jpg")]
    assert source.targets.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("count", [1, 2])
def test_targets_are_int64_vectors(tmp_path: Path, count: int) -> None:
    targets = ImageFolder(touch(tmp_path, *(f"c/{i}.jpg" for i in range(count)))).targets
    assert targets.dtype == np.int64
    assert targets.shape == (count,)
    with pytest.raises(ValueError, match="read-only"):
        targets[0] = 1


names = st.text(st.sampled_from("aB1-_ é.漢\n"), min_size=1, max_size=4).filter(lambda s: not s.startswith("."))
files = st.tuples(st.lists(names, min_size=1, max_size=3), names, st.sampled_from([".jpg", ".PNG", ".JpEg", ".webp"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(files, min_size=1, max_size=12))
def test_samples_and_labels_equal_torchvision(tree: list[tuple[list[str], str, str]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        for folders, stem, extension in tree:
            folder = Path(root, *(f"d{name}" for name in folders))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{stem}{extension}").touch()
        theirs = torchvision.datasets.ImageFolder(root)
        ours = ImageFolder(root)
        assert list(zip(ours.paths, ours.targets.tolist(), strict=True)) == theirs.samples
        assert ours.class_to_idx == theirs.class_to_idx


def test_unused_files_are_counted_by_reason_once(tmp_path: Path) -> None:
    root = touch(
        tmp_path, "c/a.JPG", "c/b.JPEG", "c/c.jfif", "c/d.gif", "c/noext", "c/sub/e.jpg", "c/.hid.jpg", "loose.jpg"
    )
    source = ImageFolder(root)
    with pytest.warns(UserWarning, match="left unused") as caught:
        source.check()
    assert str(caught[0].message) == (
        f"{root}: 4 images used, left unused: 1 GIF/AVIF/HEIC (not decodable), 1 hidden, "
        "1 loose in the root, outside the class folders, 1 without an image extension"
    )
    assert relative(source) == ["c/a.JPG", "c/b.JPEG", "c/c.jfif", "c/sub/e.jpg"]
    assert sum(source.unused.values()) == 4
    source.check()  # says it once: a second warning would be an error here
    with pytest.raises(ValueError, match="refused because of strict=True"):
        ImageFolder(root, strict=True).check()


def test_strict_accepts_a_clean_tree_and_exclusions(tmp_path: Path) -> None:
    root = touch(tmp_path, "c/a.jpg", "c/readme.txt")
    ImageFolder(root, exclude=["c/readme.txt"], strict=True).check()


def test_hidden_folders_are_not_classes(tmp_path: Path) -> None:
    source = ImageFolder(touch(tmp_path, "c/a.jpg", ".ipynb_checkpoints/b.jpg", "c/.thumbs/a.jpg"))
    assert source.classes == ("c",)
    assert source.unused == {"hidden": 2}


def test_links_are_followed(tmp_path: Path) -> None:
    elsewhere = touch(tmp_path / "elsewhere", "real.jpg", "more/x.jpg")
    root = touch(tmp_path / "root", "c/a.jpg")
    (root / "c/link.jpg").symlink_to(elsewhere / "real.jpg")
    (root / "linked").symlink_to(elsewhere / "more")
    source = ImageFolder(root)
    source.check()
    assert relative(source) == ["c/a.jpg", "c/link.jpg", "linked/x.jpg"]


@pytest.mark.parametrize("where", ["c/gone.jpg", "gone"])
def test_a_dangling_link_is_named(tmp_path: Path, where: str) -> None:
    touch(tmp_path, "c/a.jpg")
    (tmp_path / where).symlink_to("/nowhere/x.jpg")
    with pytest.raises(FileNotFoundError, match=f"link leads nowhere: {tmp_path / where}"):
        ImageFolder(tmp_path).check()
    ImageFolder(tmp_path, exclude=[where]).check()


def test_link_loops_end(tmp_path: Path) -> None:
    root = touch(tmp_path, "c/a.jpg", "c/d/b.jpg")
    (root / "c/d/up").symlink_to(root / "c")
    (root / "self").symlink_to(root)
    source = ImageFolder(root)
    assert relative(source) == ["c/a.jpg", "c/d/b.jpg"]
    assert source.unused == {"linking back to a folder above (loop)": 2}


def test_a_link_to_itself_is_dangling(tmp_path: Path) -> None:
    touch(tmp_path, "c/a.jpg")
    (tmp_path / "c/me.jpg").symlink_to(tmp_path / "c/me.jpg")
    with pytest.raises(FileNotFoundError, match=r"link leads nowhere: .*me\.jpg"):
        ImageFolder(tmp_path).check()


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    touch(tmp_path, "c/a.jpg")
    os.mkfifo(tmp_path / "c/pipe.jpg")
    assert ImageFolder(tmp_path).unused == {"neither file nor folder (pipe, socket or device)": 1}


def test_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no such folder: {tmp_path}/none"):
        ImageFolder(tmp_path / "none").check()


def test_root_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match=r"list\.txt is a file"):
        ImageFolder(touch(tmp_path, "list.txt") / "list.txt").check()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["l.jpg"], "class sub-folders expected, 1 loose image found in "),
        (["l.jpg", "m.png", "x.txt"], "class sub-folders expected, 2 loose images found in "),
        ([], "class sub-folders expected, .* is empty"),
        ([".hidden/x.jpg"], "class sub-folders expected in .*, found only files: 1 hidden"),
        (["a/x.txt", "b/.y.jpg"], r"no images in the 2 class folder\(s\) .*1 hidden, 1 without an image extension"),
    ],
)
def test_roots_without_samples(tmp_path: Path, files: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageFolder(touch(tmp_path, *files)).check()


def test_a_class_folder_without_images_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.jpg", "b/notes.txt")
    with pytest.raises(ValueError, match="no images in the folder of class 'b'"):
        ImageFolder(tmp_path).check()
    assert ImageFolder(tmp_path, exclude=["b"]).classes == ("a",)


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "c/a.jpg")
    name = os.fsdecode(b"bad\xff.jpg")
    (tmp_path / "c" / name).touch()
    with pytest.raises(ValueError, match=r"must be UTF-8, got b'c/bad\\xff.jpg'"):
        ImageFolder(tmp_path).check()
    assert len(ImageFolder(tmp_path, exclude=[f"c/{name}"])) == 1


@pytest.mark.parametrize("form", ["relative", "absolute", "folder", "file"])
def test_exclude(tmp_path: Path, form: str) -> None:
    root = touch(tmp_path / "root", "c/a.jpg", "c/d/b.jpg", "c/e f.jpg")
    (tmp_path / "bad.txt").write_text(f"c/d/b.jpg\r\n\n{root}/c/e f.jpg\n")
    exclude = {
        "relative": ["c/d/b.jpg", "./c//e f.jpg"],
        "absolute": [str(root / "c/d/b.jpg"), root / "c/e f.jpg"],
        "folder": ["c/d", "c/e f.jpg"],
        "file": str(tmp_path / "bad.txt"),
    }[form]
    source = ImageFolder(root, exclude=exclude)
    source.check()
    assert relative(source) == ["c/a.jpg"]


def test_exclude_as_paths_of_a_relative_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "data/c/a.jpg", "data/c/b.jpg")
    monkeypatch.chdir(tmp_path)
    first = ImageFolder("data").paths[0]
    assert first == "data/c/a.jpg"
    assert relative(ImageFolder("data", exclude=[first])) == ["c/b.jpg"]


@pytest.mark.parametrize("root", ["train", "./train"])
def test_a_class_may_be_called_like_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    touch(tmp_path, *(f"train/{name}" for name in ("cat/2.png", "train/1.png", "train/cat/2.png", "train/9.png")))
    touch(tmp_path, "train/~/3.png", "train/~/9.png")
    monkeypatch.chdir(tmp_path)
    named = ImageFolder(root, exclude=["train/1.png", "train/cat/2.png", "~/3.png"])
    assert relative(named) == ["cat/2.png", "train/9.png", "~/9.png"]
    beginning_with_the_root = ImageFolder(root, exclude=["train/~/3.png", "train/train/1.png"])
    assert relative(beginning_with_the_root) == ["cat/2.png", "train/9.png", "train/cat/2.png", "~/9.png"]


def test_exclusions_that_match_nothing_are_said(tmp_path: Path) -> None:
    source = ImageFolder(touch(tmp_path, "c/a.jpg"), exclude=["c/typo.jpg"])
    with pytest.warns(UserWarning, match=r"1 of the excluded paths match nothing .* 'c/typo\.jpg'"):
        source.check()


def test_exclude_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"one path goes in a list.*a\.jpg"):
        ImageFolder(touch(tmp_path, "c/a.jpg"), exclude="c/nope/a.jpg").check()


def test_with_classes_uses_the_training_labels(tmp_path: Path) -> None:
    train = ImageFolder(touch(tmp_path / "train", "a/1.jpg", "b/1.jpg", "c/1.jpg"))
    val = ImageFolder(touch(tmp_path / "val", "c/1.jpg", "a/1.jpg", "a/2.jpg"))
    with pytest.warns(UserWarning, match=r"val: no samples of class 'b', of 3 training classes"):
        mapped = val.with_classes(train.classes)
    assert mapped.classes == train.classes
    assert mapped.targets.tolist() == [0, 0, 2]
    assert val.targets.tolist() == [0, 0, 1]
    assert mapped.fingerprint() != val.fingerprint()
    assert train.with_classes(train.classes).fingerprint() == train.fingerprint()


def test_a_class_only_in_val_is_an_error(tmp_path: Path) -> None:
    val = ImageFolder(touch(tmp_path / "val", "a/1.jpg", "x/1.jpg", "y/1.jpg"))
    with pytest.raises(ValueError, match=r"val: classes 'x', 'y' not among the 2 training classes"):
        val.with_classes(("a", "b"))


def test_an_empty_val_folder_is_a_lacking_class(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    (tmp_path / "b").mkdir()
    with pytest.warns(UserWarning, match="no samples of class 'b'"):
        assert ImageFolder(tmp_path).with_classes(("a", "b")).targets.tolist() == [0]


def test_nothing_is_read_before_it_is_asked(tmp_path: Path) -> None:
    source = ImageFolder(tmp_path / "later")
    touch(tmp_path, "later/c/a.jpg")
    assert len(source) == 1


def test_pickle_rescans(tmp_path: Path) -> None:
    source = ImageFolder(touch(tmp_path, "c/a.jpg"), exclude=["x"])
    assert len(source) == 1
    touch(tmp_path, "c/b.jpg")
    copy = pickle.loads(pickle.dumps(source))
    assert copy == source
    assert hash(copy) == hash(source)
    assert (len(source), len(copy)) == (1, 2)
    assert len(pickle.dumps(source)) < 400


def test_fingerprint_says_what_the_data_is(tmp_path: Path) -> None:
    root = touch(tmp_path / "here", "a/1.jpg", "b/1.jpg", "b/2.jpg")
    before = ImageFolder(root).fingerprint()
    assert before == "80bf120cb545ed29"  # checkpoints hold it: changing the definition refuses their resume
    moved = tmp_path / "there" / "deep"
    shutil.copytree(root, moved)
    assert ImageFolder(moved).fingerprint() == before
    touch(moved, "b/readme.txt")
    assert ImageFolder(moved).fingerprint() == before  # not a sample
    seen = {before}
    for change in (
        lambda: (moved / "b/2.jpg").rename(moved / "b/3.jpg"),  # renamed
        lambda: (moved / "b/3.jpg").rename(moved / "a/3.jpg"),  # another label
        lambda: (moved / "b/4.jpg").touch(),  # added
        lambda: (moved / "a/1.jpg").unlink(),  # removed
        lambda: (moved / "b").rename(moved / "c"),  # class renamed
    ):
        change()
        seen.add(ImageFolder(moved).fingerprint())
    assert len(seen) == 6


def test_as_source(tmp_path: Path) -> None:
    source = ImageFolder(str(tmp_path))
    assert as_source(source) is source
    assert as_source(tmp_path) == as_source(str(tmp_path)) == source
    with pytest.raises(TypeError, match=r"a data source must be a path or a Source, got 3 \(int\)"):
        as_source(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"root": ""}, TypeError, "ImageFolder.root must be the path of a folder, got ''"),
        ({"root": None}, TypeError, "ImageFolder.root"),
        ({"root": "r", "class_names": "ab"}, TypeError, "ImageFolder.class_names must be a sequence"),
        ({"root": "r", "class_names": ()}, ValueError, "ImageFolder.class_names must name at least one"),
        ({"root": "r", "class_names": ("a", "b", "a")}, ValueError, "distinct, got 'a' twice"),
        ({"root": "r", "class_names": (1,)}, TypeError, r"must be strings, got 1 \(int\)"),
    ],
)
def test_wrong_fields(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ImageFolder(**arguments)  # type: ignore[arg-type]


def test_many_files_stay_small_in_memory(tmp_path: Path) -> None:
    count = 5000
    touch(tmp_path, *(f"n{i % 10:08d}/n{i:08d}_1234.JPEG" for i in range(count)))
    source = ImageFolder(tmp_path)
    tracemalloc.start()
    source.check()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept / count < 80  # 30 bytes of name, 8 of position, 8 of label; strings alone would take 130
    assert list(source.paths) == [source.paths[i] for i in range(count)]


def test_without_labels_images_are_taken_as_they_lie(tmp_path: Path) -> None:
    root = touch(tmp_path, "b.jpg", "a.PNG", "z/1.jpg", "c/d/2.jpg", "c/0.jpg", "notes.txt", "c/x.gif", ".hidden.jpg")
    (root / "no_images").mkdir()
    source = as_source(root, labelled=False)
    assert [source.sample_name(i) for i in range(len(source))] == ["a.PNG", "b.jpg", "c/0.jpg", "c/d/2.jpg", "z/1.jpg"]
    assert list(source.paths) == [str(root / source.sample_name(i)) for i in range(5)]
    assert source.targets.tolist() == [-1] * 5
    assert source.classes is None
    assert source.num_classes == 0
    assert len(pickle.loads(pickle.dumps(source.with_classes(("x",))))) == 5
    counts = "1 GIF/AVIF/HEIC (not decodable), 1 hidden, 1 without an image extension"
    with pytest.warns(UserWarning, match=re.escape(f"{root}: 5 images used, left unused: {counts}") + "$"):
        source.check()


def test_without_labels_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        as_source(tmp_path / "none", labelled=False).check()
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^no images in .*empty; found nothing else$"):
        as_source(tmp_path / "empty", labelled=False).check()
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "a.jpg").symlink_to(tmp_path / "nowhere.jpg")
    with pytest.raises(FileNotFoundError, match=r"link leads nowhere: .*a\.jpg"):
        as_source(tmp_path / "link", labelled=False).check()
    name = os.fsdecode(b"\xff.jpg")
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / name).touch()
    with pytest.raises(ValueError, match="file names must be UTF-8"):
        as_source(tmp_path / "bytes", labelled=False).check()
