"""What fits together, for machines that are not here."""

from __future__ import annotations

import pytest

from lightning_gpuaug.doctor.cards import Card, Driver
from lightning_gpuaug.doctor.finding import Finding
from lightning_gpuaug.doctor.software import (
    check_dali,
    check_driver,
    check_jpeg,
    check_native,
    check_queues,
    check_torch,
)

NONE = Driver(trouble="NVML Shared Library Not Found")
H200 = Driver("580.95.05", (13, 0), (Card("NVIDIA H200", (9, 0), jpeg_engine=True),) * 2)
OLD = Driver("535.1", (12, 2), (Card("NVIDIA L4", (8, 9)),))
INFO = {
    "cpu_library": "/x.so", "cuda_library": "/y.so", "cpu_missing": None, "cuda_missing": None, "compiler": "GNU 12",
    "torch_target": "2.11", "cuda": "13.0", "cuda_archs": "75 80 90 (PTX 90)",
}  # fmt: skip


def test_no_gpu_is_no_problem() -> None:
    assert check_driver(NONE).level == "note"
    assert check_torch("2.14", None, False, 0, NONE).level == "ok"
    assert check_torch("2.14", "13.0", False, 0, NONE).level == "ok"
    assert check_dali({"nvidia-dali-cuda130": "2.4.0"}, NONE).level == "ok"
    assert check_native(INFO | {"cuda_library": None, "cuda_missing": "no nvcc"}, NONE).level == "ok"
    assert list(check_jpeg(NONE)) == []
    assert list(check_queues(8, 32, NONE)) == []


def test_a_driver_that_does_not_answer_is_a_problem() -> None:
    found = check_driver(Driver(trouble="Driver/library version mismatch", traces=True))
    assert found.level == "problem"
    assert "mismatch" in found.found
    assert "reboot" in found.advice
    assert check_driver(Driver("580.1", (13, 0))).level == "problem"  # no GPU


def test_cards_are_counted_and_division_is_told() -> None:
    assert check_driver(H200).found == "driver 580.95.05 (CUDA 13.0): 2 × NVIDIA H200"
    divided = Driver("580.1", (13, 0), (Card("NVIDIA H100", (9, 0), in_mig=True),))
    assert check_driver(divided).level == "note"


@pytest.mark.parametrize(
    ("built_for", "visible", "driver", "level", "word"),
    [
        (None, None, H200, "problem", "whl/cu130"),
        (None, None, OLD, "problem", "whl/cu126"),
        ("13.0", None, OLD, "problem", "update the driver"),
        ("12.6", "-1", OLD, "note", "unset it"),
        ("12.6", "", OLD, "note", "unset it"),
        ("12.6", "GPU-wrong", OLD, "problem", "'GPU-wrong'"),
        ("12.6", None, OLD, "problem", "torch.cuda.init()"),
    ],
)
def test_a_gpu_that_torch_does_not_use(
    built_for: str | None, visible: str | None, driver: Driver, level: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = check_torch("2.14", built_for, False, 0, driver)
    assert (found.level, word in found.advice) == (level, True), found


def test_torch_that_uses_some_of_the_gpus() -> None:
    assert check_torch("2.14", "13.0", True, 2, H200).level == "ok"
    assert check_torch("2.14", "13.0", True, 1, H200).level == "note"


@pytest.mark.parametrize(
    ("installed", "driver", "level", "word"),
    [
        ({}, NONE, "problem", "pip install nvidia-dali-cuda120"),
        ({}, H200, "problem", "pip install nvidia-dali-cuda130"),
        ({"nvidia-dali-cuda120": "2.4.0"}, H200, "ok", ""),  # an older flavour runs on a newer driver
        ({"nvidia-dali-cuda130": "2.4.0"}, OLD, "problem", "pip install nvidia-dali-cuda120"),
        ({"nvidia-dali-cuda120": "2.4.0", "nvidia-dali-cuda130": "2.4.0"}, H200, "problem", "pip uninstall -y"),
        ({"nvidia-dali-cuda120": "1.53.0"}, H200, "problem", ">=2.4,<3"),
        ({"nvidia-dali-cuda120": "2.10.1"}, H200, "ok", ""),
        ({"nvidia-dali-cuda120": "3.0.0"}, H200, "problem", ">=2.4,<3"),
    ],
)
def test_dali(installed: dict[str, str], driver: Driver, level: str, word: str) -> None:
    found = check_dali(installed, driver)
    assert (found.level, word in found.advice) == (level, True), found


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        ("90 (PTX 90)", (9, 0), True),
        ("90a (PTX 90a)", (9, 0), True),
        ("75 80 (PTX 80)", (8, 6), True),  # machine code of a lower minor version
        ("86 (PTX 86)", (8, 0), False),
        ("75 80 (PTX 80)", (12, 0), True),  # PTX of an older one
        ("100 120 (PTX 120)", (9, 0), False),
        ("90 (PTX 90)", (7, 5), False),
    ],
)
def test_native_code_for_the_gpu(archs: str, capability: tuple[int, int], runs: bool) -> None:
    driver = Driver("580.1", (13, 0), (Card("card", capability),))
    found = check_native(INFO | {"cuda_archs": archs}, driver)
    assert found.level == ("ok" if runs else "problem")
    assert runs or f"GPUAUG_CUDA_ARCHS={capability[0]}{capability[1]}" in found.advice


def test_native_libraries_that_are_missing() -> None:
    assert check_native(INFO | {"cpu_library": None, "cpu_missing": "not built"}, NONE).level == "problem"
    found = check_native(INFO | {"cuda_library": None, "cuda_missing": "no nvcc"}, H200)
    assert found.level == "problem"
    assert "no nvcc" in found.found


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


def test_jpeg_engine_and_queues() -> None:
    assert only(list(check_jpeg(H200))).level == "ok"
    assert only(list(check_jpeg(OLD))).level == "note"
    assert only(list(check_queues(32, 32, H200))).level == "ok"
    few = only(list(check_queues(1, 32, H200)))
    assert few.level == "problem"
    assert "CUDA_DEVICE_MAX_CONNECTIONS=32" in few.advice
