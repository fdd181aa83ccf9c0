"""Ranges of the loader in traces of the torch profiler, and what they cost where nobody looks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import profiler
from torch.profiler import ProfilerActivity, profile

from lightning_gpuaug import ImageDataModule, ranges
from lightning_gpuaug.loader import Loader
from lightning_gpuaug.ranges import ranged
from tests.images import numbered

STAGES = {"gpuaug.prepare", "gpuaug.read", "gpuaug.decode", "gpuaug.augment"}


def traced(folder: Path, loader: Loader, batches: int, **options: Any) -> list[dict[str, Any]]:
    """Ranges of ours in the chrome trace of a few batches."""
    with profile(activities=[ProfilerActivity.CPU], **options) as watched:
        iterator = iter(loader)
        for _ in range(batches):
            next(iterator)
    loader.close()
    watched.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [event for event in events if event["name"].startswith("gpuaug.") and event.get("ph") == "X"]


def loader(folder: Path, ahead: bool) -> Loader:
    data = ImageDataModule(train=numbered(folder, 16), batch_size=4, image_size=8, num_threads=1, seed=0)
    plain: Loader = data.setup_for("cpu").train_dataloader()
    return Loader(plain.source, plain.plan, plain.decoding, plain.output, ahead=ahead)


def test_a_trace_shows_each_stage_of_each_batch_inside_of_its_delivery(tmp_path: Path) -> None:
    events = traced(tmp_path, loader(tmp_path, ahead=False), 3)
    by_name = {name: [event for event in events if event["name"] == name] for name in (*STAGES, "gpuaug.next_batch")}
    assert len(by_name["gpuaug.next_batch"]) == 3
    assert len(by_name["gpuaug.decode"]) == len(by_name["gpuaug.augment"]) == 3
    assert len(by_name["gpuaug.prepare"]) == len(by_name["gpuaug.read"]) == 3 + 2  # two batches are on their way
    for stage in STAGES:
        for event in by_name[stage]:
            assert any(
                outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= outer["ts"] + outer["dur"]
                for outer in by_name["gpuaug.next_batch"]
            )
    assert all(decode["ts"] + decode["dur"] <= augment["ts"] for decode, augment in zip(
        by_name["gpuaug.decode"], by_name["gpuaug.augment"], strict=True
    ))  # fmt: skip


def test_with_a_worker_the_training_thread_shows_the_delivery_and_all_threads_show_all(tmp_path: Path) -> None:
    assert {event["name"] for event in traced(tmp_path, loader(tmp_path, ahead=True), 3)} == {"gpuaug.next_batch"}
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    events = traced(tmp_path, loader(tmp_path, ahead=True), 3, experimental_config=everywhere)
    threads = {name: {event["tid"] for event in events if event["name"] == name} for name in STAGES}
    training = {event["tid"] for event in events if event["name"] == "gpuaug.next_batch"}
    assert all(len(own) == 1 and own != training for own in threads.values())


def test_without_a_profiler_no_range_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(profiler, "record_function", forbidden)
    assert ranged("gpuaug.test")(lambda x: x + 1)(1) == 2
    monkeypatch.setattr(profiler, "_is_profiler_enabled", True)
    with pytest.raises(AssertionError, match=r"gpuaug\.test"):
        ranged("gpuaug.test")(lambda x: x + 1)(1)


def test_the_cost_without_a_profiler_is_microseconds() -> None:
    function = ranged("gpuaug.test")(lambda: None)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(1000):
            function()
        times.append((time.perf_counter() - begin) / 1000)
    assert min(times) < 10e-6  # about 0.5 µs on an idle machine; five ranges a batch


def test_nvtx_ranges_are_closed_also_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))

    @ranges.ranged("gpuaug.outer")
    def outer() -> None:
        inner()

    @ranges.ranged("gpuaug.inner")
    def inner() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        outer()
    assert calls == ["gpuaug.outer", "gpuaug.inner", "pop", "pop"]


def test_a_wrapped_function_keeps_its_name_and_result() -> None:
    @ranged("gpuaug.test")
    def double(x: int, *, times: int = 2) -> int:
        """Twice."""
        return x * times

    assert (double(3), double(3, times=5), double.__name__, double.__doc__) == (6, 15, "double", "Twice.")
