"""The ops on records for torch: what serves them without the native library, and their fakes."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

import torch

SCHEMAS = {
    "image_sizes_packed": "image_sizes_packed(Tensor data, Tensor start, Tensor length, bool exif_orientation=False) "
    "-> Tensor",
    "read_ranges": "read_ranges(Tensor(a!) out, Tensor start, Tensor paths, Tensor file, Tensor offset, Tensor length, "
    "int threads=1) -> Tensor",
    "file_states": "file_states(Tensor paths) -> Tensor",
    "crc32c": "crc32c(Tensor data, Tensor start, Tensor length, int threads=1) -> Tensor",
}


def read_ranges(
    out: torch.Tensor,
    start: torch.Tensor,
    paths: torch.Tensor,
    file: torch.Tensor,
    offset: torch.Tensor,
    length: torch.Tensor,
    threads: int = 1,
) -> torch.Tensor:
    """One range after the other, by Python."""
    got = []
    for to, of, begin, count in zip(start.tolist(), file.tolist(), offset.tolist(), length.tolist(), strict=True):
        if not 0 <= to <= to + count <= len(out):
            raise RuntimeError(f"read_ranges: {count} bytes from {to} must lie in the {len(out)} bytes of out")
        name = _name(paths[of])
        try:
            with open(name, "rb", buffering=0) as stream:
                stream.seek(begin)
                data = b""
                while len(data) < count and (more := stream.read(count - len(data))):
                    data += more
        except OSError as error:
            got.append(-(error.errno or 5))
            continue
        if data:
            out[to : to + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        got.append(len(data))
    return torch.tensor(got, dtype=torch.int64)


def file_states(paths: torch.Tensor) -> torch.Tensor:
    """One file after the other, by Python."""
    states = []
    for row in paths:
        try:
            found = os.stat(_name(row))
            states.append([found.st_size, found.st_mtime_ns])
        except OSError as error:
            states.append([-(error.errno or 5), 0])
    return torch.tensor(states, dtype=torch.int64).reshape(-1, 2)


def _name(row: torch.Tensor) -> bytes:
    return bytes(row.tolist()).split(b"\0", 1)[0]


@lru_cache(maxsize=1)
def _table() -> torch.Tensor:
    values = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
        values.append(crc)
    return torch.tensor(values, dtype=torch.int64)


def crc32c(data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, threads: int = 1) -> torch.Tensor:
    """All ranges a byte at a time."""
    if len(start) and not ((start >= 0) & (length >= 0) & (start + length <= len(data))).all():
        raise RuntimeError(f"crc32c: every range must lie in the {len(data)} bytes of data")
    crc = torch.full_like(start, 0xFFFFFFFF)
    for at in range(int(length.max()) if len(length) else 0):
        live = at < length
        byte = data[(start + at)[live]]
        old = crc[live]
        crc[live] = old >> 8 ^ _table()[(old ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _image_sizes_packed(
    data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, exif_orientation: bool = False
) -> torch.Tensor:
    return data.new_zeros((len(start), 2), dtype=torch.int32)  # unknown, all of them: Python reads the headers


def _sizes_fake(
    data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, exif_orientation: bool = False
) -> torch.Tensor:
    return data.new_empty((start.shape[0], 2), dtype=torch.int32)


def _read_fake(
    out: torch.Tensor,
    start: torch.Tensor,
    paths: torch.Tensor,
    file: torch.Tensor,
    offset: torch.Tensor,
    length: torch.Tensor,
    threads: int = 1,
) -> torch.Tensor:
    return torch.empty_like(start)


def _states_fake(paths: torch.Tensor) -> torch.Tensor:
    return paths.new_empty((paths.shape[0], 2), dtype=torch.int64)


def _crc_fake(data: torch.Tensor, start: torch.Tensor, length: torch.Tensor, threads: int = 1) -> torch.Tensor:
    return torch.empty_like(start)


def register(library: torch.library.Library) -> None:
    """Add the plain kernels, for when there are no native ones, and the fakes."""
    kernels: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
        "image_sizes_packed": (_image_sizes_packed, _sizes_fake),
        "read_ranges": (read_ranges, _read_fake),
        "file_states": (file_states, _states_fake),
        "crc32c": (crc32c, _crc_fake),
    }
    for name, (kernel, fake) in kernels.items():
        library.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"lightning_gpuaug::{name}", fake, lib=library)
