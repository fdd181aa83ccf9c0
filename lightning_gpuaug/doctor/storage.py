"""How fast images come from where they are stored: files that nobody has read lately, read by sixteen threads."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lightning_gpuaug.doctor.finding import Finding, note, ok, problem
from lightning_gpuaug.sources.scan import IMAGE_EXTENSIONS

FILES_MOST = 4000
"""Files that are looked for: enough for some seconds on most disks, and soon listed on a network drive."""
_LISTING_SECONDS = 5.0
_READERS = 16
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "9p", "virtiofs")


@dataclass(frozen=True)
class ReadRate:
    """What a reading test has measured.

    Attributes:
        files: how many were read.
        bytes: in them.
        seconds: that took.
    """

    files: int
    bytes: int
    seconds: float

    @property
    def files_per_s(self) -> float:
        """Files a second."""
        return self.files / self.seconds

    @property
    def mib_per_s(self) -> float:
        """MiB a second."""
        return self.bytes / 2**20 / self.seconds


def image_files(root: Path, most: int = FILES_MOST, seconds: float = _LISTING_SECONDS) -> list[str]:
    """Some image files below `root`, in random order.

    Args:
        root: a folder.
        most: stop after so many.
        seconds: stop after so long.
    """
    end = time.monotonic() + seconds
    found = list(islice(_walk(root, random.Random(0), end), most))
    random.Random(0).shuffle(found)
    return found


def _walk(folder: Path, rng: random.Random, end: float) -> Iterator[str]:
    """Image files: of the folders in random order, not one class alone."""
    for parent, folders, files in os.walk(folder):
        rng.shuffle(folders)
        for name in files:
            if os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS:
                yield os.path.join(parent, name)
            if time.monotonic() > end:
                return


def read_rate(paths: Sequence[str], seconds: float) -> ReadRate:
    """Read files, each once and whole, until they are all read or time is over.

    The system is asked to forget what it keeps of them first, so that the storage answers and not the memory.
    """
    for path in paths:
        _forget(path)
    lock, end = threading.Lock(), time.monotonic() + seconds
    count, size = 0, 0

    def read(path: str) -> None:
        nonlocal count, size
        if time.monotonic() > end:
            return
        try:
            length = len(Path(path).read_bytes())
        except OSError:
            return
        with lock:
            count, size = count + 1, size + length

    begin = time.monotonic()
    with ThreadPoolExecutor(_READERS) as pool:
        for _ in pool.map(read, paths):
            pass
    return ReadRate(count, size, max(time.monotonic() - begin, 1e-9))


def _forget(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Kind of the file system that `path` is on ("ext4", "nfs4"); empty if it cannot be told."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    there, best, kind = str(path.resolve()), "", ""
    for line in lines:
        _, point, name, *_ = line.split(" ")
        inside = there == point or there.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind


def check_storage(path: Path, rate: ReadRate, kind: str, decoded_per_s: float | None) -> Finding:
    """Whether reading keeps up with decoding.

    Args:
        path: what was read.
        rate: how fast.
        kind: of file system.
        decoded_per_s: images of the same folder that this machine decodes a second; None if not known.
    """
    if not rate.files:
        return problem("storage", f"no image could be read below {path}", "look at the path and its permissions")
    mean = rate.bytes / rate.files / 1024
    found = (
        f"{path} ({kind or 'unknown file system'}): {rate.files_per_s:,.0f} files/s, {rate.mib_per_s:,.0f} MiB/s, "
        f"{mean:,.0f} KiB a file"
    )
    if decoded_per_s is not None and rate.files_per_s < 0.9 * decoded_per_s:
        return problem(
            "storage",
            f"{found}; decoding could take {decoded_per_s:,.0f} images/s",
            "the GPU will wait for files (in the first epoch, and in all if the data does not fit into memory): copy "
            "the data to a local SSD, or store smaller images",
        )
    if kind in _NETWORK or kind.startswith("fuse"):
        return note("storage", found, "a network drive: other users change this figure; local copies do not")
    return ok("storage", found)
