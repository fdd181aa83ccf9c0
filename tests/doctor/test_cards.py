"""NVML's answers, from a library that is not NVIDIA's."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gpuaug.doctor import cards


class NVMLError(Exception):
    pass


def fake(**answers: Any) -> SimpleNamespace:
    """A pynvml with one H200; `answers` replace functions, an exception is raised instead."""
    given: dict[str, Any] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlSystemGetCudaDriverVersion_v2": 13010,
        "nvmlSystemGetDriverVersion": b"580.95.05",
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetMigMode": NVMLError("Not Supported"),
    } | answers

    def function(answer: Any) -> Any:
        def call(*_: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    functions = {name: function(answer) for name, answer in given.items()}
    return SimpleNamespace(NVMLError=NVMLError, NVML_DEVICE_MIG_ENABLE=1, **functions)


def test_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake())
    found = cards.driver()
    assert (found.version, found.cuda) == ("580.95.05", (13, 1))
    assert found.cards == (cards.Card("NVIDIA H200", (9, 0), jpeg_engine=True, in_mig=False),)


def test_a_divided_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetMigMode=(1, 1)))
    assert cards.driver().cards[0].in_mig


@pytest.mark.parametrize("traces", [False, True])
def test_no_driver(traces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlInit=NVMLError("Library Not Found")))
    monkeypatch.setattr(cards, "_traces", lambda: traces)
    found = cards.driver()
    assert (found.version, found.cards, found.trouble, found.traces) == (None, (), "Library Not Found", traces)


def test_a_driver_that_fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake(nvmlDeviceGetName=NVMLError("GPU is lost")))
    found = cards.driver()
    assert found.version is None
    assert found.traces
    assert found.trouble == "GPU is lost"
