"""The host stays at most two training steps ahead of a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import torch

from lightning_gpuaug import ImageDataModule
from lightning_gpuaug.steps_ahead import LimitStepsAhead
from tests.images import numbered


class Gpu:
    """Steps queued and not yet done; waiting for an event runs all that was queued before it."""

    def __init__(self) -> None:
        self.queued: list[int] = []
        self.most = 0

    def event(self) -> Any:
        behind: list[int] = []
        return SimpleNamespace(
            record=lambda: behind.extend(self.queued),
            synchronize=lambda: [self.queued.remove(step) for step in behind if step in self.queued],
        )

    def run(self, limit: LimitStepsAhead, device: str, steps: int) -> None:
        trainer: Any = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)))
        module: Any = None
        limit.on_train_start(trainer, module)
        for step in range(steps):
            limit.on_train_batch_start(trainer, module, None, step)
            self.most = max(self.most, len(self.queued))
            self.queued.append(step)


def test_at_most_two_steps_are_queued_when_the_next_is_launched() -> None:
    gpu = Gpu()
    limit = LimitStepsAhead(gpu.event)
    gpu.run(limit, "cuda:1", 20)
    assert gpu.most == 2


def test_a_new_fit_waits_for_nothing_of_the_one_before() -> None:
    gpu = Gpu()
    limit = LimitStepsAhead(gpu.event)
    gpu.run(limit, "cuda:0", 5)
    gpu.queued, gpu.most = [], 0
    gpu.run(limit, "cuda:0", 2)
    assert gpu.queued == [0, 1]


def test_nothing_is_asked_of_cuda_on_a_cpu() -> None:
    def fail() -> Any:
        raise AssertionError("an event on the CPU")

    gpu = Gpu()
    gpu.run(LimitStepsAhead(fail), "cpu", 5)
    assert gpu.most == 4


def test_the_data_module_brings_it_once(tmp_path: Path) -> None:
    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0].flatten()[:1]).sum()  # type: ignore[no-any-return]

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            pass

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    data = ImageDataModule(numbered(tmp_path, 8), batch_size=4, image_size=8, num_threads=1)
    trainer = pl.Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    for _ in range(2):
        trainer.fit(Net(), datamodule=data)
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
        assert [type(c) for c in callbacks].count(LimitStepsAhead) == 1
