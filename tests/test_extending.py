"""The worked example of docs/extending.md builds and does what the page says."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLE = REPOSITORY / "docs" / "extending_example"
PAGE = (REPOSITORY / "docs" / "extending.md").read_text()

RUN = """
import sys, numpy as np, torch
torch.ops.load_library(sys.argv[1])
data = torch.from_numpy(np.fromfile(sys.argv[2], dtype=np.uint8))
try:
    np.save(sys.argv[3], torch.ops.example.decode_jpeg(data).numpy())
    torch.ops.example.decode_jpeg(data[:20])
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.parametrize("with_jpeg", ["ON", "OFF"])
def test_the_example_builds_with_and_without_its_library(tmp_path, with_jpeg):
    build = tmp_path / "build"
    options = (f"Python_EXECUTABLE={sys.executable}", f"WITH_JPEG={with_jpeg}")
    for command in (
        ["cmake", "-S", str(EXAMPLE), "-B", str(build), *(f"-D{o}" for o in options)],
        ["cmake", "--build", str(build)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
    cache = (build / "CMakeCache.txt").read_text()
    found = with_jpeg == "ON" and re.search(r"^JPEG_INCLUDE_DIR:PATH=/", cache, re.MULTILINE) is not None
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    (tmp_path / "x.jpg").write_bytes(buffer.getvalue())
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(build / "jpeg_op.so"), str(tmp_path / "x.jpg"), str(tmp_path / "x.npy")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    if not found:
        assert done.stdout.strip() == "decode_jpeg: built without libjpeg (CMake did not find it)"
        return
    expected = np.asarray(Image.open(io.BytesIO(buffer.getvalue()))).astype(int)
    assert np.abs(np.load(tmp_path / "x.npy") - expected).max() <= 2  # two versions of one library
    assert done.stdout.startswith("decode_jpeg: ")  # a cut file is an exception, not the end of the process


def test_every_file_that_the_page_names_is_there():
    named = set(re.findall(r"`((?:csrc|lightning_gpuaug|tests|benchmarks|docs)/[\w./{},]+)`", PAGE))
    assert len(named) > 10
    for name in named:
        match = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
        names = [match[1] + part + match[3] for part in match[2].split(",")] if match else [name]
        for path in names:
            assert (REPOSITORY / path).exists(), path


def test_the_torch_target_on_the_page_is_the_one_that_is_built():
    cmake = (REPOSITORY / "csrc" / "CMakeLists.txt").read_text()
    number = re.search(r'GPUAUG_TORCH_TARGET_NUMBER "(0x\w+)"', cmake)[1]
    assert number in PAGE
    assert number in (EXAMPLE / "CMakeLists.txt").read_text()
    assert int(torch.__version__.split(".")[1]) >= int(re.search(r'GPUAUG_TORCH_TARGET "2\.(\d+)"', cmake)[1])
