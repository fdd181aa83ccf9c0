"""Reading ranges of files, checksums, and image sizes in memory; the plain kernels against the native ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import ops
from lightning_gpuaug.ops import _register_records
from lightning_gpuaug.pipeline import path_bytes


def names(*paths: Path) -> torch.Tensor:
    return torch.from_numpy(
        path_bytes(np.array([bytes(p) for p in paths], dtype=f"S{max(map(len, map(str, paths))) + 1}"))
    )


def vector(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize("read", [ops.read_ranges, _register_records.read_ranges], ids=["native", "plain"])
def test_ranges_are_read_and_what_cannot_be_is_told(tmp_path: Path, read) -> None:  # type: ignore[no-untyped-def]
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(bytes(range(100)))
    b.write_bytes(bytes(range(200, 256)))
    out = torch.zeros(30, dtype=torch.uint8)
    start, file = vector(10, 0, 20, 25, 5), vector(0, 1, 0, 2, 1)
    got = read(
        out, start, names(a, b, tmp_path / "none"), file, vector(90, 0, 98, 0, 56), vector(10, 5, 4, 5, 5), threads=3
    )
    assert got.tolist() == [10, 5, 2, -errno.ENOENT, 0]
    assert out.tolist() == [*range(200, 205), *[0] * 5, *range(90, 100), 98, 99, *[0] * 8]


def test_many_ranges_in_many_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = [rng.integers(0, 256, 5000, dtype=np.uint8) for _ in range(7)]
    paths = [tmp_path / str(i) for i in range(7)]
    for path, content in zip(paths, data, strict=True):
        path.write_bytes(content.tobytes())
    file, offset = rng.integers(0, 7, 300), rng.integers(0, 5000, 300)
    length = np.minimum(rng.integers(0, 900, 300), 5000 - offset)
    start = np.cumsum(length) - length
    out = torch.zeros(int(length.sum()), dtype=torch.uint8)
    got = ops.read_ranges(
        out, *map(torch.from_numpy, (start,)), names(*paths), *map(torch.from_numpy, (file, offset, length))
    )
    assert got.tolist() == length.tolist()
    expected = [data[f][o : o + n] for f, o, n in zip(file, offset, length, strict=True)]
    assert np.array_equal(out.numpy(), np.concatenate(expected))


def test_read_ranges_refuses_what_does_not_fit(tmp_path: Path) -> None:
    out, paths, one, zero = torch.zeros(4, dtype=torch.uint8), names(tmp_path), vector(1), vector(0)
    with pytest.raises(RuntimeError, match="must lie in the 4 bytes of out, got 5 from 0"):
        ops.read_ranges(out, zero, paths, zero, zero, vector(5))
    with pytest.raises(RuntimeError, match="names no file"):
        ops.read_ranges(out, zero, paths, one, zero, one)
    with pytest.raises(RuntimeError, match="zero byte"):
        ops.read_ranges(out, zero, torch.ones((1, 3), dtype=torch.uint8), zero, zero, one)
    with pytest.raises(ValueError, match=r"start must be torch.int64"):
        ops.read_ranges(out, zero.int(), paths, zero, zero, one)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        ops.read_ranges(out, zero, paths, zero, zero, one, threads=0)


@pytest.mark.parametrize("crc32c", [ops.crc32c, _register_records.crc32c], ids=["native", "plain"])
def test_crc32c_of_published_vectors(crc32c) -> None:  # type: ignore[no-untyped-def]
    """RFC 3720, B.4, and the usual check value."""
    parts = [bytes(32), b"\xff" * 32, bytes(range(32)), bytes(range(31, -1, -1)), b"123456789", b""]
    lengths = [len(part) for part in parts]
    data = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)
    got = crc32c(data, vector(*(np.cumsum(lengths) - lengths)), vector(*lengths), threads=2).tolist()
    assert got == [0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0x113FDB5C, 0xE3069283, 0]


def test_crc32c_refuses_ranges_outside() -> None:
    data = torch.zeros(8, dtype=torch.uint8)
    for crc32c in (ops.crc32c, _register_records.crc32c):
        with pytest.raises(RuntimeError, match="must lie in the 8 bytes of data"):
            crc32c(data, vector(4), vector(5))


def test_sizes_in_memory_are_those_of_the_files(tmp_path: Path) -> None:
    paths, exif = [], Image.Exif()
    exif[0x0112] = 6
    for i, (name, options) in enumerate({"a.jpg": {}, "b.png": {}, "c.jpg": {"exif": exif}, "d.webp": {}}.items()):
        paths.append(tmp_path / name)
        Image.new("RGB", (30 + i, 20)).save(paths[-1], **options)
    paths.append(tmp_path / "cut.jpg")
    paths[-1].write_bytes(paths[0].read_bytes()[:10])
    contents = [path.read_bytes() for path in paths]
    lengths = [len(content) for content in contents]
    data = torch.frombuffer(bytearray(b"".join(contents)), dtype=torch.uint8)
    ranges = vector(*(np.cumsum(lengths) - lengths)), vector(*lengths)
    for orient in (False, True):
        got = ops.image_sizes_packed(data, *ranges, exif_orientation=orient)
        assert torch.equal(got, ops.image_sizes(names(*paths), exif_orientation=orient))
        assert got[2].tolist() == ([32, 20] if orient else [20, 32])


@pytest.mark.parametrize("states", [ops.file_states, _register_records.file_states], ids=["native", "plain"])
def test_states_are_those_of_stat(tmp_path: Path, states) -> None:  # type: ignore[no-untyped-def]
    a, b = tmp_path / "a", tmp_path / "a longer name"
    a.write_bytes(bytes(7))
    os.utime(a, ns=(5, 1_700_000_000_123_456_789))
    b.touch()
    os.truncate(b, 2**33)  # sparse
    found = states(names(a, tmp_path / "none", b, a / "below"))
    assert found.dtype == torch.int64
    assert found.tolist() == [
        [7, 1_700_000_000_123_456_789],
        [-errno.ENOENT, 0],
        [2**33, b.stat().st_mtime_ns],
        [-errno.ENOTDIR, 0],
    ]
    assert states(names(a)[:0]).shape == (0, 2)


def test_opcheck(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(9))
    data, at, length = torch.zeros(9, dtype=torch.uint8), vector(0, 3), vector(3, 2)
    library = torch.ops.lightning_gpuaug
    torch.library.opcheck(library.file_states.default, (names(tmp_path / "a"),))
    torch.library.opcheck(library.crc32c.default, (data, at, length))
    torch.library.opcheck(library.image_sizes_packed.default, (data, at, length))
    torch.library.opcheck(library.read_ranges.default, (data, at, names(tmp_path / "a"), vector(0, 0), at, length))


def test_schemas_are_those_of_the_library() -> None:
    for name, schema in _register_records.SCHEMAS.items():
        assert str(getattr(torch.ops.lightning_gpuaug, name).default._schema) == f"lightning_gpuaug::{schema}"
