"""FileList: its three formats, labels that never wrap or change meaning, and errors that name the line."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_gpuaug.sources import FileList
from lightning_gpuaug.sources import filelist as module


def write(tmp_path: Path, text: str | bytes, name: str = "list.txt", touch: tuple[str, ...] = ()) -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for file in touch:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    return path


def names_of(source: FileList) -> list[str]:
    return [source.sample_name(i) for i in range(len(source))]


def test_text_with_integers(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffa.jpg 2\n\n sub/b c.jpg\t0 \r\na.jpg 2\n", touch=("a.jpg", "sub/b c.jpg"))
    source = FileList(path)
    source.check()
    assert names_of(source) == ["a.jpg", "sub/b c.jpg", "a.jpg"]
    assert list(source.paths) == [str(tmp_path / n) for n in ("a.jpg", "sub/b c.jpg", "a.jpg")]
    assert source.targets.tolist() == [2, 0, 2]
    assert source.targets.dtype == np.int64
    assert source.classes is None
    assert source.class_to_idx == {}
    assert source.num_classes == 3


def test_text_with_names(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "a.jpg dog\nb.jpg cat\nc.jpg dog\n"))
    assert source.classes == ("cat", "dog")
    assert source.targets.tolist() == [1, 0, 1]


def test_given_class_list_sets_the_order_and_the_allowed_names(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jpg dog\nb.jpg cat\n")
    assert FileList(path, class_names=["dog", "cat", "emu"]).targets.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"list\.txt:2: label must be one of the 2 classes, got 'cat'"):
        FileList(path, class_names=["dog", "emu"]).check()


def test_integers_beyond_32_bits_keep_their_value(tmp_path: Path) -> None:
    path = write(tmp_path, f"a.jpg 3000000000\nb.jpg {2**63 - 1}\n")
    assert FileList(path).targets.tolist() == [3000000000, 2**63 - 1]
    with pytest.raises(ValueError, match=r"list\.txt:1: label must be in 0\.\.9, got 3000000000"):
        FileList(path, class_names=[str(i) * 2 for i in range(10)]).check()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a.jpg 0\nb.jpg -1\n", {}, r":2: label must be a class from 0, got -1"),
        (f"a.jpg {2**63}\n", {}, r":1: label must be a 64-bit class number, got '9223372036854775808'"),
        ("a.jpg " + "9" * 5000, {}, r":1: all labels must be class numbers, or .*, got '9+'$"),
        ("a.jpg 0\nb.jpg cat\n", {}, r":2: all labels must be class numbers, or all class names .*, got 'cat'$"),
        ("a.jpg 1.0\n", {}, r":1: all labels must be class numbers, or all class names .*, got '1.0'$"),
        ("a.jpg\n", {}, r":1: must be a path, a space and a label .*got 'a.jpg'"),
        ("\n\n", {}, r"list\.txt: no samples listed"),
        ("a\0.jpg 1\n", {}, r":1: a path must be non-empty text without NUL, got 'a\\x00.jpg'"),
        (b"ok.jpg 1\nb\xff.jpg 1\n", {}, r":2: must be UTF-8 text, got the byte 0xff"),
        ("a.jpg cat\n", {"labels": "index"}, r":1: label must be .*, got 'cat'"),
        ("a.jpg 0\nb.jpg 3\n", {"class_names": ["x", "y"]}, r":2: label must be in 0\.\.1, got 3$"),
        ("a.jpg 0\n", {"columns": ["l"]}, r"need a \.csv or \.tsv file"),
        ("a.jpg x;y\n", {}, r":1: one class expected .*multilabel=True.*got 'x;y'"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, text: str | bytes, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        FileList(write(tmp_path, text), **options).check()  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_classes_that_are_called_as_numbers_must_be_said(tmp_path: Path) -> None:
    path, classes = write(tmp_path, "a.jpg 1\nb.jpg 2\n"), ("1", "10", "2")
    with pytest.raises(ValueError, match=r":1: label '1' may be a position or a class name; say FileList.labels="):
        FileList(path, class_names=classes).check()
    with pytest.raises(ValueError, match=r":1: label '1' may be a position or a class name; say FileList.labels="):
        FileList(path).with_classes(classes)
    with pytest.warns(UserWarning, match="no samples of class '10'"):
        assert FileList(path, labels="name").with_classes(classes).targets.tolist() == [0, 2]
    with pytest.warns(UserWarning, match="no samples of class '1'"):
        assert FileList(path, labels="index").with_classes(classes).targets.tolist() == [1, 2]
    assert FileList(path, labels="name").targets.tolist() == [0, 1]
    assert FileList(path, class_names=("0", "1", "2")).targets.tolist() == [1, 2]  # both readings agree


def test_numbers_with_leading_zeros_may_be_class_names_too(tmp_path: Path) -> None:
    path, classes = write(tmp_path, "a.jpg 001\nb.jpg 002\n"), ("1", "10", "2")
    with pytest.raises(ValueError, match=r":1: label '001' may be a position or a class name; say FileList.labels="):
        FileList(path, class_names=classes).check()
    with pytest.raises(ValueError, match=r":1: label '001' may be a position or a class name; say FileList.labels="):
        FileList(path).with_classes(classes)
    assert FileList(path, class_names=classes, labels="index").targets.tolist() == [1, 2]


def test_class_names_of_the_same_number_are_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jpg 1\nb.jpg 0\n")
    with pytest.raises(ValueError, match=r":1: label .1. may be a position or a class name"):
        FileList(path, class_names=("1", "01")).check()
    with pytest.raises(ValueError, match=r":1: label .1. may be a position or a class name"):
        FileList(path).with_classes(("1", "01"))
    assert FileList(path, class_names=("0", "1", "01")).targets.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r":1: label .\+1. may be a position or a class name"):
        FileList(write(tmp_path, "a.jpg +1\n"), class_names=("0", "1", "01")).check()


def test_a_wrong_label_is_named_by_its_own_line_beside_excluded_samples(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jpg 0\nb.jpg 1\nc.jpg 7\nd.jpg 1\n")
    with pytest.raises(ValueError, match=r":3: label must be in 0\.\.1, got 7$"):
        FileList(path, class_names=("x", "y"), exclude=("a.jpg",)).check()
    kept = FileList(path, exclude=("a.jpg", "c.jpg"))
    assert names_of(kept) == ["b.jpg", "d.jpg"]
    assert kept.targets.tolist() == [1, 1]
    with pytest.raises(FileNotFoundError, match="the first on line 2:"):
        kept.check()


def test_numbers_of_excluded_samples_may_be_beyond_the_training_classes(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "a.jpg 5\nb.jpg 1\nc.jpg 0\n"), exclude=("a.jpg",))
    assert source.with_classes(("x", "y")).targets.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r":2: label must be in 0\.\.0, got 1$"):
        source.with_classes(("x",))
    with pytest.raises(ValueError, match=r":2: label '1' may be a position or a class name"):
        source.with_classes(("1", "5"))


def test_an_empty_label_is_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"l\.csv:3: one class expected .*, got ''"):
        FileList(write(tmp_path, "path,label\na.jpg,cat\nb.jpg,\n", "l.csv")).check()


def test_csv_with_one_label(tmp_path: Path) -> None:
    text = 'image,split,label\n"a, b.jpg",x,big cat\nsub/"c".jpg,y,dog\n'.replace('sub/"c"', "sub/c")
    source = FileList(write(tmp_path, text, "l.CSV"), columns=["label"])
    assert names_of(source) == ["a, b.jpg", "sub/c.jpg"]
    assert source.classes == ("big cat", "dog")
    assert FileList(write(tmp_path, "p\tl\na.jpg\t7\n", "l.tsv")).targets.tolist() == [7]


def test_csv_with_flag_columns_is_multilabel(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "path,sun,cat\na.jpg,1,0\nb.jpg,1.0,1\nc.jpg,0,0\n", "l.csv"))
    assert source.classes == ("sun", "cat")
    assert source.num_classes == 2
    assert source.targets.dtype == np.float32
    assert source.targets.tolist() == [[1, 0], [1, 1], [0, 0]]


def test_joined_numbers_are_positions_where_that_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "path,label\na.jpg,0;2\nb.jpg,\nc.jpg,10\n", "l.csv")
    names = tuple(f"c{i}" for i in range(11))
    source = FileList(path, multilabel=True, labels="index", class_names=names)
    assert [np.flatnonzero(row).tolist() for row in source.targets] == [[0, 2], [], [10]]
    with pytest.warns(UserWarning, match="no samples of classes"):
        turned = source.with_classes(names[::-1])
    assert [np.flatnonzero(row).tolist() for row in turned.targets] == [[8, 10], [], [0]]
    with pytest.raises(ValueError, match=r"FileList\.multilabel with whole numbers needs class_names"):
        FileList(path, multilabel=True, labels="index").check()
    with pytest.raises(ValueError, match=r"l\.csv:4: label must be in 0\.\.2, got 10"):
        FileList(path, multilabel=True, labels="index", class_names=("0", "10", "2")).check()
    assert FileList(path, multilabel=True).classes == ("0", "10", "2")


def test_joined_names_are_multilabel(tmp_path: Path) -> None:
    path = write(tmp_path, "path,tags\na.jpg,sun; cat\nb.jpg,\nc.jpg,cat\n", "l.csv")
    source = FileList(path, multilabel=True)
    assert source.classes == ("cat", "sun")
    assert source.targets.tolist() == [[1, 1], [0, 0], [1, 0]]
    with pytest.raises(ValueError, match=r"l\.csv:2: label must be one of the 1 classes, got 'sun'"):
        FileList(path, multilabel=True, class_names=["cat"]).check()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("path,a,b\nx.jpg,1,2\n", {}, r"l\.csv:2: column 'b' must be 0 or 1, got '2'"),
        ("path,a\nx.jpg,1\ny.jpg\n", {}, r"l\.csv:3: must have 2 cells as the header has, got 1"),
        ("path;a\nx.jpg;1\n", {}, r"l\.csv:1: a header must name the path column and a label column, got \['path;a'\]"),
        ("path,a\nx.jpg,1\n", {"columns": ["b"]}, r"l\.csv:1: label columns must be among \['a'\].*got \['b'\]"),
        ("path,a,a\nx.jpg,1,1\n", {}, r"l\.csv:1: column names must be distinct"),
        ('path,a\n"x.jpg,1\n', {}, r"l\.csv:2: must be a table: unexpected end of data"),
        ("path,a\n", {}, r"l\.csv: no samples listed"),
        ("path,a\n,1\n", {}, r"l\.csv:2: a path must be non-empty"),
        ("x.jpg,1\ny.jpg,0\n", {}, r"l\.csv:1: a table begins with the names of its columns, got the sample 'x\.jpg'"),
        ("x/y.PNG,1,0\n", {}, r"l\.csv:1: a table begins with the names of its columns, got the sample 'x/y\.PNG'"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileList(write(tmp_path, text, "l.csv"), **options).check()  # type: ignore[arg-type]


def test_unlabelled_list(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "a b.jpg\nc.jpg\n"), labels="none")
    assert names_of(source) == ["a b.jpg", "c.jpg"]
    assert source.targets.tolist() == [-1, -1]
    assert source.classes is None
    assert source.num_classes == 0
    assert source.with_classes(("x",)) == source


def test_with_classes_translates_by_name(tmp_path: Path) -> None:
    training = ("dog", "emu", "cat")
    named = FileList(write(tmp_path, "a.jpg cat\nb.jpg dog\nc.jpg emu\n"))
    assert named.with_classes(training).targets.tolist() == [2, 0, 1]
    numbered = FileList(write(tmp_path, "a.jpg 0\nb.jpg 1\nc.jpg 2\n", "n.txt"))
    assert numbered.with_classes(training).targets.tolist() == [0, 1, 2]
    translated = FileList(numbered.path, class_names=("cat", "dog", "emu")).with_classes(training)
    assert translated.targets.tolist() == [2, 0, 1]
    assert translated.classes == training
    assert pickle.loads(pickle.dumps(translated)).targets.tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match=r"list\.txt: class 'emu' not among the 2 training classes"):
        named.with_classes(("dog", "cat"))
    with pytest.raises(ValueError, match=r"n\.txt:3: label must be in 0\.\.1, got 2"):
        numbered.with_classes(("dog", "cat"))


def test_with_classes_moves_multilabel_columns(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "path,sun,cat\na.jpg,1,0\nb.jpg,1,1\n", "l.csv"))
    with pytest.warns(UserWarning, match="no samples of class 'emu'"):
        mapped = source.with_classes(("cat", "emu", "sun"))
    assert mapped.targets.tolist() == [[0, 0, 1], [1, 0, 1]]
    with pytest.raises(ValueError, match=r"class 'sun' not among"):
        source.with_classes(("cat",))


def test_missing_files_are_counted_and_the_first_named(tmp_path: Path) -> None:
    source = FileList(write(tmp_path, "\nhere.jpg 0\ngone.jpg 0\nalso.jpg 1\n", touch=("here.jpg",)))
    with pytest.raises(FileNotFoundError, match=rf"2 of the 3 files .* missing, the first on line 3: {tmp_path}/gone"):
        source.check()


def test_long_lists_are_looked_for_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_CHECKED", 5)
    source = FileList(write(tmp_path, "".join(f"{i}.jpg 0\n" for i in range(100))))
    with pytest.raises(FileNotFoundError, match="5 of the 5 files looked for missing, the first on line 1:"):
        source.check()


def test_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        FileList(tmp_path / "none.txt").check()


def test_root_and_absolute_paths(tmp_path: Path) -> None:
    path = write(tmp_path, f"x/a.jpg 0\n{tmp_path}/images/b.jpg 1\n/else/c.jpg 0\n")
    source = FileList(path, root=tmp_path / "images")
    assert list(source.paths) == [str(tmp_path / "images/x/a.jpg"), str(tmp_path / "images/b.jpg"), "/else/c.jpg"]
    assert names_of(source) == ["x/a.jpg", "b.jpg", "/else/c.jpg"]


def test_relative_list_gives_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.jpg 0\n", touch=("a.jpg",))
    monkeypatch.chdir(tmp_path)
    source = FileList("list.txt")
    source.check()
    assert list(source.paths) == ["a.jpg"]


def test_a_list_is_the_same_data_by_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, f"{tmp_path}/x/a.jpg 0\nb.jpg 1\n/else/c.jpg 1\n")
    monkeypatch.chdir(tmp_path)
    sources = [FileList(path), FileList("list.txt"), FileList(path, root=f"../{tmp_path.name}"), FileList("./list.txt")]
    for source in sources:
        assert names_of(source) == ["x/a.jpg", "b.jpg", "/else/c.jpg"]
        assert source.fingerprint() == sources[0].fingerprint()
    assert list(sources[1].paths) == ["x/a.jpg", "b.jpg", "/else/c.jpg"]


def test_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    path = write(tmp_path / "a", "a.jpg 0\nb.jpg 1\n")
    before = FileList(path).fingerprint()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert FileList(tmp_path / "b/list.txt").fingerprint() == before
    variants = ["b.jpg 1\na.jpg 0\n", "a.jpg 1\nb.jpg 1\n", "a.jpg 0\nc.jpg 1\n", "a.jpg 0\n", "a.jpg x\nb.jpg y\n"]
    prints = {FileList(write(tmp_path, text)).fingerprint() for text in variants}
    assert len(prints | {before}) == 6
    named = FileList(path, class_names=("x", "y"))
    assert named.fingerprint() == FileList(write(tmp_path, variants[-1])).fingerprint()  # the same data, said otherwise


def test_nothing_is_read_before_it_is_asked(tmp_path: Path) -> None:
    source = FileList(tmp_path / "later.txt")
    write(tmp_path, "a.jpg 4\n", "later.txt")
    assert source.targets.tolist() == [4]
    assert len(pickle.dumps(source)) < 400


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"path": ""}, TypeError, "FileList.path"),
        ({"path": "l", "labels": "int"}, ValueError, "FileList.labels must be .* got 'int'"),
        ({"path": "l", "columns": "label"}, TypeError, "FileList.columns must be a sequence"),
        ({"path": "l", "class_names": ["a", "a"]}, ValueError, "FileList.class_names must be distinct, got 'a' twice"),
    ],
)
def test_wrong_fields(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FileList(**options)  # type: ignore[arg-type]


path_text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda s: s == s.strip(" \t"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(path_text, st.integers(0, 2**63 - 1)), min_size=1))
def test_what_is_written_is_read(tmp_path: Path, samples: list[tuple[str, int]]) -> None:
    text = "".join(f"{name} {label}\n" for name, label in samples)
    source = FileList(write(tmp_path, b"\xef\xbb\xbf" + text.encode()), root="r")
    assert list(zip(names_of(source), source.targets.tolist(), strict=True)) == samples
    assert [p for p in source.paths if not p.startswith("/")] == [f"r/{n}" for n, _ in samples if n[0] != "/"]
