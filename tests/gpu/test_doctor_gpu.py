"""On a GPU: the headroom is the model's own rate, waits are found, and training stays what it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lightning_gpuaug import ImageDataModule, InputDoctor, Synthetic, Throughput, TrainRecipe
from lightning_gpuaug.callbacks import input_doctor
from tests.gpu.test_throughput_gpu import Busy, Loader, cycles_per_second

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader`"),
]


class Slow(Dataset[Tensor]):
    """A row after a wait for storage."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.seconds)
        return torch.ones(4)


def fit(module: pl.LightningModule, data: Any, callbacks: list[pl.Callback], batches: int) -> None:
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_steps=batches, max_epochs=-1, logger=False, callbacks=callbacks,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    if isinstance(data, pl.LightningDataModule):
        trainer.fit(module, datamodule=data)
    else:
        trainer.fit(module, data)


def test_the_headroom_is_the_rate_of_the_model_alone() -> None:
    # Steps of 10 ms, batches of 8 that take a worker 40 ms: two workers give one every 20 ms.
    cycles = int(cycles_per_second() * 0.010)
    doctor = InputDoctor(every_n_batches=32, batches=8, probe_seconds=0.5)
    loader = DataLoader(Slow(0.005), batch_size=8, num_workers=2, pin_memory=True)
    fit(Busy(cycles), loader, [doctor], 48)
    verdict = doctor.verdict
    assert verdict is not None
    assert verdict.img_per_s == pytest.approx(400, rel=0.1)
    assert verdict.img_per_s_without_input == pytest.approx(800, rel=0.1)
    assert verdict.cause == "read"
    assert verdict.knob is not None
    assert verdict.knob.startswith("num_workers 2 → ")
    assert verdict.gain == pytest.approx(1.0, abs=0.25)


def test_a_gpu_that_never_waits_is_bound_by_its_model() -> None:
    doctor = InputDoctor(every_n_batches=32, batches=8)
    loader = DataLoader(Slow(0.0), batch_size=8, num_workers=2, pin_memory=True)
    fit(Busy(int(cycles_per_second() * 0.020)), loader, [doctor], 48)
    assert doctor.verdict is not None
    assert doctor.verdict.cause == "model", doctor.verdict
    assert doctor.verdict.knob is None


def test_waits_of_an_unknown_loader_are_found_too() -> None:
    doctor = InputDoctor(every_n_batches=32, batches=8)
    fit(Busy(int(cycles_per_second() * 0.010)), Loader(60, 0.030), [doctor], 48)
    assert doctor.verdict is not None
    assert doctor.verdict.cause == "input"
    assert doctor.verdict.img_per_s_without_input / doctor.verdict.img_per_s == pytest.approx(3.0, rel=0.15)


class Net(pl.LightningModule):
    """Keeps a checksum of every batch; batch norm, dropout and Adam would notice a step too many."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 64 * 64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)
        )
        self.seen: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        self.seen.append(torch.stack([images.double().sum(), labels.double().sum()]))
        return nn.functional.cross_entropy(self.net(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


@pytest.mark.parametrize("recipe", [TrainRecipe(), TrainRecipe(auto="rand-m9-mstd0.5-inc1")], ids=["plain", "augment"])
def test_our_loader_delivers_and_trains_as_without_the_doctor(
    recipe: TrainRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_doctor, "WORTH_IT", -1.0)  # with probes, whether they are worth it or not
    source = Synthetic(length=640, cache_dir=tmp_path)

    def run(callbacks: list[pl.Callback]) -> Net:
        pl.seed_everything(1, verbose=False)
        module = Net()
        data = ImageDataModule(source, batch_size=16, image_size=64, train_recipe=recipe, hw_decoder_load=1.0, seed=3)
        fit(module, data, callbacks, 60)
        return module

    doctor = InputDoctor(every_n_batches=15, batches=4, probe_seconds=0.1)
    with_doctor, without = run([doctor, Throughput(warmup_batches=2)]), run([])
    assert doctor.verdict is not None
    assert not any("laid in" in note for note in doctor.verdict.notes)
    assert torch.equal(torch.stack(with_doctor.seen), torch.stack(without.seen))
    for (name, a), (_, b) in zip(with_doctor.state_dict().items(), without.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
