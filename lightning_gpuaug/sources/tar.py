"""Members of a tar file: ustar, GNU and PAX, strictly: what is cut or damaged is an error."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
# Type flags, besides those of links and of headers.
_FILES = b"\0" + b"07"  # plain files (7: "contiguous", which nobody tells apart)
_DEVICES = b"3456"  # and folders and pipes: without content, whatever the header says
_PASSED = _DEVICES + b"DV"  # GNU's folder with a listing, and the label of the volume: no samples either


@dataclass(frozen=True)
class Member:
    """A plain file in a tar.

    Attributes:
        name: its path in the tar.
        start: first byte of its content.
        size: bytes of its content.
    """

    name: str
    start: int
    size: int


def members(path: str, data: mmap.mmap) -> Iterator[Member]:
    """The plain files of the tar `data`, in order; folders and devices are passed over.

    Raises:
        ValueError: it is no tar, damaged, cut off, or has links in it, or members of a type that is not known; names
            `path` and the byte.
    """
    at, end = 0, len(data)
    long_name: str | None = None
    pax: dict[str, str] = {}
    shared: dict[str, str] = {}
    while True:
        if at + _BLOCK > end:
            what = "no tar file" if at == 0 else f"cut off at byte {end}: a tar ends in two blocks of zeros"
            raise ValueError(f"{path}: is {what}")
        head = data[at : at + _BLOCK]
        if head == _ZEROS:
            _check_rest(path, data, at)
            return
        if head[148:156].strip(b" \0") == b"" or _octal(head[148:156]) not in _checksums(head):
            raise ValueError(f"{path}: is {'no tar file' if at == 0 else f'damaged: no tar header at byte {at}'}")
        kind, start = head[156:157], at + _BLOCK
        size = _number(head[124:136])
        if kind in _FILES and (given := pax.get("size", shared.get("size"))):
            if not (given.isascii() and given.isdigit() and len(given) <= 20):
                rule = "must be a number of bytes"
                raise ValueError(
                    f"{path}: is damaged: the PAX size of the member at byte {at} {rule}, got {given[:40]!r}"
                )
            size = int(given)
        if size is None or size < 0:
            raise ValueError(f"{path}: is damaged: no size in the tar header at byte {at}")
        if kind in b"12":
            name = pax.get("path") or long_name or _name(path, head, at)
            raise ValueError(f"{path}: member {name!r} is a link, which is not read; pack the file itself")
        if kind in _DEVICES:
            size = 0
        if start + size > end:
            raise ValueError(f"{path}: is cut off: the member at byte {at} needs {size} bytes, {end - start} are there")
        following = start + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        if kind == b"L":
            long_name = _text(path, data[start : start + size].split(b"\0", 1)[0], at)
        elif kind == b"x":
            pax = _pax(path, data[start : start + size], at)
        elif kind == b"g":
            shared |= _pax(path, data[start : start + size], at)
        elif kind != b"K":
            if kind == b"S" or any(key.startswith("GNU.sparse") for key in pax):
                raise ValueError(f"{path}: the member at byte {at} is a sparse file, which is not read")
            if kind not in _FILES + _PASSED:
                name = pax.get("path") or long_name or _name(path, head, at)
                what = (
                    f"{'continued from another tar' if kind == b'M' else 'unknown'} (type {kind.decode('latin-1')!r})"
                )
                raise ValueError(f"{path}: member {name!r} at byte {at} is {what}, so not read; pack the file anew")
            if kind in _FILES:
                name = pax.get("path") or shared.get("path") or long_name or _name(path, head, at)
                if not name.endswith("/"):
                    yield Member(name, start, size)
            long_name, pax = None, {}
        at = following


def _check_rest(path: str, data: mmap.mmap, at: int) -> None:
    """Refuse what follows the end: a second tar, joined to this one, would be lost unnoticed."""
    step = 1 << 20
    for begin in range(at, len(data), step):
        block = data[begin : begin + step]
        if block.count(0) != len(block):
            raise ValueError(
                f"{path}: goes on behind its end at byte {at} (two tars in one file?); unpack and pack again"
            )


def _number(field: bytes) -> int | None:
    """A number in octal digits, or in GNU's binary form."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") - (1 << 8 * (len(field) - 1) if field[0] == 0xFF else 0)
    return _octal(field)


def _octal(field: bytes) -> int | None:
    try:
        return int(field.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        return None


def _checksums(head: bytes) -> tuple[int, int]:
    """The header's checksum with bytes taken as unsigned and, as some old programs do, as signed."""
    rest = head[:148] + b" " * 8 + head[156:]
    unsigned = sum(rest)
    return unsigned, unsigned - 256 * sum(byte >= 128 for byte in rest) if max(rest) >= 128 else unsigned


def _name(path: str, head: bytes, at: int) -> str:
    name = _text(path, head[:100].split(b"\0", 1)[0], at)
    prefix = head[345:500].split(b"\0", 1)[0] if head[257:263] == b"ustar\0" else b""
    return f"{_text(path, prefix, at)}/{name}" if prefix else name


def _pax(path: str, content: bytes, at: int) -> dict[str, str]:
    """Records `length key=value` and a newline."""
    found: dict[str, str] = {}
    begin = 0
    while begin < len(content) and content[begin]:
        digits, _, _ = content[begin : begin + 21].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        record = content[begin + len(digits) + 1 : begin + length]
        key, equals, value = record.partition(b"=")
        if length <= len(digits) or not equals or value[-1:] != b"\n":
            raise ValueError(f"{path}: is damaged: a PAX header at byte {at} cannot be read")
        if key in (b"path", b"size") or key.startswith(b"GNU.sparse"):
            found[key.decode("ascii", "replace")] = _text(path, value[:-1], at)
        begin += length
    return found


def _text(path: str, value: bytes, at: int) -> str:
    if b"\0" in value:
        raise ValueError(f"{path}: member names must not hold a NUL, got {value!r} at byte {at}")
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: member names must be UTF-8, got {value!r} at byte {at}") from None
