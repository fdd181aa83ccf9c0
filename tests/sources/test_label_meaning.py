"""What labels of records mean: whole numbers and texts are never taken for the wrong one of positions and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_gpuaug import LMDB, ImageFolder, RecordIO, TFRecord, WebDataset
from tests import record_files as files
from tests.record_files import datum, example, jpeg


def texts(folder: Path, *labels: str, **fields: object) -> WebDataset:
    """A tar whose `.cls` members hold `labels`."""
    members = {
        f"{i}.{ending}": content
        for i, label in enumerate(labels)
        for ending, content in (("jpg", jpeg(i)), ("cls", label.encode()))
    }
    return WebDataset(files.write_tar(folder / "x.tar", members), **fields)  # type: ignore[arg-type]


def numbers(folder: Path, *labels: int | list[int], **fields: object) -> TFRecord:
    """A TFRecord file with the int64 lists `labels`."""
    records = [example({"image": jpeg(i), "label": label}) for i, label in enumerate(labels)]
    return TFRecord(files.write_tfrecord(folder / "x", records), "image", "label", **fields)  # type: ignore[arg-type]


NAMES = ("1", "10", "2")


@pytest.mark.parametrize(
    ("labels", "fields", "classes", "targets"),
    [
        (("0", "2", "1"), {}, None, [0, 2, 1]),
        (("007", "+3"), {}, None, [7, 3]),
        (("0", "2"), {"class_names": ("a", "b", "c")}, ("a", "b", "c"), [0, 2]),
        (("0", "1"), {"class_names": ("0", "1")}, ("0", "1"), [0, 1]),  # position and name are the same
        (("2", "1"), {"class_names": NAMES, "labels": "index"}, NAMES, [2, 1]),
        (("2", "1"), {"class_names": NAMES, "labels": "name"}, NAMES, [2, 0]),
        (("2", "10", "1"), {"labels": "name"}, NAMES, [2, 1, 0]),
        (("001", "003"), {"class_names": ("001", "002", "003"), "labels": "name"}, ("001", "002", "003"), [0, 2]),
        (("cat", "7"), {"class_names": ("7", "cat")}, ("7", "cat"), [1, 0]),  # the list says that 7 is a name
        (("2.0", "10.0"), {"labels": "name"}, ("10.0", "2.0"), [1, 0]),
        (("0.25 1", "0 .5"), {"multilabel": True}, None, [[0.25, 1], [0, 0.5]]),
        (("0 2", ""), {"multilabel": True, "class_names": ("a", "b", "c")}, ("a", "b", "c"), [[1, 0, 1], [0, 0, 0]]),
        (("dog,cat", "dog"), {"multilabel": True}, ("cat", "dog"), [[1, 1], [0, 1]]),
        (
            ("1 1 3", "2"),
            {"multilabel": True, "class_names": tuple("abcd")},
            tuple("abcd"),
            [[0, 1, 0, 1], [0, 0, 1, 0]],
        ),
        (
            ("0 1", "1 0"),
            {"multilabel": True, "class_names": ("a", "b"), "labels": "index"},
            ("a", "b"),
            [[1, 1], [1, 1]],
        ),
        (("1.5", "cat"), {}, ("1.5", "cat"), [0, 1]),  # no number is among them that could be a class
        (("1e5", "cab"), {}, ("1e5", "cab"), [0, 1]),
    ],
)
def test_texts(tmp_path: Path, labels: tuple[str], fields: dict, classes: object, targets: list) -> None:  # type: ignore[type-arg]
    source = texts(tmp_path, *labels, **fields)
    assert source.classes == classes
    assert source.targets.tolist() == targets


@pytest.mark.parametrize(
    ("labels", "fields", "message"),
    [
        (("0", "1"), {"class_names": NAMES}, r"1: label '1' may be .*; say WebDataset.labels=\"index\" or \"name\"$"),
        (("001",), {"class_names": ("001", "002")}, r"0: label '001' may be a position or a class name"),
        (("2.0", "3.0"), {}, r"0: all labels must be class numbers, or .*, got '2.0'$"),
        (("1", "cat"), {}, r"1: all labels must be class numbers, or all class names .*, got 'cat'$"),
        (("dog 1", "0"), {"multilabel": True}, r"0: all labels must be .*, got '1'$"),
        (("0.5 1 dog",), {"multilabel": True}, r"0: all labels must be .*, got '0.5'$"),
        (("1", "cat"), {"labels": "index"}, r"1: label must be a 64-bit class number, got 'cat'$"),
        (("1" * 30,), {"labels": "index"}, r"0: label must be a 64-bit class number, got '1+'$"),
        (("9" * 20,), {}, r"0: label must be a 64-bit class number, got '9+'$"),
        (("4",), {"labels": "name", "class_names": ("1", "2")}, r"0: label must be one of the 2 classes, got '4'$"),
        (
            ("0 1 1 0", "1 0 0 0"),
            {"multilabel": True, "class_names": ("a", "b", "c", "d")},
            r"0: the label of 4 zeros and ones may be class numbers \(WebDataset.labels=\"index\"\) or a vector, one",
        ),
        (("001", "0"), {"class_names": ("3", "4", "1")}, r"0: label '001' may be a position or a class name"),
    ],
)
def test_texts_that_are_refused(tmp_path: Path, labels: tuple[str], fields: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match=rf"x\.tar:{message}"):
        texts(tmp_path, *labels, **fields).check()


def test_whole_numbers(tmp_path: Path) -> None:
    assert numbers(tmp_path, 2, 1, class_names=NAMES, labels="index").targets.tolist() == [2, 1]
    assert numbers(tmp_path, 2, 1, class_names=NAMES, labels="name").targets.tolist() == [2, 0]
    named = numbers(tmp_path, 2, 10, labels="name")
    assert (named.classes, named.targets.tolist()) == (("10", "2"), [1, 0])
    assert numbers(tmp_path, 1, 3, class_names=("1", "2", "3"), label_offset=-1).targets.tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"x:1: label '1' may be a position or a class name"):
        numbers(tmp_path, 0, 1, class_names=NAMES).check()
    with pytest.raises(ValueError, match=r"x:0: the label of 4 zeros and ones may be class numbers"):
        numbers(tmp_path, [0, 1, 1, 0], multilabel=True, class_names=("a", "b", "c", "d")).check()
    boxes = numbers(tmp_path, [1, 1, 3], [2], multilabel=True, class_names=("a", "b", "c", "d"))
    assert boxes.targets.tolist() == [[0, 1, 0, 1], [0, 0, 1, 0]]
    large = numbers(tmp_path, 2**53, 2**53 + 1, labels="name")
    assert (large.classes, large.targets.tolist()) == ((str(2**53), str(2**53 + 1)), [0, 1])
    with pytest.raises(ValueError, match=r'TFRecord.label_offset must be 0 with labels="name", got 1$'):
        numbers(tmp_path, 0, label_offset=1, labels="name")
    with pytest.raises(ValueError, match=r"TFRecord.labels must be \"auto\", \"index\" or \"name\", got 'names'$"):
        numbers(tmp_path, 0, labels="names")
    with pytest.raises(ValueError, match=r"TFRecord.label must be another feature than the image's, got 'i'$"):
        TFRecord("x", "i", "i")


def test_what_is_a_name_or_a_vector_by_its_type_is_clear(tmp_path: Path) -> None:
    records = [example({"image": jpeg(i), "label": name}) for i, name in enumerate(("2", "10"))]
    source = TFRecord(files.write_tfrecord(tmp_path / "x", records), "image", "label", class_names=NAMES)
    assert source.targets.tolist() == [2, 1]
    with pytest.warns(UserWarning, match="no samples of class '1'"):
        assert TFRecord(tmp_path / "x", "image", "label").with_classes(NAMES).targets.tolist() == [2, 1]
    vectors = [files.recordio_record(jpeg(i), [1.0, 0.0, 0.0]) for i in range(2)]
    rec = files.write_recordio(tmp_path / "a.rec", vectors)
    for meaning in ("auto", "name"):
        source = RecordIO(rec, multilabel=True, class_names=NAMES, labels=meaning)
        assert source.targets.tolist() == [[1, 0, 0]] * 2
    one = files.write_recordio(tmp_path / "b.rec", [files.recordio_record(jpeg(0), 1.0)])
    with pytest.raises(ValueError, match=r"b\.rec:0: label '1' may be a position or a class name"):
        RecordIO(one, class_names=("0", "2", "1")).check()


@pytest.mark.parametrize("write", [texts, numbers])
def test_validation_data_of_a_training_folder_with_numbers_for_names(tmp_path: Path, write: object) -> None:
    """The folder's class 10 is at position 1: the label 1 of the validation data may mean either."""
    for name in NAMES:
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "train" / name / "a.jpg").write_bytes(jpeg(0))
    classes = ImageFolder(tmp_path / "train").classes
    assert classes == NAMES
    labels = ("1", "2") if write is texts else (1, 2)

    def source(**fields: object) -> WebDataset | TFRecord:
        return write(tmp_path, *labels, **fields)  # type: ignore[operator,no-any-return]

    with pytest.raises(ValueError, match=r": label '1' may be a position or a class name; say \w+.labels=\"index\""):
        source().with_classes(classes)
    with pytest.raises(ValueError, match=r": label '(1|001)' may be a position or a class name"):
        (texts(tmp_path, "001", "002") if write is texts else source()).with_classes(("1", "10", "2"))
    source()
    with pytest.warns(UserWarning, match="no samples of class"):
        assert source(labels="index").with_classes(classes).targets.tolist() == [1, 2]
    with pytest.warns(UserWarning, match="no samples of class"):
        assert source(labels="name").with_classes(classes).targets.tolist() == [0, 2]


@pytest.mark.parametrize("fields", [{}, {"labels": "index"}])
def test_a_number_beyond_the_training_classes_is_named_by_its_record(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"x\.tar:1: label must be in 0\.\.1, got 5$"):
        texts(tmp_path, "0", "5", **fields).with_classes(("cat", "dog"))


@pytest.mark.parametrize("write", [texts, numbers])
def test_numbers_of_excluded_records_may_be_beyond_the_training_classes(tmp_path: Path, write: object) -> None:
    labels = ("5", "1", "0") if write is texts else (5, 1, 0)
    bad = write(tmp_path, *labels).sample_name(0)  # type: ignore[operator]
    source = write(tmp_path, *labels, exclude=(bad,))  # type: ignore[operator]
    assert source.with_classes(("cat", "dog")).targets.tolist() == [1, 0]
    with pytest.raises(ValueError, match=r":1: label must be in 0\.\.0, got 1$"):
        source.with_classes(("cat",))


@pytest.mark.filterwarnings("error")
def test_vectors_stay_vectors_under_a_class_list_of_numbers(tmp_path: Path) -> None:
    vectors = [[0.0, 0.5, 1.0], [1.0, 0.0, 0.0]]
    source = texts(tmp_path, "0.0 0.5 1.0", "1.0 0.0 0.0", multilabel=True)
    assert source.with_classes(("0.0", "0.5", "1.0")).targets.tolist() == vectors
    assert source.with_classes(("0", "1", "2")).targets.tolist() == vectors
    assert texts(tmp_path, "0 0.5", "1 0", multilabel=True).with_classes(("0", "1")).targets.tolist() == [
        [0.0, 0.5],
        [1.0, 0.0],
    ]
    with pytest.raises(ValueError, match=r"x\.tar …: 3 values a label, 2 training classes"):
        source.with_classes(("cat", "dog"))


def test_a_datum_without_a_label_is_not_of_class_0(tmp_path: Path) -> None:
    base = files.write_lmdb(tmp_path / "db", {b"a": datum(jpeg(0), 3), b"b": datum(jpeg(1), None)})
    with pytest.raises(ValueError, match=r"b: is a Datum without a label \(labelled=False for images alone\)$"):
        LMDB(base).check()
    kept = LMDB(base, missing="skip")
    with pytest.warns(UserWarning, match=r"1 records used, 1 skipped"):
        kept.check()
    assert kept.targets.tolist() == [3]
    assert LMDB(base, labelled=False).targets.tolist() == [-1, -1]
    with pytest.raises(TypeError, match=r"LMDB\.labelled must be True or False, got 'no'"):
        LMDB(base, labelled="no")  # type: ignore[arg-type]
