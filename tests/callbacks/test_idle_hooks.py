"""What Lightning calls of a callback at every step: what its class, or one that inherits from it, defines."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.pytorch.demos import BoringModel
from lightning.pytorch.profilers import SimpleProfiler

from lightning_gpuaug import BatchPreview, GpuUtilization, InputDoctor, Throughput
from lightning_gpuaug.callbacks import Report

pytestmark = [
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]


class Gradients(Throughput):
    """Someone's own, with a hook that Throughput has no use for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_after_backward(trainer, pl_module)
        self.seen += 1


START, END = "on_train_batch_start", "on_train_batch_end"


@pytest.mark.parametrize(
    ("make", "called"),
    [
        (Throughput, {START, END}),
        (Gradients, {START, END, "on_after_backward"}),
        (lambda: InputDoctor(every_n_batches=4), {START, END}),
        (lambda: BatchPreview(epochs=[9]), {START}),
        (GpuUtilization, {END}),
        (Report, set()),
    ],
)
@pytest.mark.filterwarnings("ignore:InputDoctor found nothing", "ignore:GpuUtilization")
def test_a_step_calls_what_is_defined(make: Callable[[], Any], called: set[str], tmp_path: Any) -> None:
    callback, profiler = pickle.loads(pickle.dumps(make())), SimpleProfiler()
    pl.Trainer(
        max_epochs=1, limit_train_batches=3, limit_val_batches=0, callbacks=[callback], profiler=profiler,
        accelerator="cpu", devices=1, logger=False, default_root_dir=tmp_path, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
    ).fit(BoringModel())  # fmt: skip
    begin = f"[Callback]{callback.state_key}."
    hooks = {action.removeprefix(begin) for action in profiler.recorded_durations if action.startswith(begin)}
    assert {hook for hook in hooks if "_before_" in hook or "_after_" in hook or "_train_batch_" in hook} == called
    if isinstance(callback, Gradients):
        assert callback.seen == 3
