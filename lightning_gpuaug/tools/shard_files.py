"""Writing one shard, whole or not at all, and reading it back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import mmap
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

from lightning_gpuaug.sources.imagefile import problem_in, unreadable
from lightning_gpuaug.sources.imageheader import size_of, sniff
from lightning_gpuaug.sources.index import DataFile
from lightning_gpuaug.sources.webdataset import index_tar
from lightning_gpuaug.tools import workers
from lightning_gpuaug.tools.findings import Finding
from lightning_gpuaug.tools.pieces import MAX_BYTES, Piece, PieceReader
from lightning_gpuaug.tools.reencode import NoJPEGError, fitted

Format = Literal["tfrecord", "webdataset"]
OnBad = Literal["fail", "skip"]
_SUFFIX = {"jpeg": "jpg", "png": "png", "webp": "webp", "tiff": "tif", "bmp": "bmp", "pnm": "ppm", "jp2": "jp2"}
_COUNT_EVERY = 16


class ShardSample(NamedTuple):
    """A sample to pack.

    Attributes:
        name: as the source's `sample_name` has it.
        key: its key in a WebDataset.
        piece: where its bytes are.
        label: its class.
        class_name: of that class; empty if unknown.
    """

    name: str
    key: str
    piece: Piece
    label: int
    class_name: str


@dataclass(frozen=True)
class ShardTask:
    """A shard to write.

    Attributes:
        path: where it goes.
        format: what it is.
        samples: in order.
        resize: shorter side at most, pixels.
        quality: of JPEGs to encode anew; see `fitted`.
        on_bad: "fail": write nothing if an image is bad; "skip": leave it out.
        inputs: the state of the samples' files; goes into `ShardDone`.
    """

    path: str
    format: Format
    samples: list[ShardSample]
    resize: int | None
    quality: int | None
    on_bad: OnBad
    inputs: str


@dataclass(frozen=True)
class ShardDone:
    """What became of a shard.

    Attributes:
        name: of the file.
        samples: in it.
        bytes: of the file.
        sha256: of the file, hexadecimal; empty if it was not written.
        bad: images that were left out, or kept it from being written.
        suffixes: of the images in it, as a WebDataset names them.
        inputs: the state of the files that it was made from.
    """

    name: str
    samples: int
    bytes: int
    sha256: str
    bad: list[Finding]
    suffixes: list[str]
    inputs: str


class VerificationError(RuntimeError):
    """What was read back from a shard is not what was written to it."""


class _Written(NamedTuple):
    key: str
    label: int
    digest: bytes


def write_shard(task: ShardTask) -> ShardDone:
    """Write a shard under another name, read back every record, and give it its name when all is well.

    Raises:
        VerificationError: what was read differs from what was written.
        OSError: it cannot be written.
    """
    folder, name = os.path.split(task.path)
    partial = os.path.join(folder, f".{name}.partial")
    bad: list[Finding] = []
    written: list[_Written] = []
    suffixes: set[str] = set()
    try:
        with open(partial, "w+b") as file:
            _write(file, task, bad, written, suffixes)
            if bad and task.on_bad == "fail":
                return ShardDone(name, 0, 0, "", bad, [], task.inputs)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            file.seek(0)
            _verify(file, name, task.format, written)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.replace(partial, task.path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
    return ShardDone(name, len(written), size, digest, bad, sorted(suffixes), task.inputs)


def is_intact(shard: ShardDone, task: ShardTask) -> bool:
    """Whether a shard of an earlier run is what `task` would make.

    The files that it was made from are as they were, its own SHA-256 is, and each image that it left out is still bad.
    """
    if shard.inputs != task.inputs:
        return False
    try:
        if os.stat(task.path).st_size != shard.bytes:
            return False
        with open(task.path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard.sha256:
                return False
    except OSError:
        return False
    if not shard.bad:
        return True
    left_out = {finding.name for finding in shard.bad}
    reader = PieceReader()
    still = [_image(reader, sample, task) for sample in task.samples if sample.name in left_out]
    reader.close()
    return still == shard.bad


def _write(file: BinaryIO, task: ShardTask, bad: list[Finding], written: list[_Written], suffixes: set[str]) -> None:
    reader = PieceReader()
    with _opened(file, task.format) as add:
        for number, sample in enumerate(task.samples):
            image = _image(reader, sample, task)
            if isinstance(image, Finding):
                bad.append(image)
            elif not (bad and task.on_bad == "fail"):
                add(sample, image)
                suffixes.add(_suffix(image))
                written.append(_Written(sample.key, sample.label, hashlib.sha256(image).digest()))
            if (number + 1) % _COUNT_EVERY == 0:
                workers.count(_COUNT_EVERY)
        workers.count(len(task.samples) % _COUNT_EVERY)
    reader.close()


@contextlib.contextmanager
def _opened(file: BinaryIO, form: Format) -> Iterator[Callable[[ShardSample, bytes], None]]:
    """What adds a sample and its image to the shard."""
    if form == "tfrecord":

        def add(sample: ShardSample, image: bytes) -> None:
            file.write(_tfrecord(sample, image))

        yield add
        return
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def add_two(sample: ShardSample, image: bytes) -> None:
            _add(tar, f"{sample.key}.{_suffix(image)}", image)
            _add(tar, f"{sample.key}.cls", str(sample.label).encode())

        yield add_two


def _suffix(image: bytes) -> str:
    return _SUFFIX[sniff(image) or ""]


def _image(reader: PieceReader, sample: ShardSample, task: ShardTask) -> bytes | Finding:
    """The bytes to pack, or what is wrong with them."""
    try:
        size = reader.size(sample.piece)
        if size > MAX_BYTES:
            return Finding(sample.name, "oversized", f"file of {size / 2**30:.1f} GiB")
        data = reader.read(sample.piece)
    except OSError as error:
        return Finding(sample.name, *unreadable(error))
    problem = problem_in(data)
    if problem is not None:
        return Finding(sample.name, *problem)
    try:
        return fitted(data, task.resize, task.quality)
    except NoJPEGError as error:
        return Finding(sample.name, "oversized", f"cannot be encoded ({error})")
    except Exception as error:  # Pillow's plugins raise nearly anything on damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Finding(sample.name, "damaged", f"cannot be decoded ({reason})")


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    # Nothing but names and contents: no times, owners or modes, so that equal data gives equal shards.
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _tfrecord(sample: ShardSample, image: bytes) -> bytes:
    from lightning_gpuaug.tools.tfrecord_file import record_of

    width, height = size_of(image) or (0, 0)
    return record_of(
        {
            "image/encoded": image,
            "image/format": (sniff(image) or "").upper().encode(),
            "image/width": width,
            "image/height": height,
            "image/filename": sample.name.encode(),
            "image/class/label": sample.label,
            "image/class/text": sample.class_name.encode(),
        }
    )


def _verify(file: BinaryIO, name: str, form: Format, written: list[_Written]) -> None:
    found = _read_tar(file, name) if form == "webdataset" else _read_tfrecord(file, name)
    number = 0
    for key, label, image in found:
        if number >= len(written):
            raise VerificationError(f"{name}: more than the {len(written)} records written")
        wanted = written[number]
        if key not in ("", wanted.key) or label != wanted.label or hashlib.sha256(image).digest() != wanted.digest:
            raise VerificationError(f"{name}: record {number} ({wanted.key}) is not what was written")
        number += 1
    if number < len(written):
        raise VerificationError(f"{name}: {number} of {len(written)} records could be read back")


def _read_tar(file: BinaryIO, name: str) -> Iterator[tuple[str, int, bytes]]:
    """What the source will make of it, by its own rules."""
    images = ";".join(_SUFFIX.values())
    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        found = index_tar(DataFile(name, name), data, images, label="cls", multilabel=False, missing="raise")
        labels = [int(found.labels.texts[code]) for code in found.labels.values.tolist()]
        ranges = zip(found.offset.tolist(), found.length.tolist(), strict=True)
        for key, label, (begin, size) in zip(found.keys or (), labels, ranges, strict=True):
            yield key, label, data[begin : begin + size]


def _read_tfrecord(file: BinaryIO, name: str) -> Iterator[tuple[str, int, bytes]]:
    from lightning_gpuaug.tools.tfrecord_file import read_records

    for features in read_records(file, name):
        label, image = features["image/class/label"], features["image/encoded"]
        assert isinstance(label, int)
        assert isinstance(image, bytes)
        yield "", label, image
