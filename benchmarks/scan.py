"""Images a second of `gpuaug scan` against loops over Pillow, in one run.

    python -m benchmarks.scan --data /data/imagenet/train

The loops are what people write: `Image.open(path).verify()`, which reads a JPEG's header and no more, and
`Image.open(path).load()`, which decodes. Both run in one process and in as many as the scan uses; what each of them
finds in a file that was cut in half and one that was overwritten in its middle is in the table. All are measured in
turns, `--rounds` times, on files that have been read before (the page cache); the medians count. The rate per
CPU second is for machines that are shared; it includes the start of the processes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image

import lightning_gpuaug as gpuaug
from lightning_gpuaug.tools import workers
from lightning_gpuaug.tools.contents import contents_of
from lightning_gpuaug.tools.scan import scan_images


def verify(path: str) -> str | None:
    try:
        with Image.open(path) as image:
            image.verify()
    except Exception as error:
        return str(error)
    return None


def load(path: str) -> str | None:
    try:
        with Image.open(path) as image:
            image.load()
    except Exception as error:
        return str(error)
    return None


def pillow(check: Callable[[str], str | None], processes: int) -> Callable[[str, list[str]], int]:
    """Number of bad files that `check` finds."""

    def run(root: str, paths: list[str]) -> int:
        if processes == 1:
            return sum(check(path) is not None for path in paths)
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            return sum(found is not None for found in pool.imap_unordered(check, paths, chunksize=64))

    return run


def ours(processes: int, **options: bool) -> Callable[[str, list[str]], int]:
    def run(root: str, paths: list[str]) -> int:
        return len(scan_images(contents_of(root), processes=processes, **options).problems)

    return run


def damaged(folder: Path, source: str) -> str:
    """A folder with one JPEG cut in half and one overwritten in its middle."""
    data = Path(source).read_bytes()
    middle = len(data) // 2
    (folder / "a").mkdir()
    (folder / "a/cut.jpg").write_bytes(data[:middle])
    (folder / "a/overwritten.jpg").write_bytes(data[:middle] + bytes(4096) + data[middle + 4096 :])
    return str(folder)


def cpu_seconds() -> float:
    """Of this process and of those that it has made and that have ended, their start included."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders; made-up JPEGs (500×375) if left out")
    parser.add_argument("--images", type=int, default=16384, help="made-up files, of 256 images (default: %(default)s)")
    parser.add_argument("--slow-images", type=int, default=512, help="the same for what decodes (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=workers.cores())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the table here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, few_root = args.data, args.data
        if root is None:
            images = list(gpuaug.Synthetic(length=256, cache_dir=folder).paths)
            root = linked(Path(folder, "all"), images, args.images)
            few_root = linked(Path(folder, "few"), images, args.slow_images)
        compare(args, root, few_root)


def linked(root: Path, images: list[str], count: int) -> str:
    """A class folder of `count` names for the images."""
    (root / "a").mkdir(parents=True)
    for i in range(count):
        os.link(images[i % len(images)], root / f"a/{i:06d}.jpg")
    return str(root)


def compare(args: argparse.Namespace, root: str, few_root: str) -> None:
    from benchmarks.report import publish  # with torch, which the processes that are started here need not import

    paths, few_paths = list(gpuaug.ImageFolder(root).paths), list(gpuaug.ImageFolder(few_root).paths)
    for path in paths:  # into the page cache
        Path(path).read_bytes()
    many = args.processes
    runs: list[tuple[str, int, bool, Callable[[str, list[str]], int]]] = [
        ("Pillow verify()", 1, False, pillow(verify, 1)),
        ("Pillow verify()", many, False, pillow(verify, many)),
        ("Pillow load()", 1, True, pillow(load, 1)),
        ("Pillow load()", many, True, pillow(load, many)),
        ("gpuaug scan", 1, False, ours(1)),
        ("gpuaug scan", many, False, ours(many)),
        ("gpuaug scan --duplicates", many, False, ours(many, duplicates=True)),
        ("gpuaug scan --decode", many, True, ours(many, decode=True)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        bad = damaged(Path(folder), paths[0])
        bad_paths = [f"{bad}/a/cut.jpg", f"{bad}/a/overwritten.jpg"]
        found = [run(bad, bad_paths) for _, _, _, run in runs]
    rates: list[list[float]] = [[] for _ in runs]
    of_cpu: list[list[float]] = [[] for _ in runs]
    for _ in range(args.rounds):
        for i, (_, _, slow, run) in enumerate(runs):
            begin, cpu = time.perf_counter(), cpu_seconds()
            problems = run(few_root, few_paths) if slow else run(root, paths)
            count = len(few_paths) if slow else len(paths)
            rates[i].append(count / (time.perf_counter() - begin))
            of_cpu[i].append(count / (cpu_seconds() - cpu))
            assert problems == 0 or args.data is not None
    rows = [
        [name, processes, statistics.median(rate), statistics.median(cpu_rate), f"{bad_found} of 2"]
        for (name, processes, _, _), rate, cpu_rate, bad_found in zip(runs, rates, of_cpu, found, strict=True)
    ]
    publish(
        "Checking images", ["what", "processes", "images/s", "per CPU second", "damaged files found"], rows, args.json
    )


if __name__ == "__main__":
    main()
