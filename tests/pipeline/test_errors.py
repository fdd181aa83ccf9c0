"""What DALI says went wrong, in one line: the messages are DALI's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lightning_gpuaug import TrainRecipe
from lightning_gpuaug.pipeline import (
    DecodeError,
    DecodePipeline,
    Decoding,
    FileError,
    FilePipeline,
    Request,
    reason_of,
)
from lightning_gpuaug.sources.encoded import fixed_paths
from tests.images import write_images


def decode_error(path: Path, height: int, width: int) -> DecodeError:
    size = np.array([[height, width]], dtype=np.int32)
    pipe = DecodePipeline(Decoding(TrainRecipe(), 8, batch_size=1, device="cpu", device_id=None, num_threads=1))
    for _ in range(pipe.decoding.prefetch):
        pipe.start(Request(fixed_paths([str(path)]), np.zeros_like(size), size))
    with pytest.raises(DecodeError) as caught:
        pipe.pop()
    pipe.close()
    return caught.value


def test_of_a_window_outside_of_the_image(tmp_path: Path) -> None:
    (path,) = write_images(tmp_path, 1)
    assert reason_of(decode_error(path, 99, 10)) == (
        "The cropping window [0..99, 0..10] is not valid for image dimensions [12 x 10]"
    )


def test_of_a_file_cut_short(tmp_path: Path) -> None:
    (path,) = write_images(tmp_path, 1, size=(200, 100))
    encoded = path.read_bytes()
    path.write_bytes(encoded[: len(encoded) * 2 // 3])
    assert reason_of(decode_error(path, 200, 100)) == "Failed to decode sample #0"


def test_of_a_missing_file(tmp_path: Path) -> None:
    lost = tmp_path / "lost.jpg"
    with pytest.raises(FileError, match=r"Could not open file .*/lost\.jpg$"):
        FilePipeline(threads=1)(fixed_paths([str(lost)]))
    assert reason_of(decode_error(lost, 12, 10)).endswith(f"Could not open file {lost}")


def test_of_errors_that_do_not_come_from_an_operator() -> None:
    assert reason_of(RuntimeError("CUDA allocation failed\nCurrent pipeline object is no longer valid.")) == (
        "CUDA allocation failed"
    )
    assert reason_of(RuntimeError("")) == "no reason given"
