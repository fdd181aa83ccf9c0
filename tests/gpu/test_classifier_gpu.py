"""On a GPU: the classifier's own steps never make the host wait, and averaging works on the device."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor

from lightning_gpuaug.classifier import Classifier

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


class Batches:
    """The same batches on the GPU in each pass."""

    def __init__(self, sizes: list[int]) -> None:
        self.batches = [
            (
                torch.randn(size, 3, 64, 64, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last),
                torch.randint(10, (size,), device="cuda"),
            )
            for size in sizes
        ]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.batches)


class Guarded(Classifier):
    """A synchronising call raises in each step but an epoch's first, in which Lightning sets up its own metrics."""

    def _guard(self, hook: Any, batch_idx: int, *args: Any, **kwargs: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error" if batch_idx > 0 else "default")
        try:
            return hook(*args, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._guard(super().training_step, batch_idx, batch, batch_idx)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._guard(super().validation_step, batch_idx, batch, batch_idx)

    def _update_average(self) -> None:
        self._guard(super()._update_average, 1)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_no_step_synchronises_under_bf16_mixed(optimizer: str) -> None:
    torch.manual_seed(0)
    model = Guarded("test_resnet", num_classes=10, ema_decay=0.9, optimizer=optimizer, lr=0.01, label_smoothing=0.1)
    trainer = pl.Trainer(
        accelerator="gpu", devices=1, max_epochs=2, precision="bf16-mixed", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, log_every_n_steps=1,
    )  # fmt: skip
    data = Batches([16, 16, 16, 5])
    trainer.fit(model, data, data)
    metrics = trainer.callback_metrics
    model.eval().cuda()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        hits = [(model(images).argmax(1) == targets).sum().item() for images, targets in data]
    assert metrics["val/top1"].item() == pytest.approx(sum(hits) / 53, abs=2.01 / 53)  # kernels may differ by a tie
    assert metrics["lr"].item() == pytest.approx(0.01 * 0.5 * (1 + torch.tensor(torch.pi * 7 / 8).cos().item()))


def with_graphs(test: Any) -> Any:
    """Ignore what torch 2.11 says of itself: in Python 3.12 while it imports inductor, and while it makes its pool."""
    for warning in (
        "ignore:`torch.jit.script_method` is:DeprecationWarning",
        "ignore:TensorFloat32 tensor cores:UserWarning",
        "ignore:The CUDA Graph is empty:UserWarning",
    ):
        test = pytest.mark.filterwarnings(warning)(test)
    return test


@with_graphs
def test_cuda_graphs_train_and_predict_as_launches_do() -> None:
    """The same weights, averages, metrics and predictions, though a graph overwrites what it returned before."""
    data = Batches([16] * 6)
    found = []
    for mode in ("default", "reduce-overhead"):
        torch.manual_seed(0)
        model = Classifier("test_resnet", num_classes=10, compile=mode, ema_decay=0.9, lr=0.01)  # type: ignore[arg-type]
        trainer = pl.Trainer(
            accelerator="gpu", devices=1, max_epochs=2, precision="bf16-mixed", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, data, data)
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        predicted = trainer.predict(model, data)
        assert predicted is not None
        found.append((dict(model.state_dict()), metrics, torch.cat([p["probability"] for p in predicted])))
        torch.compiler.reset()
    (weights, metrics, probability), (graph_weights, graph_metrics, graph_probability) = found
    torch.testing.assert_close(graph_weights, weights, rtol=2e-2, atol=2e-3)
    assert graph_metrics == pytest.approx(metrics, rel=2e-2, abs=2e-2)
    torch.testing.assert_close(graph_probability, probability, rtol=2e-2, atol=2e-3)
    assert len(set(graph_probability.tolist())) > 16  # not the last batch's, again and again


@with_graphs
def test_networks_trained_one_after_the_other_through_cuda_graphs_are_alike() -> None:
    """Their parameters come to lie where those of networks before them lay, whose graphs must not serve them."""
    data = Batches([16] * 4)
    found = []
    for _ in range(6):
        torch.manual_seed(0)
        model = Classifier("test_resnet", num_classes=10, compile="reduce-overhead", lr=0.01)
        trainer = pl.Trainer(
            accelerator="gpu", devices=1, max_epochs=1, precision="bf16-mixed", logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, data, data)
        found.append(dict(model.state_dict()))
        del model, trainer
        gc.collect()
        torch.cuda.empty_cache()  # so that the next one's parameters are laid out from the start again
    for weights in found[1:]:
        torch.testing.assert_close(weights, found[0], rtol=2e-2, atol=2e-3)
    torch.compiler.reset()
