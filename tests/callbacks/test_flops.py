"""FLOPs counted on the batch that trains, without changing it; peaks by device name."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lightning_gpuaug.callbacks import Throughput
from lightning_gpuaug.callbacks.flops import number_format
from lightning_gpuaug.callbacks.peaks import PEAKS, peak_flops, peak_of
from lightning_gpuaug.callbacks.throughput_summary import histogram, percentile


class Net(pl.LightningModule):
    """A convolution, batch norm, dropout and a linear layer."""

    def __init__(self, fails_at: int | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.rest = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 64, 10))
        self.fails_at = fails_at

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        if batch_idx == self.fails_at:
            raise RuntimeError("as asked")
        images, labels = batch
        return nn.functional.cross_entropy(self.rest(self.conv(images)), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def fit(callback: pl.Callback | None, module: Net | None = None, precision: Any = "32-true") -> Net:
    pl.seed_everything(3, verbose=False)
    module = module or Net()
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(4, 3, 8, 8, generator=generator), torch.arange(4)) for _ in range(6)]
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, callbacks=[] if callback is None else [callback],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, precision=precision,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))  # type: ignore[arg-type]
    return module


# Multiply-adds of an image, times two; no gradient with respect to the input image.
CONV, LINEAR = 2 * 8 * 64 * 3 * 9, 2 * 8 * 64 * 10
STEP = 2 * CONV + 3 * LINEAR


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_flops_of_a_training_step_are_those_of_its_layers(precision: Any) -> None:
    callback = Throughput(warmup_batches=2)
    fit(callback, precision=precision)
    summary = callback.summary()
    assert summary.tflops_device is not None
    assert summary.img_per_s_device is not None
    assert summary.tflops_device * 1e12 / summary.img_per_s_device == pytest.approx(STEP, rel=1e-9)
    assert summary.mfu is None  # a CPU has no peak in the table
    assert "FLOP/s, device" in dict(summary.rows())


def test_counting_changes_nothing() -> None:
    counted, plain = fit(Throughput(warmup_batches=3)), fit(None)
    for (name, a), (_, b) in zip(counted.state_dict().items(), plain.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_given_flops_are_taken_and_none_means_none() -> None:
    given_flops, without = Throughput(warmup_batches=1, flops_per_image=5e9), Throughput(flops_per_image=None)
    fit(given_flops)
    fit(without)
    summary = given_flops.summary()
    assert summary.img_per_s_device is not None
    assert summary.tflops_device == pytest.approx(summary.img_per_s_device * 5e-3)
    assert without.summary().tflops_device is None
    for wrong in (0, -1.0, "many"):
        with pytest.raises(ValueError, match="flops_per_image"):
            Throughput(flops_per_image=wrong)  # type: ignore[arg-type]


def test_a_compiled_model_and_no_warm_up_are_not_counted() -> None:
    module = Net()
    module.conv.compile(backend="eager")
    callback = Throughput(warmup_batches=2)
    fit(callback, module)
    assert callback.summary().tflops_device is None
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    callback = Throughput(warmup_batches=0)
    fit(callback)
    assert callback.summary().tflops_device is None


def test_a_failing_step_leaves_no_counting_behind() -> None:
    callback = Throughput(warmup_batches=2)
    with pytest.raises(RuntimeError, match="as asked"):
        fit(callback, Net(fails_at=1))
    assert not callback._flops.counting
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 3060 Ti", "RTX 3060 Ti"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090"),
    ],
)
def test_a_card_is_found_by_the_name_cuda_gives_it(name: str, entry: str) -> None:
    assert peak_of(name) is PEAKS[entry]


@pytest.mark.parametrize(
    "name",
    ["NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA A100X",
     "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 4080 SUPER", ""],
)  # fmt: skip
def test_a_card_that_is_not_listed_has_no_peak(name: str) -> None:
    assert peak_of(name) is None


def test_formats_have_their_peaks() -> None:
    assert peak_flops("NVIDIA H200", "bf16") == 989.5e12
    assert peak_flops("NVIDIA H200", "tf32") == 494.5e12
    assert peak_flops("Tesla T4", "bf16") is None
    for name, peak in PEAKS.items():
        assert peak.source, name
        assert peak.fp32 <= (peak.tf32 or peak.fp32) <= peak.fp16, name


def test_the_format_follows_the_precision() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert number_format("32-true") == "fp32"
        torch.set_float32_matmul_precision("high")
        assert number_format("32-true") == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)
    assert (number_format("bf16-mixed"), number_format("16-mixed")) == ("bf16", "fp16")


@given(st.lists(st.floats(0.001, 1e5), min_size=1), st.floats(0.01, 1.0))
def test_percentiles_and_histograms_hold_all_values(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values)
    bins = histogram(values)
    assert bins is not None
    assert sum(bins.counts) == len(values)
    assert bins.edges == sorted(bins.edges)
    assert bins.edges[0] <= min(values)
    assert bins.edges[-1] >= max(values)
