"""Reading a list of files: what each line says, with its line number, before labels are given a meaning."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.names import NameList
from lightning_gpuaug.sources.scan import IMAGE_EXTENSIONS

_BLANK = " \t\r"


@dataclass(frozen=True)
class Listing:
    """What a list file says.

    Attributes:
        names: path of each sample as written.
        lines: line number of each sample, counted from 1, int64 (N,).
        texts: distinct label texts in order of appearance; () when there are none or `flags` holds them.
        codes: index in `texts` of each sample's label, int64 (N,).
        columns: names of the 0/1 columns.
        flags: float32 (N, len(columns)) of 0 and 1, or None when there is one label text a sample.
    """

    names: NameList
    lines: npt.NDArray[np.int64]
    texts: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    columns: tuple[str, ...] = ()
    flags: npt.NDArray[np.float32] | None = None


class ListError(ValueError):
    """A line of a list file that breaks a rule: `<file>:<line>: <rule>`."""

    def __init__(self, file: str, line: int, rule: str) -> None:
        """`rule` says what must hold and what was found."""
        super().__init__(f"{file}:{line}: {rule}")


def read_listing(file: str, columns: Sequence[str], labelled: bool) -> Listing:
    """Read `file`: CSV or TSV with a header if it is called so, lines of path and label otherwise.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not UTF-8, empty, or a line breaks a rule (named with its number).
    """
    with open(file, "rb") as stream:
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ListError(file, line, f"must be UTF-8 text, got the byte 0x{data[error.start]:02x}") from None
    delimiter = {".csv": ",", ".tsv": "\t"}.get(file[file.rfind(".") :].lower())
    if delimiter:
        listing = _read_table(file, text, delimiter, columns, labelled)
    elif columns:
        raise ValueError(f"{file}: columns={list(columns)} need a .csv or .tsv file with a header")
    else:
        listing = _collect(file, _read_lines(file, text, labelled))
    if not len(listing.names):
        raise ValueError(f"{file}: no samples listed")
    return listing


def _read_lines(file: str, text: str, labelled: bool) -> Iterator[tuple[str, int, str]]:
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip(_BLANK)
        if not line:
            continue
        if not labelled:
            yield line, number, ""
            continue
        cut = max(line.rfind(" "), line.rfind("\t"))
        if cut < 0:
            raise ListError(file, number, f'must be a path, a space and a label (labels="none" for none), got {line!r}')
        yield line[:cut].rstrip(_BLANK), number, line[cut + 1 :]


def _read_table(file: str, text: str, delimiter: str, columns: Sequence[str], labelled: bool) -> Listing:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise ListError(file, reader.line_num, f"must be a table: {error}") from None
    if header and os.path.splitext(header[0])[1].lower() in (*IMAGE_EXTENSIONS, ".npy"):
        raise ListError(file, 1, f"a table begins with the names of its columns, got the sample {header[0]!r}")
    if len(set(header)) != len(header):
        raise ListError(file, 1, f"column names must be distinct, got {header}")
    absent = [column for column in columns if column not in header[1:]]
    if absent:
        raise ListError(file, 1, f"label columns must be among {header[1:]} (the first one is the path), got {absent}")
    chosen = list(columns) or header[1:]
    if labelled and not chosen:
        raise ListError(file, 1, f"a header must name the path column and a label column, got {header}")
    for number, row in rows:
        if len(row) != len(header):
            raise ListError(file, number, f"must have {len(header)} cells as the header has, got {len(row)}")
    if not labelled:
        return _collect(file, ((row[0], number, "") for number, row in rows))
    places = [header.index(column) for column in chosen]
    if len(places) == 1:
        return _collect(file, ((row[0], number, row[places[0]].strip()) for number, row in rows))
    flags = np.zeros((len(rows), len(places)), dtype=np.float32)
    values = {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}
    for i, (number, row) in enumerate(rows):
        for j, place in enumerate(places):
            value = values.get(row[place].strip())
            if value is None:
                raise ListError(file, number, f"column {chosen[j]!r} must be 0 or 1, got {row[place]!r}")
            flags[i, j] = value
    plain = _collect(file, ((row[0], number, "") for number, row in rows))
    return Listing(plain.names, plain.lines, (), plain.codes, tuple(chosen), flags)


def _collect(file: str, samples: Iterator[tuple[str, int, str]]) -> Listing:
    names, lines, codes = list[str](), list[int](), list[int]()
    texts: dict[str, int] = {}
    for name, line, label in samples:
        if not name or "\0" in name:
            raise ListError(file, line, f"a path must be non-empty text without NUL, got {name!r}")
        names.append(name)
        lines.append(line)
        codes.append(texts.setdefault(label, len(texts)))
    return Listing(NameList.of(names), np.array(lines, dtype=np.int64), tuple(texts), np.array(codes, dtype=np.int64))
