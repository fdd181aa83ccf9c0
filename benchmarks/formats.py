"""Images per second from every record format, against DALI's own reader of that format, in one run.

    python -m benchmarks.formats --folder /data/imagenet/val --images 8192
    python -m benchmarks.formats --records 1280000 --formats

`--images` files of a folder of class folders (made-up JPEGs if left out) are packed, `--copies` times, into four data
files of each format (numpy: a folder of decoded images, `--numpy-images` files of them): epochs should be long, for the
readers never end one. Every loader delivers random-resized-crop 224 batches: raw DALI's as uint8 (the reader with a
shuffle buffer of 1,024, `decoders.image_random_crop`, `resize`), ours finished (normalised, bf16, channels_last, on the
device), in a true global shuffle. The two are measured in turns,
`--rounds` times; the ratio is that of the medians. "examples" is a Python dataset of the same files, against DALI's
parallel `fn.external_source` with as many workers as threads.

With `--records N`, tiny records are written too: how fast they are indexed, and what a process that finds the index
there needs to the first batch: seconds (after the imports of torch, Lightning and DALI) and resident memory (all of the
process; and without the pages of files, such as libraries, which ranks share), beside one that has the first of 64
shards alone.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import lightning_gpuaug as gpuaug
from benchmarks.loader import SIZE
from benchmarks.report import publish
from lightning_gpuaug import ops
from lightning_gpuaug.bench.timing import images_per_second
from lightning_gpuaug.sources import Source
from lightning_gpuaug.tools.tfrecord_file import masked_crcs, record_of
from tests import record_files

FORMATS = ("folder", "tfrecord", "webdataset", "recordio", "lmdb", "numpy", "examples")
SHARDS = 4
SHARDS_OF_TINY = 64


# ---- packing -----------------------------------------------------------------------------------------------------


def tfrecord(path: Path, samples: Sequence[tuple[str, int]]) -> None:
    with open(path, "wb") as file, open(path.with_suffix(".idx"), "w") as idx:
        for name, label in samples:
            record = record_of({"image/encoded": Path(name).read_bytes(), "image/class/label": label})
            idx.write(f"{file.tell()} {len(record)}\n")
            file.write(record)


def webdataset(path: Path, samples: Sequence[tuple[str, int]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i, (name, label) in enumerate(samples):
            for ending, content in (("jpg", Path(name).read_bytes()), ("cls", str(label).encode())):
                member = tarfile.TarInfo(f"{i:08}.{ending}")
                member.size = len(content)
                tar.addfile(member, BytesIO(content))
    with open(path.with_suffix(".idx"), "w") as idx, tarfile.open(path) as tar:
        found = list(tar)
        idx.write(f"v1.2 {len(samples)}\n")
        for jpg, cls in (
            itertools.batched(found, 2) if sys.version_info >= (3, 12) else zip(*[iter(found)] * 2, strict=True)
        ):
            parts = (f"{m.name.rpartition('.')[2]} {m.offset_data} {m.size} {m.name}" for m in (jpg, cls))
            idx.write(" ".join(parts) + "\n")


def recordio(path: Path, samples: Sequence[tuple[str, int]]) -> None:
    records = [record_files.recordio_record(Path(name).read_bytes(), label) for name, label in samples]
    record_files.write_recordio(path, records, path.with_suffix(".idx"))


def lmdb(path: Path, samples: Sequence[tuple[str, int]]) -> None:
    entries = {
        b"%08d" % i: record_files.datum(Path(name).read_bytes(), label) for i, (name, label) in enumerate(samples)
    }
    record_files.write_lmdb(path, entries, 20)


def numpy_folder(path: Path, samples: Sequence[tuple[str, int]], copies: int) -> None:
    for i, (name, label) in enumerate(samples):
        (path / f"{label:04}").mkdir(parents=True, exist_ok=True)
        first = path / f"{label:04}" / f"{i:08}.npy"
        np.save(first, np.asarray(Image.open(name).convert("RGB")))
        for k in range(1, copies):
            first.with_name(f"{i:08}-{k}.npy").hardlink_to(first)


class Files:
    """The same files as a Python dataset."""

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        """Number of files."""
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[str, int]:
        """A path and a label."""
        return self.samples[index]


class Fetched:
    """The same files as DALI's parallel external source wants them: a call a sample, in worker processes."""

    def __init__(self, samples: Sequence[tuple[str, int]]) -> None:
        self.samples = samples
        self.order = np.random.default_rng(1).permutation(len(samples))

    def __call__(self, sample: Any) -> tuple[Any, Any]:
        """Encoded image and label."""
        path, label = self.samples[self.order[sample.idx_in_epoch % len(self.order)]]
        return np.fromfile(path, dtype=np.uint8), np.int32([label])


def packed(kind: str, folder: Path, samples: list[tuple[str, int]], copies: int) -> Source:
    """The samples in a format."""
    endings = {"tfrecord": ".tfrecord", "webdataset": ".tar", "recordio": ".rec", "lmdb": ""}
    if kind == "examples":
        return gpuaug.Examples(Files(samples * copies))
    if kind == "numpy":
        numpy_folder(folder / "numpy", samples, copies)
        return gpuaug.NumpyFolder(folder / "numpy")
    samples = samples * copies
    (folder / kind).mkdir()
    # DALI's MXNet reader wants a single index.
    count = 1 if kind == "recordio" else SHARDS
    for k in range(count):
        part = samples[len(samples) * k // count : len(samples) * (k + 1) // count]
        globals()[kind](folder / kind / f"{k}{endings[kind]}", part)
    index = folder / "index"
    if kind == "tfrecord":
        return gpuaug.TFRecord(folder / kind / "*.tfrecord", index_dir=index)
    if kind == "webdataset":
        return gpuaug.WebDataset(folder / kind / "*.tar", index_dir=index)
    if kind == "recordio":
        return gpuaug.RecordIO(folder / kind / "0.rec", index_dir=index)
    return gpuaug.LMDB(folder / kind / "*", index_dir=index)


# ---- raw DALI ------------------------------------------------------------------------------------------------------


def raw(
    kind: str, folder: Path, samples: list[tuple[str, int]], batch_size: int, threads: int, share: float
) -> Callable[[], Any]:
    """The pipeline people write by hand."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali import tfrecord as tfrec

    gpu = torch.cuda.is_available()
    shuffled: dict[str, Any] = {"random_shuffle": True, "initial_fill": 1024, "name": "reader"}
    paths = lambda ending: [str(folder / kind / f"{k}{ending}") for k in range(SHARDS)]  # noqa: E731

    @pipeline_def(
        batch_size=batch_size, num_threads=threads, device_id=0 if gpu else None, seed=1, py_num_workers=threads,
        py_start_method="spawn",
    )  # fmt: skip
    def pipeline() -> Any:
        if kind == "numpy":
            pixels = fn.readers.numpy(file_root=str(folder / "numpy"), file_filter="*.npy", **shuffled)
            return fn.random_resized_crop(pixels.gpu() if gpu else pixels, size=(SIZE, SIZE)), fn.constant(idata=0)
        if kind == "tfrecord":
            features = {
                "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
                "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            }
            read = fn.readers.tfrecord(path=paths(".tfrecord"), index_path=paths(".idx"), features=features, **shuffled)
            encoded, labels = read["image/encoded"], read["image/class/label"]
        elif kind == "webdataset":
            encoded, labels = fn.readers.webdataset(
                paths=paths(".tar"), index_paths=paths(".idx"), ext=["jpg", "cls"], **shuffled
            )
        elif kind == "recordio":
            one = str(folder / kind / "0")
            encoded, labels = fn.readers.mxnet(path=f"{one}.rec", index_path=f"{one}.idx", **shuffled)
        elif kind == "lmdb":
            encoded, labels = fn.readers.caffe(path=paths(""), **shuffled)
        elif kind == "examples":
            encoded, labels = fn.external_source(
                Fetched(samples), num_outputs=2, batch=False, parallel=True, dtype=[types.UINT8, types.INT32]
            )
        else:
            names, numbers = zip(*samples, strict=True)
            encoded, labels = fn.readers.file(files=list(names), labels=list(numbers), **shuffled)
        options = {"hw_decoder_load": share} if gpu else {}
        images = fn.decoders.image_random_crop(encoded, device="mixed" if gpu else "cpu", **options)
        return fn.resize(images, size=(SIZE, SIZE)), labels

    pipe = pipeline()
    pipe.build()
    return pipe.run


def batches(dm: gpuaug.ImageDataModule, device: torch.device) -> Iterator[Any]:
    loader = dm.setup_for(device).train_dataloader()  # once: setting up again would build another pipeline
    while True:
        yield from loader


# ---- many records --------------------------------------------------------------------------------------------------

START = """
import os, sys, time
begin = time.perf_counter()
import torch
import lightning.pytorch
import nvidia.dali.fn
imported = time.perf_counter()
import lightning_gpuaug as gpuaug
device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
source = gpuaug.TFRecord(sys.argv[1], label_offset=-128, index_dir=sys.argv[2])
dm = gpuaug.ImageDataModule(train=source, batch_size=256, image_size=32).setup_for(device)
assert len(source) == int(sys.argv[3])
next(iter(dm.train_dataloader()))
end = time.perf_counter()
resident = of_files = 0
for line in open("/proc/self/smaps"):
    words = line.split()
    if not words[0].endswith(":"):
        mapped = os.path.isfile(words[-1])
    elif words[0] == "Rss:":
        resident += int(words[1]) / 1024
        of_files += mapped * int(words[1]) / 1024
print(imported - begin, end - imported, resident, resident - of_files)
dm.teardown("bench")
"""


def write_tiny(folder: Path, labels: NDArray[np.integer[Any]], shards: int = SHARDS_OF_TINY) -> None:
    """Records of one 8 × 8 JPEG each, with labels 128..16,383, which are all two bytes long."""
    file = BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG")
    row = record_files.example({"image/class/label": 128, "image/encoded": file.getvalue()})
    at = row.index(record_files.varint(128), row.index(b"image/class/label") + 17)
    length = len(row).to_bytes(8, "little")
    head = length + masked_crcs(length)[0].to_bytes(4, "little")
    for k, part in enumerate(np.array_split(labels, shards)):
        table = np.tile(np.frombuffer(head + row + bytes(4), dtype=np.uint8), (len(part), 1))
        table[:, 12 + at], table[:, 13 + at] = part & 0x7F | 0x80, part >> 7
        start = torch.arange(len(part)) * table.shape[1] + 12
        crc = ops.crc32c(
            torch.from_numpy(table.reshape(-1)), start, torch.full_like(start, len(row)), threads=8
        ).numpy()
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        table[:, -4:] = masked.astype("<u4").view(np.uint8).reshape(-1, 4)
        table.tofile(folder / f"{k:04}.tfrecord")


def many(count: int, folder: Path) -> Iterator[list[Any]]:
    """Rows about an index of `count` records."""
    write_tiny(folder, 128 + np.arange(count) % 1000)
    begin = time.perf_counter()
    gpuaug.TFRecord(folder / "*.tfrecord", label_offset=-128, index_dir=folder / "index").check()
    seconds = time.perf_counter() - begin
    yield ["tfrecord", f"index {count:,} tiny records", count / seconds, "records/s", f"{seconds:.1f} s"]
    for shards, rows in (("*", count), ("0000", count // SHARDS_OF_TINY)):
        done = subprocess.run(
            [sys.executable, "-c", START, str(folder / f"{shards}.tfrecord"), str(folder / "index"), str(rows)],
            check=True, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path]).strip(os.pathsep)},
        )  # fmt: skip
        imports, start, resident, own = map(float, done.stdout.split())
        what = f"{rows:,} records indexed before"
        yield ["tfrecord", f"start to first batch, {what}", start, "s", f"imports before: {imports:.1f} s"]
        yield ["tfrecord", f"resident memory, {what}", resident, "MiB", f"without what ranks share: {own:,.0f} MiB"]


# ---- the table -----------------------------------------------------------------------------------------------------


def compare(kind: str, folder: Path, samples: list[tuple[str, int]], args: argparse.Namespace) -> Iterator[list[Any]]:
    """Rows about a format."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if kind == "folder":
        source: Source = gpuaug.ImageFolder(args.folder)
    else:
        source = packed(kind, folder, samples[: args.numpy_images] if kind == "numpy" else samples, args.copies)
        begin = time.perf_counter()
        source.check()
        seconds = time.perf_counter() - begin
        if kind not in ("examples", "numpy"):
            yield [kind, "index", len(source) / seconds, "records/s", f"{seconds:.2f} s"]
    for threads in args.threads:
        found: dict[str, list[float]] = {"raw": [], "ours": []}
        for _ in range(args.rounds):
            step = raw(kind, folder, samples, args.batch_size, threads, args.share)
            found["raw"].append(images_per_second(step, args.batch_size, args.seconds))
            del step
            gc.collect()
            dm = gpuaug.ImageDataModule(
                train=source,
                batch_size=args.batch_size,
                num_threads=threads,
                hw_decoder_load=args.share,
                dtype="bfloat16",
            )
            stream = batches(dm, device)
            found["ours"].append(images_per_second(lambda: next(stream), args.batch_size, args.seconds))  # noqa: B023
            stream.close()
            dm.teardown("bench")
        theirs, own = (statistics.median(found[name]) for name in ("raw", "ours"))
        yield [kind, f"raw DALI, {threads} threads", theirs, "img/s", "1"]
        yield [kind, f"lightning_gpuaug, {threads} threads", own, "img/s", f"{own / theirs:.3f} of raw DALI"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="folder of class folders; made-up JPEGs if left out")
    parser.add_argument("--images", type=int, default=4096, help="of the folder, packed into each format")
    parser.add_argument("--numpy-images", type=int, default=1024, help="of them, decoded")
    parser.add_argument("--copies", type=int, default=8, help="of each image, in all formats but the folder")
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--records", type=int, default=0, help="also index so many tiny records")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, nargs="+", default=[4])
    parser.add_argument("--share", type=float, default=1.0, help="of JPEGs for the hardware decoder")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", help="where to pack (default: the folder for temporary files)")
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    rows: list[list[Any]] = []

    def take(row: list[Any]) -> None:
        rows.append(row)
        print(*row, flush=True)

    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        made: Any = None
        if args.formats and args.folder is None:
            made = gpuaug.Synthetic(length=args.images)
            args.folder = str(Path(made.paths[0]).parent.parent)
        if args.formats:
            folder = gpuaug.ImageFolder(args.folder)
            chosen = np.random.default_rng(0).permutation(len(folder))[: args.images].tolist()
            samples = [(folder.paths[i], int(folder.targets[i])) for i in chosen]
            for kind in args.formats:
                for row in compare(kind, Path(scratch), samples, args):
                    take(row)
        if args.records:
            tiny = Path(scratch) / "tiny"
            tiny.mkdir()
            for row in many(args.records, tiny):
                take(row)
    columns = ["format", "what", "value", "unit", "ratio or time"]
    publish(f"Record formats, batch {args.batch_size}, RandomResizedCrop {SIZE}", columns, rows, args.json)


if __name__ == "__main__":
    main()
