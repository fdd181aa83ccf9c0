"""How well an epoch is shuffled: ours, DALI's reader with its buffer, and what chance alone would give, in one run.

    python -m benchmarks.shuffling --records 131072 --classes 256 --shards 64

TFRecord shards are written in the order of their classes, as folders are usually packed. Of the batches of an epoch two
things are told: how many classes a batch holds, and how far the order still follows the files (the rank correlation of
position and class: 1 as written, 0 at random). DALI's `fn.readers.tfrecord` shuffles within a buffer of `initial_fill`
records (`random_shuffle`); its second epoch is measured, when the buffer is full.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import lightning_gpuaug as gpuaug
from benchmarks.formats import write_tiny
from benchmarks.report import publish

FIRST = 128
"""The first class: labels are two bytes long."""


def of_dali(folder: Path, records: int, batch_size: int, initial_fill: int) -> NDArray[np.int64]:
    """Classes of the second epoch's records, in the order in which DALI's reader gives them."""
    from nvidia.dali import fn, pipeline_def
    from nvidia.dali import tfrecord as tfrec

    paths = sorted(map(str, folder.glob("*.tfrecord")))

    @pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, seed=1)
    def pipeline() -> Any:
        features = {"image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1)}
        indexes = [path.replace(".tfrecord", ".idx") for path in paths]
        read = fn.readers.tfrecord(
            path=paths, index_path=indexes, features=features, random_shuffle=True, initial_fill=initial_fill
        )
        return read["image/class/label"]

    pipe = pipeline()
    pipe.build()
    steps = records // batch_size
    batches = [pipe.run()[0].as_array()[:, 0] for _ in range(2 * steps)]
    return np.concatenate(batches[steps:]).astype(np.int64) - FIRST


def of_ours(folder: Path, batch_size: int) -> NDArray[np.int64]:
    """Classes of an epoch's records, in the order of the plan that the loader follows."""
    source = gpuaug.TFRecord(folder / "*.tfrecord", label_offset=-FIRST, index_dir=folder / "index")
    dm = gpuaug.ImageDataModule(train=source, batch_size=batch_size, seed=1).setup_for("cpu")
    classes: NDArray[np.int64] = np.asarray(source.targets)[dm.plan("train").order(1)]
    return classes


def row(name: str, classes: NDArray[np.int64], batch_size: int) -> list[Any]:
    """Classes a batch, and the rank correlation of place and class."""
    batches = classes[: len(classes) // batch_size * batch_size].reshape(-1, batch_size)
    distinct = [len(np.unique(batch)) for batch in batches]
    correlation = float(np.corrcoef(np.arange(len(classes)), classes)[0, 1])
    return [name, float(np.mean(distinct)), int(np.min(distinct)), correlation]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=131072)
    parser.add_argument("--classes", type=int, default=256)
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--initial-fill", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        labels = FIRST + np.arange(args.records) * args.classes // args.records
        write_tiny(folder, labels, args.shards)
        for path in folder.glob("*.tfrecord"):
            content = path.read_bytes()
            size = int.from_bytes(content[:8], "little") + 16  # of every record
            path.with_suffix(".idx").write_text("".join(f"{at} {size}\n" for at in range(0, len(content), size)))
        chance = np.random.default_rng(1).permutation(labels - FIRST)
        orders = {"chance": chance, "lightning_gpuaug": of_ours(folder, args.batch_size)}
        for fill in args.initial_fill:
            orders[f"DALI, buffer of {fill:,}"] = of_dali(folder, args.records, args.batch_size, fill)
    rows = [row(name, classes, args.batch_size) for name, classes in orders.items()]
    columns = ["order", "classes a batch", "fewest", "correlation with the files"]
    publish(f"An epoch of {args.records:,} records of {args.classes} classes in order", columns, rows, args.json)


if __name__ == "__main__":
    main()
