"""The callback inside a Trainer on a GPU that is not there: what it logs, when it is refused, and what it costs."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import time
import warnings
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pynvml
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lightning_gpuaug.callbacks import GpuUtilization, gpu_utilization
from lightning_gpuaug.callbacks.gpu_sampler import GpuSampler
from tests.callbacks.fake_nvml import GPU, MIG, NUMBERS, FakeNvml
from tests.callbacks.test_nvml import mig
from tests.callbacks.test_throughput import Rows, trainer

pytestmark = [
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]

INTERVAL = 0.1


class Module(pl.LightningModule):
    """Someone's module, with batches that are lists of two tensors."""

    def __init__(self, step_seconds: float = 0.0, fail_at: int | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.step_seconds, self.fail_at = step_seconds, fail_at

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        time.sleep(self.step_seconds)
        if batch_idx == self.fail_at:
            raise RuntimeError("the model's own error")
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data(batches: int) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(batches * 2, 2, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=2)


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpuaug-nvml"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A GPU for the CPU trainer: `install` another if a test wants one."""
    nvml = FakeNvml()
    install(monkeypatch, nvml)
    return nvml


def install(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, names: tuple[str, ...] = (GPU,)) -> None:
    monkeypatch.setattr(gpu_utilization, "_names", lambda device: list(names))
    monkeypatch.setattr(gpu_utilization.nvml, "load", lambda: nvml)


def fit(callback: GpuUtilization, batches: int = 30, step_seconds: float = 0.01, **arguments: Any) -> Rows:
    rows = Rows()
    defaults = {"max_epochs": 1, "logger": rows, "log_every_n_steps": 10, "callbacks": [callback]}
    trainer(**{**defaults, **arguments}).fit(Module(step_seconds), data(batches))
    return rows


def logged(rows: Rows) -> dict[str, list[float]]:
    """GPU metrics by name."""
    names = dict.fromkeys(name for _, row in rows.rows for name in row if name.startswith("gpu/"))
    return {name: rows.column(name) for name in names}


def test_logged_to_every_logger_and_recorded(fake: FakeNvml) -> None:
    callback = GpuUtilization(INTERVAL)
    columns = logged(fit(callback, batches=40, step_seconds=0.02))
    assert set(columns) == {f"gpu/{name}" for name in gpu_utilization.nvml.METRICS[:12]}
    assert set(columns["gpu/power_w"]) == {512.345}
    record = callback.run_record()
    assert record is not None
    assert record.samples >= 2
    assert record.mean["utilization_pct"] == 93
    assert record.throttled == {"power cap": 1.0}
    assert (record.name, record.uuid, record.notes) == ("NVIDIA H200", GPU, [])
    assert len(record.timeline.times) == record.samples
    assert not watchers()
    assert fake.calls["nvmlInit"] == fake.calls["nvmlShutdown"] == 1


def test_samples_are_means_over_the_time_since_the_log_before(fake: FakeNvml) -> None:
    watts = iter(range(1000, 100_000_000, 1000))
    fake.answers["nvmlDeviceGetPowerUsage"] = lambda handle: next(watts)
    now = iter(range(100))
    sampler = GpuSampler(fake, [GPU], 0.001, clock=lambda: float(next(now)))
    for _ in range(3):  # as the thread would: the first round is not kept
        device_round(sampler)
    assert sampler.take_window().means()["power_w"] == 2.5
    assert sampler.take_window().means() == {}
    device_round(sampler)
    assert sampler.take_window().means()["power_w"] == 4.0
    record = sampler.record()
    assert (record.samples, record.mean["power_w"], record.timeline.times) == (3, 3.0, [0.0, 1.0, 2.0])
    assert record.timeline.columns["power_w"] == [2.0, 3.0, 4.0]


def device_round(sampler: GpuSampler) -> None:
    """One round by hand; the first one is the probing."""
    if not hasattr(sampler, "device"):
        sampler.device = gpu_utilization.nvml.NvmlDevice(sampler._nvml, sampler._uuids)  # type: ignore[attr-defined]
        sampler.device.read()  # type: ignore[attr-defined]
        return
    sampler._keep(sampler.device.read())  # type: ignore[attr-defined]


# ---- what the driver refuses ----------------------------------------------------------------------------------------


REFUSALS = {
    "at init": (FakeNvml({"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}), "NVML does not start", set(), NUMBERS),
    "everything": (
        FakeNvml(dict.fromkeys(NUMBERS, pynvml.NVML_ERROR_NOT_SUPPORTED)), "memory, utilization, .*: Not S", set(), []
    ),
    "one is not supported": (
        FakeNvml({"nvmlDeviceGetJpgUtilization": pynvml.NVML_ERROR_NOT_SUPPORTED}), "JPEG decoder: Not Supported",
        {"gpu/utilization_pct", "gpu/power_w"}, [],
    ),
    "one is not permitted": (
        FakeNvml({"nvmlDeviceGetCurrentClocksThrottleReasons": pynvml.NVML_ERROR_NO_PERMISSION}),
        "throttle reasons: Insufficient Permissions", {"gpu/utilization_pct", "gpu/power_w"}, [],
    ),
    "all from the fourth round on": (
        FakeNvml(dict.fromkeys(NUMBERS, pynvml.NVML_ERROR_UNKNOWN), after=4), "lost numbers .*: Unknown Error",
        {"gpu/utilization_pct", "gpu/power_w"}, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_training_ends_normally_with_one_warning(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, message, there, never_asked = REFUSALS[case]
    install(monkeypatch, fake)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        columns = logged(fit(GpuUtilization(INTERVAL), batches=120, step_seconds=0.012))
    ours = [str(warning.message) for warning in caught if "GpuUtilization" in str(warning.message)]
    assert len(ours) == 1, ours
    with pytest.warns(UserWarning, match=message):
        warnings.warn(ours[0], stacklevel=1)
    assert set(columns) >= there
    assert bool(columns) == bool(there)
    if case == "one is not supported":
        assert "gpu/jpeg_decoder_pct" not in columns
    if case == "one is not permitted":
        assert "gpu/throttled_pct" not in columns
    assert not set(never_asked) & set(fake.calls)
    assert not watchers()


def test_of_a_mig_instance_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, mig(), (MIG,))
    callback = GpuUtilization(INTERVAL)
    with pytest.warns(UserWarning, match=f"{MIG} is a MIG instance: NVML gives its memory alone"):
        columns = logged(fit(callback, batches=40))
    assert columns.keys() == {"gpu/memory_used_gib"}
    assert set(columns["gpu/memory_used_gib"]) == {7.0}
    record = callback.run_record()
    assert record is not None
    assert (record.memory_total_gib, list(record.mean)) == (18.0, ["memory_used_gib"])
    assert len(record.notes) == 1


def test_an_error_of_ours_does_not_reach_training(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(answers={"nvmlDeviceGetPowerUsage": lambda handle: "much"})
    install(monkeypatch, fake)
    with pytest.warns(UserWarning, match="TypeError"):
        assert logged(fit(GpuUtilization(INTERVAL))) == {}
    assert fake.calls["nvmlShutdown"] == 1


def test_without_nvidia_ml_py(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise gpu_utilization.nvml.NvmlUnavailable("nvidia-ml-py is not installed (pip install nvidia-ml-py)")

    install(monkeypatch, FakeNvml())
    monkeypatch.setattr(gpu_utilization.nvml, "load", missing)
    with pytest.warns(UserWarning, match="logs nothing: nvidia-ml-py is not installed"):
        assert logged(fit(GpuUtilization())) == {}


def test_without_a_gpu_nothing_is_watched_and_nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setattr(gpu_utilization.nvml, "load", lambda: fake)
    callback = GpuUtilization()
    assert logged(fit(callback)) == {}
    assert callback.run_record() is None
    assert fake.calls == {}


# ---- what it costs --------------------------------------------------------------------------------------------------


def test_few_calls_none_from_the_training_thread(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("not while training")

    monkeypatch.setattr(subprocess.Popen, "__init__", forbidden)
    monkeypatch.setattr(os, "system", forbidden)
    monkeypatch.setattr(torch.cuda, "synchronize", forbidden)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", forbidden)
    start = time.monotonic()
    rows = fit(GpuUtilization(INTERVAL), batches=100, step_seconds=0.003)
    rounds = (time.monotonic() - start) / INTERVAL + 1
    assert fake.threads
    assert threading.get_ident() not in fake.threads
    assert len(fake.threads) == 1
    assert sum(fake.calls.values()) <= 12 * rounds + 10  # as time passes, not as steps do
    assert len([row for _, row in rows.rows if any(name.startswith("gpu/") for name in row)]) <= 10


def test_a_step_costs_microseconds() -> None:
    trainer, module = SimpleNamespace(global_step=0, log_every_n_steps=50), Module()
    callback, costs = GpuUtilization(log_every_n_steps=10**9), []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(1000):
            trainer.global_step += 1
            callback.on_train_batch_end(trainer, module, None, None, 0)  # type: ignore[arg-type]
        costs.append((time.perf_counter() - begin) / 1000)
    assert min(costs) < 10e-6


def test_a_driver_that_hangs_holds_nobody_up(fake: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def hang(handle: str) -> int:
        release.wait(30)
        return 1

    fake.answers["nvmlDeviceGetPowerUsage"] = hang
    monkeypatch.setattr(GpuSampler.stop, "__defaults__", (0.2,))
    start = time.monotonic()
    fit(GpuUtilization(INTERVAL))
    assert time.monotonic() - start < 10
    [thread] = watchers()
    assert thread.daemon
    release.set()
    thread.join(10)
    assert not watchers()


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_stops_on_an_exception(fake: FakeNvml, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    class Stops(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
            if trainer.global_step == 5:
                assert watchers()
                raise kind("the model's own error")

    callback = GpuUtilization(INTERVAL)
    with pytest.raises(RuntimeError if kind is RuntimeError else SystemExit):
        fit(callback, callbacks=[callback, Stops()], step_seconds=0.05)
    assert not watchers()
    assert fake.calls["nvmlShutdown"] == 1
    assert callback.run_record() is not None  # still there for the report


def test_a_second_fit_starts_afresh(fake: FakeNvml) -> None:
    callback = GpuUtilization(INTERVAL)
    fit(callback, batches=40)
    first = callback.run_record()
    fit(callback, batches=40)
    second = callback.run_record()
    assert first is not None
    assert second is not None
    assert first.timeline.times[-1] < second.timeline.times[0]
    assert not watchers()
    copy = pickle.loads(pickle.dumps(callback))  # to the processes of a later, distributed fit
    assert copy.run_record() == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"interval_s": 0.05}, "interval_s must be ≥ 0.1, got 0.05"), ({"log_every_n_steps": 0}, "log_every_n_steps")],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GpuUtilization(**arguments)
