"""Batch norms' counters hold what torch's own counting gives, and are counted together."""

from __future__ import annotations

import copy
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_gpuaug.classifier.batch_counters import BatchCounters
from tests.test_classifier import batches, classifier, trainer

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated")


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what torch is asked to do with whole numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = args[0][0] if args and isinstance(args[0], list | tuple) and args[0] else args[0] if args else None
        if isinstance(first, Tensor) and first.dtype == torch.int64:
            self.count[str(function)] += 1
        return function(*args, **(kwargs or {}))


def counts(network: nn.Module) -> dict[str, int]:
    return {name: int(value) for name, value in network.named_buffers() if name.endswith("num_batches_tracked")}


class Net(nn.Module):
    """One norm of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.BatchNorm2d(3)
        self.frozen = nn.BatchNorm2d(3)
        self.averaging = nn.BatchNorm2d(3, momentum=None)
        self.untracked = nn.BatchNorm2d(3, track_running_stats=False)
        self.last = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.untracked(self.averaging(self.frozen(self.plain(images)))))  # type: ignore[no-any-return]


def test_counters_and_statistics_are_torchs_own() -> None:
    torch.manual_seed(0)
    theirs, ours = Net(), Net()
    for network in (theirs, ours):
        network.train().frozen.eval()
    counters, images = BatchCounters(ours), torch.randn(3, 4, 3, 5, 5)
    for batch in images:
        with counters.one_batch():
            got = ours(batch)
        torch.testing.assert_close(got, theirs(batch), rtol=0, atol=0)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    wanted = {"plain": 3, "frozen": 0, "averaging": 3, "last": 3}
    assert counts(ours) == {f"{name}.num_batches_tracked": count for name, count in wanted.items()}


def test_a_batch_that_fails_is_not_counted_and_leaves_the_counters() -> None:
    network = Net().train()
    counters = BatchCounters(network)
    before = dict(network.named_buffers())
    with pytest.raises(ValueError, match="4D input"), counters.one_batch():
        network(torch.zeros(3))
    assert dict(network.named_buffers()).keys() == before.keys()
    assert all(value is before[name] for name, value in network.named_buffers())
    assert set(counts(network).values()) == {0}


def test_norms_that_change_in_mid_training_count_as_torch_has_it() -> None:
    """Weight averaging takes the momentum away to take statistics anew, for which a norm needs its counter."""
    torch.manual_seed(0)
    theirs, ours = Net().train(), Net().train()
    counters, images = BatchCounters(ours), torch.randn(4, 4, 3, 5, 5)
    for epoch in range(2):
        for batch in images:
            with counters.one_batch():
                ours(batch)
            theirs(batch)
        if epoch == 0:
            for network in (theirs, ours):
                network.plain.momentum = None
                network.plain.num_batches_tracked.zero_()  # type: ignore[union-attr]
                network.last.track_running_stats = False
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    assert (counts(ours)["plain.num_batches_tracked"], counts(ours)["last.num_batches_tracked"]) == (4, 4)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
def test_stochastic_weight_averaging_takes_the_statistics_of_the_average() -> None:
    averaged: list[nn.Module] = []

    class Keep(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
            averaged.append(copy.deepcopy(pl_module.network))

    averaging = StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=1, annealing_epochs=1)
    net, data = classifier(), batches([4, 4, 4])
    trainer(max_epochs=3, callbacks=[averaging, Keep()]).fit(net, data)
    assert set(counts(net.network).values()) == {3}  # a last epoch is for the statistics alone
    torch.optim.swa_utils.update_bn([images for images, _ in data], averaged[-1])
    wanted = dict(averaged[-1].named_buffers())
    torch.testing.assert_close(dict(net.network.named_buffers()), wanted, rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"ema_decay must be None beside StochasticWeightAveraging, got 0\.9$"):
        trainer(max_epochs=3, callbacks=[averaging]).fit(classifier(ema_decay=0.9), data)


def test_norms_that_need_their_counter_keep_it() -> None:
    network = nn.Sequential(nn.SyncBatchNorm(3))
    with BatchCounters(network).one_batch():
        assert network[0].num_batches_tracked is not None


@pytest.mark.parametrize("model", ["test_resnet", "test_efficientnet"])  # nn.BatchNorm2d, and timm's BatchNormAct2d
def test_training_counts_all_norms_at_once(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, calls = classifier(model=model), Calls()
    forward = net.network.forward

    def watched(images: Tensor) -> Any:
        with calls:
            return forward(images)

    monkeypatch.setattr(net.network, "forward", watched)
    trainer(max_epochs=2).fit(net, batches([4, 4, 2]), batches([4]))
    assert not calls.count  # no norm counts for itself
    assert set(counts(net.network).values()) == {6}


def test_a_checkpoint_of_a_signal_in_mid_pass_is_whole(tmp_path: Path) -> None:
    """SLURM's signal before a requeue, whose handler Lightning saves in."""
    net, path = classifier(ema_decay=0.9), str(tmp_path / "requeue.ckpt")
    runner = trainer(max_epochs=1)

    def interrupt(module: nn.Module, args: Any, output: Any) -> None:
        if runner.training and runner.global_step == 1:
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: runner.save_checkpoint(path, weights_only=False))
    handle = net.network.get_submodule("layer1").register_forward_hook(interrupt)
    try:
        runner.fit(net, batches([4, 4, 4]), batches([4]))
    finally:
        signal.signal(signal.SIGUSR1, before)
        handle.remove()
    assert set(counts(net.network).values()) == {3}
    saved = torch.load(path, weights_only=False)["state_dict"]
    classifier(ema_decay=0.9).load_state_dict(saved)
    assert list(saved) == list(net.state_dict())
    assert {int(value) for name, value in saved.items() if name.endswith("num_batches_tracked")} == {1}


def test_a_compiled_network_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: None)
    net, calls = classifier(compile=True), Calls()
    with calls:
        trainer(max_epochs=1).fit(net, batches([4, 4, 2]), batches([4]))
    assert not any("foreach" in name for name in calls.count)
    assert set(counts(net.network).values()) == {3}
