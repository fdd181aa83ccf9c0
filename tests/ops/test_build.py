"""Configuring the native build: toolkits that are absent or of another version, and which cards the default covers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake"),
    pytest.mark.skipif(torch.version.cuda is None, reason="needs a torch that is built for CUDA"),
]


def configure(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Configure as a wheel is (nothing is written outside tmp_path)."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GPUAUG_")}
    command = ["cmake", "-S", str(REPOSITORY / "csrc"), "-B", str(tmp_path / "build"), "-DSKBUILD_STATE=wheel"]
    return subprocess.run(
        [*command, f"-DPython_EXECUTABLE={sys.executable}"],
        env=inherited | environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def fake_nvcc(folder: Path, text: str) -> str:
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return str(path)


def test_a_toolkit_of_another_major_version_is_named_with_both_versions(tmp_path):
    nvcc = fake_nvcc(tmp_path, "Cuda compilation tools, release 9.2, V9.2.148")
    message = rf"{nvcc} is CUDA 9\.2, torch {re.escape(torch.__version__)} is built for CUDA {torch.version.cuda}"
    done = configure(tmp_path, CUDACXX=nvcc)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(message, done.stdout)) == 1
    assert "CUDA kernels: not built" in done.stdout
    strict = configure(tmp_path, CUDACXX=nvcc, GPUAUG_CUDA="1")
    assert strict.returncode != 0
    assert re.search(rf"GPUAUG_CUDA=1, but\s+{message}", re.sub(r"\s+", " ", strict.stderr))


def test_a_toolkit_that_does_not_work(tmp_path):
    nvcc = fake_nvcc(tmp_path, "no idea")
    done = configure(tmp_path, CUDACXX=nvcc)
    assert done.returncode == 0, done.stderr
    assert "CUDA kernels: not built (GPUAUG_CUDA=auto) no working nvcc was found" in done.stdout
    assert configure(tmp_path, CUDACXX=nvcc, GPUAUG_CUDA="1").returncode != 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_without_a_gpu_and_an_arch_list_all_supported_cards_are_covered(tmp_path):
    done = configure(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    (line,) = re.findall(r"CUDA kernels: nvcc .*archs (.*)", done.stdout)
    # Turing, Ampere, Ada, Hopper, Blackwell, and PTX (no "-real") for what comes after
    assert line.split(";") == ["75-real", "80-real", "86-real", "89-real", "90-real", "100-real", "120"]


def test_a_bad_arch_list_is_an_error_before_anything_is_compiled(tmp_path):
    done = configure(tmp_path, GPUAUG_CUDA_ARCHS="hopper")
    assert done.returncode != 0
    assert "GPUAUG_CUDA_ARCHS must be compute capabilities such as '90'" in re.sub(r"\s+", " ", done.stderr)
