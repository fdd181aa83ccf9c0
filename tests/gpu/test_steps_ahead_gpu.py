"""On a GPU: the host stays at most two training steps ahead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from lightning_gpuaug.steps_ahead import LimitStepsAhead

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
]


class Ones:
    """Batches; in a list each would be a loader of its own to Lightning."""

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(12, 1, 1, device="cuda"))


class Slow(pl.LightningModule):
    """Each step takes the GPU some 30 ms and the host hardly anything; notes how many are queued when one begins."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.ends: list[torch.cuda.Event] = []
        self.queued: list[int] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.queued.append(sum(not end.query() for end in self.ends))
        torch.cuda._sleep(50_000_000)
        return self.layer(batch).sum()  # type: ignore[no-any-return]

    def on_train_batch_end(self, *_: Any) -> None:
        end = torch.cuda.Event()
        end.record()
        self.ends.append(end)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


@pytest.mark.parametrize("limited", [True, False])
def test_no_more_than_two_steps_are_queued(limited: bool) -> None:
    net = Slow()
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_steps=12, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[LimitStepsAhead()] if limited else [],
    )  # fmt: skip
    trainer.fit(net, Ones())
    assert net.queued[3:] == [2] * 9 if limited else max(net.queued) > 4
