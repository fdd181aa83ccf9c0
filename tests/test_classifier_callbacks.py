"""The classifier under callbacks that put a scheduler of their own in place of its."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, LearningRateFinder, StochasticWeightAveraging
from lightning.pytorch.tuner import Tuner
from torch import nn

from lightning_gpuaug.classifier.batch_counters import BatchCounters
from tests.test_classifier import Record, batches, classifier, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch"),
    pytest.mark.filterwarnings("ignore:Swapping scheduler"),
    pytest.mark.filterwarnings("ignore:When using `Trainer.accumulate_grad_batches"),
]

SCHEDULES = [
    {},
    {"warmup_epochs": 0.5, "ema_decay": 0.9},
    {"scheduler": "step", "decay_epochs": 1.0},
    {"scheduler": "none"},
]


@pytest.mark.parametrize("arguments", SCHEDULES, ids=str)
def test_a_rate_is_searched_and_the_schedule_comes_back(arguments: dict[str, Any]) -> None:
    net, run, record = classifier(**arguments), trainer(max_epochs=2), Record()
    found = Tuner(run).lr_find(
        net, batches([4] * 6), min_lr=1e-6, max_lr=1e-2, num_training=12, early_stop_threshold=None
    )
    assert found is not None
    tried = found.results["lr"]
    assert tried[0] == pytest.approx(1e-6)
    assert tried[-1] == pytest.approx(1e-2, rel=0.5)
    net.hparams["lr"] = 0.01
    run.callbacks.append(record)  # type: ignore[attr-defined]
    run.fit(net, batches([4] * 6))
    straight = Record()
    trainer(max_epochs=2, callbacks=[straight]).fit(classifier(**arguments), batches([4] * 6))
    assert record.lrs == straight.lrs


@pytest.mark.parametrize("arguments", SCHEDULES, ids=str)
def test_a_search_within_the_fit_sets_the_rate(arguments: dict[str, Any]) -> None:
    """For the whole of its schedule: the rates are those of a run that was given it."""
    net, record = classifier(**arguments), Record()
    finder = LearningRateFinder(min_lr=1e-6, max_lr=1e-2, num_training_steps=20, early_stop_threshold=None)
    trainer(max_epochs=4, callbacks=[finder, record]).fit(net, batches([4] * 6))
    assert finder.optimal_lr is not None
    found = finder.optimal_lr.suggestion()
    assert net.hparams["lr"] == found != 0.01
    given = Record()
    trainer(max_epochs=4, callbacks=[given]).fit(classifier(**{**arguments, "lr": found}), batches([4] * 6))
    assert record.lrs == pytest.approx(given.lrs, rel=1e-9)


@pytest.mark.parametrize("scheduler", ["cosine", "none"])
def test_averaged_weights_get_statistics_of_their_own(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last epoch norms average over all batches, for which they need their counters."""

    def averaged() -> tuple[nn.Module, list[float]]:
        net, record = classifier(scheduler=scheduler), Record()
        averaging = StochasticWeightAveraging(swa_lrs=1e-3, swa_epoch_start=1, annealing_epochs=1)
        trainer(max_epochs=3, callbacks=[averaging, record]).fit(net, batches([4, 4, 4]))
        return net.network, record.lrs

    network, lrs = averaged()
    assert lrs[-1] == pytest.approx(1e-3)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(norm.running_mean is not None and norm.running_mean.abs().max() > 0 for norm in norms)
    monkeypatch.setattr(BatchCounters, "one_batch", lambda self: nullcontext())  # each norm counts for itself
    torch.testing.assert_close(network.state_dict(), averaged()[0].state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("scheduling", [{1: 2}, {0: 4, 2: 1}, {0: 3}], ids=str)
def test_the_schedule_ends_with_the_run_when_accumulation_changes(scheduling: dict[int, int]) -> None:
    net, record = classifier(min_lr=1e-4, warmup_epochs=1), Record()
    run = trainer(max_epochs=3, callbacks=[record, GradientAccumulationScheduler(scheduling)])
    run.fit(net, batches([4] * 8))
    factors = [max((at, factor) for at, factor in {0: 1, **scheduling}.items() if at <= e)[1] for e in range(3)]
    assert run.global_step == sum(math.ceil(8 / factor) for factor in factors)
    assert run.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-4)
    first = math.ceil(8 / factors[0])
    assert record.lrs.index(max(record.lrs)) == first  # the warm-up lasted an epoch
