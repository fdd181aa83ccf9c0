"""A run with the doctor is the run without it, to the bit: with stocks laid in and probes made, whatever the loader."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lightning_gpuaug import ImageDataModule, InputDoctor, Throughput, TrainRecipe
from lightning_gpuaug.callbacks import input_doctor
from tests.images import numbered

pytestmark = [
    pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Net(pl.LightningModule):
    """What could notice: batch norm's buffers, dropout's random numbers, Adam's moments, a schedule, logged means."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3),
            nn.Linear(16, 4),
        )  # fmt: skip
        self.seen: list[list[int]] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        self.seen.append(labels.tolist())
        loss = nn.functional.cross_entropy(self.net(images), labels % 4)
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Images(Dataset[tuple[Tensor, int]]):
    """Random crops, drawn from torch's global random numbers, after a wait for storage."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(self.seconds)
        return torch.rand(3, 8, 8) + random.random() + float(np.random.rand()), index


def data_of(kind: str, folder: Path) -> dict[str, Any]:
    if kind == "workers":
        return {"train_dataloaders": DataLoader(Images(), batch_size=4, shuffle=True, num_workers=1)}
    if kind == "in the process":
        return {"train_dataloaders": DataLoader(Images(), batch_size=4, shuffle=True)}
    source = numbered(folder, 96)
    recipe = TrainRecipe(auto="rand-m9-mstd0.5-inc1") if kind == "ours, augmented" else TrainRecipe()
    return {
        "datamodule": ImageDataModule(train=source, batch_size=4, image_size=16, num_threads=1, train_recipe=recipe)
    }


def fit(kind: str, folder: Path, callbacks: list[pl.Callback], accumulate: int, resume: Path | None = None) -> Any:
    pl.seed_everything(5, verbose=False)
    module = Net()
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, callbacks=callbacks, enable_progress_bar=False,
        accumulate_grad_batches=accumulate, enable_model_summary=False, default_root_dir=folder,
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
    )  # fmt: skip
    trainer.fit(module, **data_of(kind, folder), ckpt_path=resume)
    return {
        "weights and buffers": module.state_dict(),
        "optimizer": trainer.optimizers[0].state_dict(),
        "schedule": trainer.lr_scheduler_configs[0].scheduler.state_dict(),
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1],
        "python": random.getstate(),
        "batches": module.seen,
        "step": trainer.global_step,
        "metrics": dict(trainer.callback_metrics),
    }


def assert_equal(a: Any, b: Any, where: str = "") -> None:
    assert type(a) is type(b), where
    if isinstance(a, Tensor):
        assert torch.equal(a, b), where
    elif isinstance(a, np.ndarray):
        assert (a == b).all(), where
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_equal(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{where}/{i}")
    else:
        assert a == b, where


@pytest.mark.parametrize(
    ("kind", "accumulate"),
    [("workers", 1), ("workers", 3), ("in the process", 1), ("ours", 3), ("ours, augmented", 1)],
)
def test_nothing_changes(kind: str, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_doctor, "WORTH_IT", -1.0)  # probes are made whatever this machine is busy with
    doctor = InputDoctor(every_n_batches=7, batches=3, probe_seconds=0.02)
    with_doctor = fit(kind, tmp_path, [doctor, Throughput(warmup_batches=2)], accumulate)
    without = fit(kind, tmp_path, [], accumulate)
    assert_equal(with_doctor, without)
    verdict = doctor.verdict
    assert verdict is not None
    laid_in = not any("No batches were laid in" in note for note in verdict.notes)
    assert laid_in == (kind != "in the process")
    assert doctor._probe is not None
    assert doctor._probe.stages["read"] > 0


@pytest.mark.parametrize("kind", ["workers", "ours"])
def test_a_checkpoint_amid_a_stock_resumes_where_training_was(kind: str, tmp_path: Path) -> None:
    # Batches 7 to 11 of 24 are laid in; step 9 is saved while some of them lie ready.
    save = ModelCheckpoint(tmp_path / "doctor", every_n_train_steps=9, save_top_k=-1)
    doctor = InputDoctor(every_n_batches=7, batches=3, probe_seconds=0)
    saved = fit(kind, tmp_path, [doctor, save], accumulate=1)
    plain = ModelCheckpoint(tmp_path / "plain", every_n_train_steps=9, save_top_k=-1)
    fit(kind, tmp_path, [plain], accumulate=1)
    files = sorted(path.name for path in (tmp_path / "doctor").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "plain").iterdir())
    name = next(file for file in files if "step=9" in file)
    a, b = (torch.load(tmp_path / folder / name, weights_only=False) for folder in ("doctor", "plain"))
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "loops", "ImageDataModule"):
        assert_equal(a.get(part), b.get(part), part)
    if kind == "ours":
        assert a["ImageDataModule"]["consumed"] == 9 * 4
        rest = fit(kind, tmp_path, [], accumulate=1, resume=tmp_path / "doctor" / name)
        assert rest["batches"] == saved["batches"][9:]
