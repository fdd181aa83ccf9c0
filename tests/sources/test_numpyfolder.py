"""Folders of `.npy` images: what is read, and what is a bad image."""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug import NumpyFolder
from lightning_gpuaug.sources.arrayheader import parse_header
from tests.images import pixels


def save(path: Path, array: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return path


def test_pixels_and_labels(tmp_path: Path) -> None:
    arrays = [pixels(i, (7 + i, 9 - i)) for i in range(4)]
    for i, array in enumerate(arrays):
        save(tmp_path / f"c{i % 2}" / f"{i}.npy", array)
    (tmp_path / "c0" / "x.jpg").write_bytes(b"")
    source = NumpyFolder(tmp_path)
    with pytest.warns(UserWarning, match="4 images used, left unused: 1 without an image extension"):
        source.check()
    assert source.targets.tolist() == [0, 0, 1, 1]
    assert [source.sample_name(i) for i in range(4)] == ["c0/0.npy", "c0/2.npy", "c1/1.npy", "c1/3.npy"]
    reader = source.reader()
    for order in ([3, 0, 1], [2, 3], [1, 1]):
        encoded = reader.begin(np.array(order), False).result()
        assert encoded.sizes is not None
        for row, index in enumerate(order):
            expected = arrays[[0, 2, 1, 3][index]]
            assert tuple(encoded.sizes[row]) == expected.shape[:2]
            assert encoded.content(row) == expected.tobytes()
    reader.close()
    assert isinstance(source.with_classes(("c1", "c0")), NumpyFolder)


def test_only_the_rows_that_are_wanted_are_read(tmp_path: Path) -> None:
    arrays = [pixels(i, (7 + i, 9)) for i in range(3)]
    for i, array in enumerate(arrays):
        save(tmp_path / "c" / f"{i}.npy", array)
    (tmp_path / "c" / "3.npy").write_bytes((tmp_path / "c" / "2.npy").read_bytes()[:-1])  # of rows that nobody wants
    reader = NumpyFolder(tmp_path).reader()
    asked = []

    def wanted(sizes: np.ndarray) -> np.ndarray:
        asked.append(sizes.tolist())
        return np.stack([sizes[:, 0] // 3, sizes[:, 0] // 2], axis=1)

    for _ in range(2):
        encoded = reader.begin(np.array([2, 0, 3, 1]), False, wanted).result()
        assert asked.pop() == [[9, 9], [7, 9], [0, 0], [8, 9]]
        assert encoded.problems == {2: "cut: the file ends after 242 of 243 bytes"}
        assert encoded.rows is not None
        assert encoded.rows.tolist() == [[3, 4], [2, 3], [0, 0], [2, 4]]
        parts = [arrays[2][3:7], arrays[0][2:5], b"", arrays[1][2:6]]
        assert [encoded.content(i) for i in range(4)] == [bytes(part) for part in parts]
        assert encoded.row(3).rows.tolist() == [[2, 4]]  # type: ignore[union-attr]
    reader.close()


def test_headers_of_every_version(tmp_path: Path) -> None:
    array = pixels(0, (3, 4))
    for version in ((1, 0), (2, 0)):
        path = tmp_path / "c" / f"{version[0]}.npy"
        path.parent.mkdir(exist_ok=True)
        with open(path, "wb") as file:
            np.lib.format.write_array(file, array, version)
    long = bytearray((tmp_path / "c" / "1.npy").read_bytes())
    long[8:10] = (500).to_bytes(2, "little")  # a header of 510 bytes
    end = long.index(b"\n") + 1
    (tmp_path / "c" / "3.npy").write_bytes(long[: end - 1] + b" " * (510 - end) + b"\n" + long[end:])
    reader = NumpyFolder(tmp_path).reader()
    encoded = reader.begin(np.arange(3), False).result()
    reader.close()
    assert encoded.problems == {}
    assert [encoded.content(i) for i in range(3)] == [array.tobytes()] * 3


def test_headers_are_read_in_several_threads(tmp_path: Path) -> None:
    odd = b"{'shape': (3, 4, 3), 'fortran_order': False, 'descr': '|u1'}"
    for i in range(64):
        path = save(tmp_path / "c" / f"{i:02}.npy", pixels(i, (3, 4)))
        if i % 2:  # as others write it
            content = path.read_bytes()
            path.write_bytes(content[:10] + odd.ljust(117, b" ") + b"\n" + content[128:])
    for _ in range(20):  # each time anew: what has been read is kept
        reader = NumpyFolder(tmp_path).reader()
        halves = [reader.begin(np.arange(k, 64, 2), False) for k in range(2)]
        assert [half.result().problems for half in halves] == [{}, {}]
        reader.close()


def test_arrays_that_are_no_images(tmp_path: Path) -> None:
    good = pixels(0, (5, 6))
    cases = {
        "a": (good[..., 0], r"must be uint8 \(height, width, 3\), is uint8 \(5, 6\)"),
        "b": (good.astype(np.int16), r"is int16 \(5, 6, 3\)"),
        "c": (np.asfortranarray(good.transpose(2, 0, 1)), r"is uint8 \(3, 5, 6\)"),
        "d": (good[:0], "must be 1..65535 pixels"),
        "e": (b"no array", "is no array that numpy.save wrote"),
        "f": (b"", "is no array"),
        "g": (None, "cut: the file ends after 85 of 90 bytes"),
        "h": (
            lambda whole: whole.replace(b", 3)", b", 3\xc9"),
            r"is damaged: NumPy cannot read its header b\"\{'descr",
        ),
        "i": (lambda whole: whole.replace(b"'descr'", b"[descr]"), "is damaged: NumPy cannot read its header"),
        "j": (lambda whole: whole.replace(b"'|u1'", b"(1,2)"), "is damaged: NumPy cannot read its header"),
        "k": (lambda whole: whole.replace(b"\x93NUMPY\1", b"\x93NUMPY\7"), "is damaged: NumPy cannot read its header"),
    }
    for name, (array, _) in cases.items():
        path = save(tmp_path / "c" / f"{name}.npy", array if isinstance(array, np.ndarray) else good)
        if isinstance(array, bytes):
            path.write_bytes(array)
        elif array is None:
            path.write_bytes(path.read_bytes()[:-5])
        elif callable(array):
            path.write_bytes(array(path.read_bytes()))
    reader = NumpyFolder(tmp_path).reader()
    encoded = reader.begin(np.arange(len(cases)), False).result()
    reader.close()
    assert list(encoded.problems) == list(range(len(cases)))
    assert encoded.length.tolist() == [0] * len(cases)
    for row, (_, message) in enumerate(cases.values()):
        assert re.search(message, encoded.problems[row]), encoded.problems[row]


def test_no_bytes_in_a_header_make_it_fall_over() -> None:
    """Whatever NumPy raises of them (tokenize's and ast's exceptions too), the file is a bad image."""
    whole = io.BytesIO()
    np.save(whole, pixels(0, (4, 5)))
    plain = whole.getvalue()[:128]
    odd = plain[:10] + b"{'shape': (4, 5, 3), 'fortran_order': False, 'descr': '|u1'}".ljust(117) + b"\n"
    rng = np.random.default_rng(0)
    found = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the Python that the bytes happen to be
        for i in range(4000):
            header = bytearray((plain, odd)[i % 2])
            for _ in range(rng.integers(1, 4)):
                header[rng.integers(6, 70)] = rng.choice([*b"({['\"9 \n\xc9", rng.integers(256)])
            found.add(type(parse_header(bytes(header))).__name__)
    assert found == {"Problem", "ArrayHeader"}


@pytest.mark.parametrize("plain", [True, False], ids=["as NumPy writes it", "as others do"])
def test_fortran_order(tmp_path: Path, plain: bool) -> None:
    """The same pixels, all of them or the rows that are wanted, among files in C order."""
    arrays = [pixels(i, (7 + i, 9 - i)) for i in range(4)]
    for i, array in enumerate(arrays):
        path = save(tmp_path / "c" / f"{i}.npy", array if i == 1 else np.asfortranarray(array))
        if not plain:
            content = path.read_bytes()
            path.write_bytes(content.replace(b"'fortran_order': ", b" 'fortran_order':"))
    (tmp_path / "c" / "3.npy").write_bytes((tmp_path / "c" / "3.npy").read_bytes()[:-1])
    reader = NumpyFolder(tmp_path).reader()

    def wanted(sizes: np.ndarray) -> np.ndarray:
        return np.stack([sizes[:, 0] // 3, sizes[:, 0] // 2], axis=1)

    for _ in range(2):  # the second time the headers are known
        encoded = reader.begin(np.array([2, 0, 3, 1]), False).result()
        assert encoded.problems == {2: "cut: the file ends after 179 of 180 bytes"}
        assert [encoded.content(i) for i in range(4)] == [
            arrays[2].tobytes(),
            arrays[0].tobytes(),
            b"",
            bytes(arrays[1]),
        ]
        encoded = reader.begin(np.array([2, 0, 3, 1]), False, wanted).result()
        assert encoded.rows is not None
        assert encoded.rows.tolist() == [[3, 4], [2, 3], [0, 0], [2, 4]]
        parts = [arrays[2][3:7], arrays[0][2:5], b"", arrays[1][2:6]]
        assert [encoded.content(i) for i in range(4)] == [bytes(part) for part in parts]
    reader.close()
