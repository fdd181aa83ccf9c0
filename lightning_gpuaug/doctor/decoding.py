"""A few seconds of decoding, in a process of its own: a broken DALI or driver must not take the doctor with it."""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_gpuaug.doctor.finding import Finding, note, ok, problem
from lightning_gpuaug.sources.names import is_utf8

_BATCH, _SIZE = 64, 224
_START_UP = 120.0
"""Seconds that imports, CUDA and the first batches may take."""


@dataclass(frozen=True)
class Decoded:
    """What the test has measured, or why not.

    Attributes:
        device: "cpu" or "cuda".
        img_per_s: images decoded, cropped and resized a second; None if it failed.
        bad: files among them that cannot be decoded.
        error: the last line of what went wrong.
    """

    device: str
    img_per_s: float | None
    bad: tuple[str, ...] = ()
    error: str = ""


def decode_in_a_process(paths: Sequence[str], device: str, seconds: float) -> Decoded:
    """Run the test.

    Args:
        paths: images to decode, again and again; made-up JPEGs if empty. Names that are not UTF-8 are left out: no list
            can hold them.
        device: "cpu" or "cuda".
        seconds: how long to measure.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", __name__, "--device", device, "--seconds", str(seconds)]
        rows = [[os.path.abspath(path)] for path in paths if is_utf8(path)]
        if rows:
            listing = Path(folder) / "list.csv"  # not a text: a line break in a name would end its line
            with listing.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["path"], *rows])
            command += ["--list", str(listing)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + _START_UP)
        except subprocess.TimeoutExpired:
            return Decoded(device, None, error=f"no result within {seconds + _START_UP:.0f} s")
    if done.returncode == 0:
        found = json.loads(done.stdout.splitlines()[-1])
        return Decoded(device, found["img_per_s"], tuple(found["bad"]))
    if done.returncode < 0:
        return Decoded(device, None, error=f"killed by {signal.Signals(-done.returncode).name}")
    return Decoded(device, None, error=next(iter(reversed(done.stderr.strip().splitlines())), "no message"))


def check_decoding(found: Decoded) -> Finding:
    """The test as a finding."""
    check = f"decoding on the {'CPU' if found.device == 'cpu' else 'GPU'}"
    if found.img_per_s is None:
        advice = "run gpuaug demo to see it in full; the findings above may say why"
        return problem(check, f"failed: {found.error}", advice)
    rate = f"{found.img_per_s:,.0f} images/s (RandomResizedCrop {_SIZE}, batch {_BATCH})"
    if found.bad:
        return note(
            check,
            f"{rate}; {len(found.bad)} of the files cannot be decoded, such as {found.bad[0]}",
            'repair or remove them, or train with data.on_bad_image="substitute"',
        )
    return ok(check, rate)


def _measure(listing: str | None, device: str, seconds: float) -> dict[str, object]:
    """What a training data module does, without importing Lightning."""
    from lightning_gpuaug.bench.timing import synchronize
    from lightning_gpuaug.devices import torch_device
    from lightning_gpuaug.finish import Output
    from lightning_gpuaug.hw_decoder import threads_enough
    from lightning_gpuaug.loader import Loader
    from lightning_gpuaug.pipeline import Decoding
    from lightning_gpuaug.plan import Plan
    from lightning_gpuaug.recipe import TrainRecipe
    from lightning_gpuaug.sources import FileList, Synthetic

    source = FileList(listing, labels="none") if listing is not None else Synthetic(length=4 * _BATCH)
    there = torch_device(device)
    gpu = there.type == "cuda"
    threads = min(threads_enough(there.index) if gpu else 16, len(os.sched_getaffinity(0)))
    plan = Plan(len(source), min(_BATCH, len(source)), shuffle=True, drop_last=True)
    # One row more than the smallest batch: see plan.py on batches of one.
    decoding = Decoding(TrainRecipe(), _SIZE, max(2, plan.batch_size), "gpu" if gpu else "cpu", there.index, threads)
    loader = Loader(source, plan, decoding, Output(there), on_bad_image="substitute")
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in range(4):
        next(batches)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        _, targets = next(batches)
        count += len(targets)
    synchronize()
    rate = count / (time.perf_counter() - begin)
    bad = sorted(source.paths[index] for index in loader.bad.reasons)
    loader.close()
    return {"img_per_s": rate, "bad": bad}


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--list", help="CSV file of images; made-up JPEGs if left out")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(json.dumps(_measure(options.list, options.device, options.seconds)))


if __name__ == "__main__":
    main()
