"""Data files that are objects in S3: fetched once, whole, and local files from then on."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from lightning_gpuaug.sources.locks import locked
from lightning_gpuaug.sources.names import S3
from lightning_gpuaug.sources.remote import is_remote

#: An object is asked for so often: the AWS SDK tries again by itself only before the first byte has arrived.
ATTEMPTS = 3
_FIRST_LINE, _NEXT_LINE = 2.0, 10.0  # seconds after which a line says what is fetched, and after which the next does
_LEFT_OVER = 600.0  # seconds after its last change when an unfinished copy has nobody who writes it
#: One object is in memory at a time, whichever sources of this process ask.
_ONE_AT_A_TIME = threading.Lock()


def local_copies(files: Sequence[str], folder: str) -> tuple[str, ...]:
    """Where each of `files` is on a file system; objects in S3 (`s3://`) are fetched if they have not been.

    A copy is in `<folder>/s3/<bucket>/`, whole or not at all, whatever kills the process; of several processes that
    need it one fetches it and the others wait. Once it is there it is not compared with the bucket again: delete it
    when the object has changed. It belongs to the address and to `AWS_ENDPOINT_URL`. The AWS SDK inside DALI finds
    credentials and region, as for single images.

    DALI reads an object in one piece, into memory of that size, which it keeps for what it allocates later in this
    process; objects are fetched one after the other. A line on stderr tells of it when it takes more than 2 s.

    Raises:
        OSError: an object cannot be read, or its copy cannot be kept; names the object.
        RuntimeError: DALI is not installed.
    """
    copies = tuple(copy_of(file, folder) if is_remote(file) else file for file in files)
    pairs = zip(files, copies, strict=True)
    absent = [(file, copy) for file, copy in pairs if file != copy and not os.path.isfile(copy)]
    if absent:
        with _ONE_AT_A_TIME:
            progress = _Progress(len(absent), folder)
            for address, copy in absent:
                _fetch(address, copy, progress)
            progress.finish()
    return copies


def copy_of(address: str, folder: str) -> str:
    """Where the copy of an object is, or will be."""
    bucket, _, key = address.removeprefix(S3).partition("/")
    # The same name on another server is another object.
    servers = [os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")]
    known = hashlib.blake2b(json.dumps([address, *servers]).encode(), digest_size=10).hexdigest()
    return os.path.join(folder, "s3", bucket, f"{os.path.basename(key)[-40:]}-{known}")


def _fetch(address: str, copy: str, progress: _Progress) -> None:
    """Make the copy, or wait for another process to have made it."""
    with locked(copy, address):  # should several fetch it, the first copy stays
        if not os.path.isfile(copy):
            with progress.fetching(address):
                content = _read(address)
                _keep(content, address, copy)
            progress.bytes += len(content)
        progress.done += 1


def _read(address: str) -> npt.NDArray[np.uint8]:
    from lightning_gpuaug.pipeline import FileError, require_dali, whole_file

    require_dali()
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            return whole_file(address)
        except FileError as error:
            reason = str(error)
    server = os.environ.get("AWS_ENDPOINT_URL", "AWS")
    raise OSError(
        f"{address}: cannot be fetched from {server}: {reason} "
        "(the same is said where credentials, region or endpoint do not give access to it)"
    )


def _keep(content: npt.NDArray[np.uint8], address: str, copy: str) -> None:
    """Write the copy: under another name, which becomes its own when all bytes are on the disk."""
    bucket = os.path.dirname(copy)
    _remove_left_over(bucket)
    free = shutil.disk_usage(bucket).free
    if len(content) > free:
        raise OSError(
            f"{address}: is {len(content):,} bytes long, {free:,} are free in {bucket}; give another index_dir"
        )
    unfinished = f"{copy}.{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "xb", buffering=0) as file:
            rest = content.data
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        try:
            os.link(unfinished, copy)
        except FileExistsError:
            pass  # another process was first, and may be reading already
        except OSError:  # a file system without links
            os.replace(unfinished, copy)
    except OSError as error:
        raise OSError(f"{address} cannot be kept in {bucket}: {error}; give another index_dir") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def _remove_left_over(bucket: str) -> None:
    """Remove what processes that were killed have begun to write."""
    for unfinished in glob.glob(os.path.join(glob.escape(bucket), "*.part")):
        with contextlib.suppress(OSError):
            if time.time() - os.stat(unfinished).st_mtime > _LEFT_OVER:
                os.unlink(unfinished)


class _Progress:
    """Says on stderr, now and then, which object is fetched."""

    def __init__(self, total: int, folder: str) -> None:
        self.done = self.bytes = 0
        self._total, self._folder = total, folder
        self._begin = time.monotonic()
        self._next = self._begin + _FIRST_LINE
        self._said = False

    @contextmanager
    def fetching(self, address: str) -> Iterator[None]:
        """While `address` is fetched."""
        timer = threading.Timer(max(0.0, self._next - time.monotonic()), self._say, [address])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def finish(self) -> None:
        """All are there."""
        if self._said:
            seconds = time.monotonic() - self._begin
            rate = f"{self.bytes / 1e6:,.1f} MB in {seconds:,.0f} s ({self.bytes / 1e6 / seconds:,.1f} MB/s)"
            print(f"fetched {rate}, kept in {os.path.join(self._folder, 's3')}", file=sys.stderr)

    def _say(self, address: str) -> None:
        self._said = True
        self._next = time.monotonic() + _NEXT_LINE
        print(f"fetching {address} ({self.done + 1} of {self._total})", file=sys.stderr)
