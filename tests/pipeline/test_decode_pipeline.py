"""Images come out as they were asked for, wherever in memory they lie, and nothing else is taken for them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_gpuaug import EvalRecipe, TrainRecipe
from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request
from lightning_gpuaug.sources.encoded import Encoded, fixed_paths
from tests.images import write_images
from tests.record_files import jpeg

WHOLE = np.array([[12, 10]] * 3, dtype=np.int32)


def pipeline(feed: str, **options: object) -> DecodePipeline:
    decoding = Decoding(TrainRecipe(), 8, 3, "cpu", None, 1, prefetch=1, feed=feed, **options)  # type: ignore[arg-type]
    return DecodePipeline(decoding)


def decoded(pipe: DecodePipeline, images: object, size: np.ndarray = WHOLE) -> torch.Tensor:
    pipe.start(Request(images, np.zeros_like(size), size))  # type: ignore[arg-type]
    return pipe.pop().images.clone()


@pytest.mark.parametrize("gap", [0, 5, 2**31], ids=["end_to_end", "gaps", "beyond_32_bits"])
def test_encoded_images_are_cut_out_of_their_buffer(tmp_path: Path, gap: int) -> None:
    contents = [jpeg(i) for i in range(3)]
    length = np.array([len(content) for content in contents])
    start = np.array([gap, gap + length[0], 2 * gap + length[0] + length[1]])
    data = torch.empty(int(start[-1] + length[-1]) + gap % 7, dtype=torch.uint8)  # untouched memory costs none
    for at, content in zip(start.tolist(), contents, strict=True):
        data[at : at + len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    paths = fixed_paths([str(path) for path in write_images(tmp_path, 3)])
    expected = decoded(pipeline("paths"), paths)
    pipe = pipeline("bytes")
    assert torch.equal(decoded(pipe, Encoded(data, start, length)), expected)
    assert torch.equal(decoded(pipe, Encoded(data, start, length).row(2), WHOLE[:1]), expected[2:])


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "TIFF", "JPEG2000", "PPM"])
def test_an_image_in_memory_is_what_it_is_in_a_file(tmp_path: Path, kind: str) -> None:
    """To its last byte: what lies behind it in the buffer does not make up for bytes that are missing."""
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, kind)
    data = torch.frombuffer(bytearray(file.getvalue() + bytes(16)), dtype=torch.uint8)
    for missing in range(9):
        length = len(file.getvalue()) - missing
        (tmp_path / "image").write_bytes(file.getvalue()[:length])
        in_a_file, in_memory = (
            decoded_or_refused(feed, images)
            for feed, images in (
                ("paths", fixed_paths([str(tmp_path / "image")])),
                ("bytes", Encoded(data, np.array([0]), np.array([length]))),
            )
        )
        assert in_a_file == in_memory, f"without the last {missing} bytes"
        assert missing or in_a_file != "refused"


def decoded_or_refused(feed: str, images: object) -> object:
    try:
        return decoded(pipeline(feed), images, WHOLE[:1]).tolist()
    except DecodeError:
        return "refused"


def test_an_image_without_bytes_fails_its_batch() -> None:
    content = torch.frombuffer(bytearray(jpeg(0)), dtype=torch.uint8)
    nothing = Encoded(content, np.array([0, len(content), len(content)]), np.array([len(content), 0, 0]))
    with pytest.raises(DecodeError):
        decoded(pipeline("bytes"), nothing)
    with pytest.raises(DecodeError):
        decoded(pipeline("bytes"), Encoded(content[:0], np.zeros(3, np.int64), np.zeros(3, np.int64)))


def test_a_range_that_is_not_in_the_buffer_is_never_read() -> None:
    content = torch.frombuffer(bytearray(jpeg(0)), dtype=torch.uint8)
    beyond = Encoded(content, np.array([1]), np.array([len(content)]))
    with pytest.raises(ValueError, match=rf"image 0 must lie in 0\.\.{len(content)}, .* got 1\.\.{len(content) + 1}"):
        decoded(pipeline("bytes"), beyond, WHOLE[:1])


@pytest.mark.parametrize("recipe", [TrainRecipe(), EvalRecipe()], ids=["train", "eval"])
def test_another_batch_is_not_taken_for_the_one_that_is_due(tmp_path: Path, recipe: TrainRecipe | EvalRecipe) -> None:
    paths = fixed_paths([str(path) for path in write_images(tmp_path, 3)])
    part = (np.zeros((3, 2), np.float32), WHOLE.astype(np.float32)) if isinstance(recipe, EvalRecipe) else None
    pipe = DecodePipeline(Decoding(recipe, 8, 3, "cpu", None, 1))
    for _ in range(2):
        pipe.start(Request(paths, np.zeros_like(WHOLE), WHOLE, part))
    assert pipe.pop().images.shape == (3, 8, 8, 3)
    pipe.start(Request(paths, np.zeros_like(WHOLE), WHOLE, part))
    pipe._inside.rotate()
    with pytest.raises(RuntimeError, match=r"DALI returned batch \[1, 1, 1\] where batch 2 of 3 rows was due"):
        pipe.pop()
