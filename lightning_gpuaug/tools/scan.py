"""The parallel check of every image of a data set."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.arrayheader import MAGIC
from lightning_gpuaug.sources.imagefile import MAX_PIXELS, Problem, problem_in, unreadable
from lightning_gpuaug.sources.imageheader import size_of, sniff
from lightning_gpuaug.tools import workers
from lightning_gpuaug.tools.array_check import array_facts
from lightning_gpuaug.tools.contents import Contents
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.pieces import MAX_BYTES, Piece, PieceReader

if TYPE_CHECKING:
    from lightning_gpuaug.tools.decode_check import DecodeCheck, Whole

CHUNK = 256
"""Images a task: a fraction of a second of work."""
_DIGEST = 16
_MAX_SIDE = 2**31 - 1
_EXTENSIONS = {
    "jpeg": ("jpg", "jpeg", "jpe", "jfif"),
    "png": ("png",),
    "bmp": ("bmp",),
    "pnm": ("ppm", "pgm", "pbm", "pnm"),
    "tiff": ("tif", "tiff"),
    "webp": ("webp",),
    "jp2": ("jp2",),
}
TYPES = (*_EXTENSIONS, "gif", "avif", "heic", "npy", "html", "git-lfs", "text", "empty", "unknown")


@dataclass
class ImageFacts:
    """What the files say, one row a sample.

    Attributes:
        bytes: int64 (N,) size of the file or record; 0 where it cannot be read.
        sizes: int32 (N, 2) width and height by the header, pixels; 0 where it does not tell.
        types: uint8 (N,) index in `TYPES`, by the first bytes.
        digests: uint8 (N, 16) of the bytes, or (N, 0) when nobody asked.
        problems: of sample i.
    """

    bytes: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    types: npt.NDArray[np.uint8]
    digests: npt.NDArray[np.uint8]
    problems: dict[int, Problem]


def scan_images(
    contents: Contents,
    *,
    decode: bool = False,
    duplicates: bool = False,
    max_pixels: int = MAX_PIXELS,
    processes: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> ImageFacts:
    """Read every sample and check it.

    Args:
        contents: what to scan.
        decode: decode every image with DALI on the CPU too: finds damage inside a JPEG's compressed data. Arrays need
            no decoding.
        duplicates: hash every file.
        max_pixels: more in a header is oversized.
        processes: how many work; as many as there are cores by default.
        progress: told how many more samples are done.
    """
    total = len(contents)
    facts = ImageFacts(
        bytes=np.zeros(total, dtype=np.int64),
        sizes=np.zeros((total, 2), dtype=np.int32),
        types=np.full(total, TYPES.index("unknown"), dtype=np.uint8),
        digests=np.zeros((total, _DIGEST if duplicates else 0), dtype=np.uint8),
        problems={},
    )
    decode = decode and not contents.arrays
    work = partial(_check_chunk, duplicates=duplicates, max_pixels=max_pixels, arrays=contents.arrays)
    tasks = ([contents.piece(i) for i in range(begin, min(begin + CHUNK, total))] for begin in range(0, total, CHUNK))
    processes = min(processes or workers.cores(), max(1, -(-total // CHUNK)))
    done = 0
    for part in workers.in_order(work, tasks, processes, begin=_begin_decoding if decode else None):
        rows = slice(done, done + len(part.bytes))
        facts.bytes[rows], facts.sizes[rows], facts.types[rows] = part.bytes, part.sizes, part.types
        facts.digests[rows] = part.digests
        facts.problems.update({done + i: problem for i, problem in part.problems.items()})
        done = rows.stop
        progress(len(part.bytes))
    return facts


_decoder: DecodeCheck | None = None  # of this worker


def _begin_decoding() -> None:
    from lightning_gpuaug.tools.decode_check import DecodeCheck  # torch and DALI: seconds, for those who need them

    global _decoder
    _decoder = DecodeCheck()


def _check_chunk(pieces: list[Piece], *, duplicates: bool, max_pixels: int, arrays: bool) -> ImageFacts:
    count = len(pieces)
    facts = ImageFacts(
        bytes=np.zeros(count, dtype=np.int64),
        sizes=np.zeros((count, 2), dtype=np.int32),
        types=np.zeros(count, dtype=np.uint8),
        digests=np.zeros((count, _DIGEST if duplicates else 0), dtype=np.uint8),
        problems={},
    )
    reader, decoding = PieceReader(), _Decoding(facts.problems)
    for i, piece in enumerate(pieces):
        problem = _check(reader, piece, i, facts, max_pixels, arrays, decoding)
        if problem is not None:
            facts.problems[i] = problem
    decoding.flush()
    reader.close()
    return facts


class _Decoding:
    """Good images of a chunk, collected for the decoder if this worker has one."""

    def __init__(self, problems: dict[int, Problem]) -> None:
        self._problems = problems
        self._images: dict[int, Whole] = {}
        self._pixels = 0

    def add(self, i: int, data: bytes, width: int, height: int) -> None:
        if _decoder is None:
            return
        from lightning_gpuaug.tools.decode_check import BATCH, BATCH_PIXELS, Whole

        if len(self._images) == BATCH or self._pixels + width * height > BATCH_PIXELS:
            self.flush()
        self._images[i] = Whole(data, width, height)
        self._pixels += width * height

    def flush(self) -> None:
        if _decoder is not None and self._images:
            rows = list(self._images)
            found = _decoder.problems(list(self._images.values()))
            self._problems.update({rows[at]: problem for at, problem in found.items()})
            self._images, self._pixels = {}, 0


def _check(
    reader: PieceReader,
    piece: Piece,
    i: int,
    facts: ImageFacts,
    max_pixels: int,
    arrays: bool,
    decoding: _Decoding,
) -> Problem | None:
    facts.types[i] = TYPES.index("unknown")
    try:
        facts.bytes[i] = reader.size(piece)
        if facts.bytes[i] > MAX_BYTES:
            return Problem("oversized", f"file of {facts.bytes[i] / 2**30:.1f} GiB, limit {MAX_BYTES / 2**30:.0f} GiB")
        data = reader.read(piece)
    except OSError as error:
        return unreadable(error)
    is_array = arrays and data.startswith(MAGIC)
    facts.types[i] = TYPES.index("npy" if is_array else sniff(data) or "unknown")
    if facts.digests.shape[1] and data:
        digest = hashlib.sha256(data).digest()[:_DIGEST]
        facts.digests[i] = np.frombuffer(digest, dtype=np.uint8)
    if arrays:
        width, height, problem = array_facts(data)
    else:
        width, height = size_of(data) or (0, 0)
        problem = problem_in(data)
    facts.sizes[i] = max(0, min(width, _MAX_SIDE)), max(0, min(height, _MAX_SIDE))
    if problem is None and width * height > max_pixels:
        limit = f"{max_pixels / 1e6:.3g}"
        return Problem(
            "oversized", f"header claims {width}×{height} ({width * height / 1e6:.3g} Mpx, limit {limit} Mpx)"
        )
    if problem is None:
        decoding.add(i, data, width, height)
    return problem


def find_duplicates(contents: Contents, facts: ImageFacts) -> dict[int, Finding]:
    """Samples whose bytes another sample has too, in order.

    The first of them stays, on whichever lines of a list it stands. Where they have several labels nobody can tell
    which one is right, and all are listed; so is one file that has several.
    """
    readable = np.array([i for i in range(len(contents)) if i not in facts.problems], dtype=np.int64)
    if not len(readable):
        return {}
    keys = np.ascontiguousarray(facts.digests[readable]).view(f"V{_DIGEST}").reshape(-1)
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(size[group.reshape(-1)] > 1)
    members: dict[int, list[int]] = {}
    for at in repeated.tolist():
        members.setdefault(int(group.reshape(-1)[at]), []).append(int(readable[at]))
    findings: dict[int, Finding] = {}
    for samples in members.values():
        labels = [] if contents.label is None else list(dict.fromkeys(map(contents.label, samples)))
        names = [contents.names[i] for i in samples]
        distinct = list(dict.fromkeys(names))
        for i, name in zip(samples, names, strict=True):
            other = next((other for other in distinct if other != name), None)
            if len(labels) > 1:
                same = "listed" if other is None else f"same bytes as {other}"
                reason = f"{same} under another label ({', '.join(labels)})"
                findings[i] = Finding(name, "duplicate with another label", reason)
            elif name != names[0]:
                findings[i] = Finding(name, "duplicate", f"same bytes as {names[0]}")
    return dict(sorted(findings.items()))


def misnamed(contents: Contents, facts: ImageFacts) -> list[int]:
    """Good images whose extension is another type's. They decode all the same: types go by the first bytes."""
    found = []
    for i, code in enumerate(facts.types.tolist()):
        kind = TYPES[code]
        if kind in _EXTENSIONS and i not in facts.problems:
            extension = os.path.splitext(contents.names[i])[1].lower().removeprefix(".")
            if any(extension in group for group in _EXTENSIONS.values()) and extension not in _EXTENSIONS[kind]:
                found.append(i)
    return found
