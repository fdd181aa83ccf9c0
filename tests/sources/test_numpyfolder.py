"""Folders of `.npy` images: what is read, and what is a bad image."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug import NumpyFolder
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
        "a": (good[..., 0], r"must be uint8 \(height, width, 3\) in C order, is uint8 \(5, 6\)"),
        "b": (good.astype(np.int16), r"is int16 \(5, 6, 3\)"),
        "c": (np.asfortranarray(good), "in Fortran order"),
        "d": (good[:0], "must be 1..65535 pixels"),
        "e": (b"no array", "is no array that numpy.save wrote"),
        "f": (b"", "is no array"),
        "g": (None, "cut: the file ends after 85 of 90 bytes"),
    }
    for name, (array, _) in cases.items():
        path = save(tmp_path / "c" / f"{name}.npy", array if isinstance(array, np.ndarray) else good)
        if isinstance(array, bytes):
            path.write_bytes(array)
        elif array is None:
            path.write_bytes(path.read_bytes()[:-5])
    reader = NumpyFolder(tmp_path).reader()
    encoded = reader.begin(np.arange(len(cases)), False).result()
    reader.close()
    assert list(encoded.problems) == list(range(len(cases)))
    assert encoded.length.tolist() == [0] * len(cases)
    for row, (_, message) in enumerate(cases.values()):
        assert re.search(message, encoded.problems[row]), encoded.problems[row]
