"""The classifier: names, schedules, averaging, exact metrics, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from jsonargparse import ArgumentParser
from lightning.pytorch.callbacks import ModelCheckpoint
from timm.data.mixup import mixup_target
from timm.loss import BinaryCrossEntropy
from torch import Tensor

from lightning_gpuaug.classifier import Classifier
from lightning_gpuaug.classifier.ema import AverageUpdater, make_average
from lightning_gpuaug.classifier.metrics import EvaluationMetrics, Task
from lightning_gpuaug.classifier.schedule import Schedule
from tests.ddp import LeavesItsGroup

CLASSES = 7

pytestmark = [
    # Training alone is what some of these tests want.
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
    # Lightning 2.6 on torch's newest pytree.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


class Batches:
    """A sized loader over batches in memory."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.batches)


def samples(rows: int, classes: int = CLASSES, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, 32, 32, generator=generator), torch.randint(classes, (rows,), generator=generator)


def batches(sizes: list[int], classes: int = CLASSES, seed: int = 0) -> Batches:
    images, targets = samples(sum(sizes), classes, seed)
    return Batches(list(zip(images.split(sizes), targets.split(sizes), strict=True)))


def classifier(**arguments: Any) -> Classifier:
    torch.manual_seed(0)
    return Classifier(**{"model": "test_resnet", "num_classes": CLASSES, "lr": 0.01, **arguments})


def trainer(**arguments: Any) -> pl.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    checkpointing = {
        "enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in arguments.get("callbacks", []))
    }
    return pl.Trainer(accelerator="cpu", **{"devices": 1, **quiet, **checkpointing, **arguments})


class Record(pl.Callback):
    """The learning rate and the weights at each optimizer step."""

    def __init__(self) -> None:
        self.lrs: list[float] = []
        self.networks: list[dict[str, Tensor]] = []
        self.averages: list[dict[str, Tensor]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.lrs.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.networks.append({name: value.clone() for name, value in pl_module.network.state_dict().items()})
        if pl_module.ema_network is not None:
            self.averages.append({name: value.clone() for name, value in pl_module.ema_network.state_dict().items()})


# Construction


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "resnet5o"}, r"^model must be a timm model name, got 'resnet5o'; nearest: resnet50"),
        ({"model": "resnet50.a1_in2k"}, r"^model must name a pretrained tag of 'resnet50'.*nearest: resnet50\.a1_in1k"),
        ({"optimizer": "admw"}, r"^optimizer must be a timm optimizer name, got 'admw'; nearest: adamw"),
        ({"scheduler": "cosin"}, r"^scheduler must be one of cosine, .* got 'cosin'$"),
        ({"num_classes": 0}, r"^num_classes must be > 0, got 0$"),
        ({"num_classes": 2.0}, r"^num_classes must be a whole number, got 2.0$"),
        ({"model": 18}, r"^model must be a timm model name, got 18$"),
        ({"optimizer": None}, r"^optimizer must be a timm optimizer name, got None$"),
        ({"lr": "0.1"}, r"^lr must be a number, got '0.1'$"),
        ({"task": "multi"}, r"^task must be 'multiclass' or 'multilabel', got 'multi'$"),
        ({"lr": 0.0}, r"^lr must be > 0, got 0.0$"),
        ({"weight_decay": -1.0}, r"^weight_decay must be ≥ 0, got -1.0$"),
        ({"label_smoothing": 1.0}, r"^label_smoothing must be in \[0, 1\), got 1.0$"),
        ({"ema_decay": 1.0}, r"^ema_decay must be in \(0, 1\), got 1.0$"),
        ({"warmup_steps": 3, "warmup_epochs": 1}, r"^warmup_steps must not be given with warmup_epochs=1, got both$"),
        ({"warmup_epochs": -1}, r"^warmup_epochs must be ≥ 0, got -1$"),
        ({"scheduler": "multistep"}, r"^decay_epochs must be a list for scheduler='multistep', got 30.0$"),
        ({"scheduler": "step", "decay_epochs": [1, 2]}, r"^decay_epochs must be one number for scheduler='step'"),
        (
            {"scheduler": "multistep", "decay_epochs": [2, 1]},
            r"^decay_epochs must be positive and rising, got \[2, 1\]$",
        ),
        ({"model_args": {"act_layer": torch.nn.ReLU}}, r"^model_args\['act_layer'\] must be plain YAML data"),
        (
            {"optimizer_args": {"betas": [0.9, {1: 2}]}},
            r"^optimizer_args\['betas'\]\[1\] must have string keys, got 1$",
        ),
    ],
)
def test_bad_arguments_are_named_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        classifier(**arguments)
    assert "\n" not in str(error.value)


def test_names_with_a_tag_or_prefix_are_known() -> None:
    assert classifier(model="test_resnet.r160_in1k", optimizer="lookahead_AdamW").network.num_classes == CLASSES


def test_model_args_reach_timm_and_weights_are_channels_last_on_request() -> None:
    dropping = classifier(model_args={"drop_rate": 0.25})
    assert dropping.network.drop_rate == 0.25
    assert dropping.network.conv1[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert not classifier(channels_last=False).network.conv1[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_biases_and_norms_get_no_weight_decay() -> None:
    model = classifier(optimizer="adamw", weight_decay=0.3, scheduler="none")
    model.trainer = trainer(max_epochs=1)
    optimizer = model.configure_optimizers()
    decays = {parameter: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]}
    assert len(decays) == len(list(model.network.parameters()))
    assert all(decay == (0.0 if parameter.ndim <= 1 else 0.3) for parameter, decay in decays.items())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jsonargparse renames what LightningCLI calls
def test_arguments_can_come_from_a_config_file() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(pl.LightningModule, "model")
    config = {
        "model": "test_vit",
        "num_classes": 4,
        "model_args": {"drop_path_rate": 0.1},
        "optimizer_args": {"betas": [0.9, 0.95]},
        "scheduler": "multistep",
        "decay_epochs": [1, 2.5],
        "ema_decay": 0.5,
    }
    class_path = "lightning_gpuaug.classifier.Classifier"
    parsed = parser.parse_object({"model": {"class_path": class_path, "init_args": config}})
    again = parser.parse_string(parser.dump(parsed))
    model = parser.instantiate_classes(again).model
    assert isinstance(model, Classifier)
    assert {name: model.hparams[name] for name in config} == config
    assert model.hparams["lr"] == 0.1


# Schedules


def schedule(**fields: Any) -> Schedule:
    defaults = {"name": "cosine", "warmup_epochs": 0.0, "warmup_steps": None, "warmup_lr": 0.0, "min_lr": 0.0}
    return Schedule(**{**defaults, "decay_epochs": 30.0, "decay_rate": None, **fields})


def rates(lr: float, total: int, per_epoch: int, chosen: Schedule) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = chosen.build(optimizer, total, per_epoch)
    values = []
    for step in range(total + 1):
        values.append(optimizer.param_groups[0]["lr"])
        if scheduler is not None:
            scheduler.step_update(step + 1)
    return values


def test_cosine_is_its_closed_form_at_each_step() -> None:
    got = rates(0.4, 20, 10, schedule(warmup_epochs=0.5, warmup_lr=0.1, min_lr=0.02))
    warmup = [0.1 + (0.4 - 0.1) * step / 5 for step in range(5)]
    cosine = [0.02 + 0.5 * (0.4 - 0.02) * (1 + math.cos(math.pi * step / 15)) for step in range(16)]
    assert got == pytest.approx(warmup + cosine, rel=1e-12)
    assert got[5] == 0.4
    assert got[20] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "none"}, [1.0] * 9),
        ({"name": "none", "warmup_steps": 2}, [0.0, 0.5] + [1.0] * 7),
        ({"name": "step", "decay_epochs": 2.0}, [1.0] * 4 + [0.1] * 4 + [0.01]),
        ({"name": "step", "decay_epochs": 2.0, "decay_rate": 0.5, "warmup_epochs": 1.0},
         [0.0, 0.5, 1.0, 1.0] + [0.5] * 4 + [0.25]),
        ({"name": "multistep", "decay_epochs": [1.0, 3.0]}, [1.0] * 2 + [0.1] * 4 + [0.01] * 3),
        ({"name": "poly", "warmup_steps": 4}, [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]),
    ],
)  # fmt: skip
def test_other_schedules_by_the_step(fields: dict[str, Any], expected: list[float]) -> None:
    assert rates(1.0, 8, 2, schedule(**fields)) == pytest.approx(expected, abs=1e-12)


def test_tanh_starts_high_and_ends_low() -> None:
    got = rates(1.0, 10, 5, schedule(name="tanh", min_lr=0.1))
    assert got == sorted(got, reverse=True)
    assert got[0] > 0.99
    assert got[-1] == pytest.approx(0.1)


def test_the_schedule_counts_optimizer_steps_and_ends_with_the_run() -> None:
    # 5 batches, accumulated by 2: 3 steps an epoch, the last of one batch alone.
    record = Record()
    model = classifier(lr=0.3, warmup_epochs=1.0, warmup_lr=0.0)
    fit = trainer(max_epochs=3, accumulate_grad_batches=2, callbacks=[record])
    fit.fit(model, batches([2] * 5))
    cosine = [0.15 * (1 + math.cos(math.pi * step / 6)) for step in range(6)]
    assert fit.global_step == 9
    assert record.lrs == pytest.approx([0.0, 0.1, 0.2, *cosine])


def test_max_steps_alone_fixes_the_length() -> None:
    record = Record()
    trainer(max_steps=4, callbacks=[record]).fit(classifier(lr=0.2, warmup_epochs=1.0, warmup_lr=0.0), batches([2] * 2))
    assert record.lrs == pytest.approx([0.0, 0.1, 0.2, 0.1])


def test_an_endless_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^scheduler='cosine' needs the run's length: set trainer.max_steps"):
        trainer(max_epochs=-1).fit(classifier(), batches([2]))


def test_a_warm_up_longer_than_the_run_warns_and_rises_to_the_end() -> None:
    record = Record()
    model = classifier(lr=0.4, warmup_steps=4, warmup_lr=0.0)
    with pytest.warns(UserWarning, match="warm-up of 4 steps does not end within the run of 2 steps"):
        trainer(max_epochs=1, callbacks=[record]).fit(model, batches([2] * 2))
    assert record.lrs == pytest.approx([0.0, 0.1])


# Checkpoints and resume


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_resume_continues_rates_weights_and_average_bit_exactly(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    arguments = {"warmup_epochs": 1.0, "ema_decay": 0.9, "optimizer": "adamw", "lr": 1e-3}
    whole, rest = Record(), Record()
    trainer(max_epochs=3, callbacks=[whole, keep]).fit(classifier(**arguments), batches([4] * 3))
    # Other initial weights: all that counts must come from the checkpoint.
    resumed = classifier(**arguments)
    for parameter in resumed.parameters():
        parameter.data.add_(1.0)
    trainer(max_epochs=3, callbacks=[rest, keep]).fit(resumed, batches([4] * 3), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert rest.lrs == whole.lrs[3:]
    for got, expected in ((rest.networks, whole.networks[3:]), (rest.averages, whole.averages[3:])):
        assert len(got) == 6
        for mine, theirs in zip(got, expected, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in theirs)

    # A longer run keeps the schedule it was given, and says so.
    longer = trainer(max_epochs=4, callbacks=[late := Record(), keep])
    with pytest.warns(UserWarning, match="schedule of the checkpoint is kept: it ends at step 9, .* at step 12"):
        longer.fit(classifier(**arguments), batches([4] * 3), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert late.lrs[:6] == whole.lrs[3:]


def test_a_checkpoint_taken_at_a_batch_end_holds_that_steps_average(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
    record = Record()
    trainer(max_epochs=1, callbacks=[record, keep]).fit(classifier(ema_decay=0.5), batches([4] * 2))
    saved = torch.load(tmp_path / "step=1.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(saved[f"ema_network.{name}"], value) for name, value in record.averages[0].items())


def test_a_checkpoint_loads_with_weights_only(tmp_path: Path) -> None:
    model = classifier(ema_decay=0.5, model_args={"drop_rate": 0.1}, optimizer_args={"nesterov": False})
    fit = trainer(max_epochs=1)
    fit.fit(model, batches([4] * 2))
    fit.save_checkpoint(tmp_path / "last.ckpt")
    torch.load(tmp_path / "last.ckpt", weights_only=True)
    loaded = Classifier.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert loaded.hparams == model.hparams
    images, _ = samples(4)
    assert torch.equal(loaded.eval()(images), model.eval()(images))


def test_compiling_changes_no_name_and_compiles_each_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def fake_compile(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        compiled.append(call.__self__)  # type: ignore[attr-defined]
        return lambda *a, **k: (ran.append(call.__self__), call(*a, **k))[1]  # type: ignore[attr-defined, func-returns-value]

    ran: list[Any] = []
    monkeypatch.setattr(torch, "compile", fake_compile)
    model = classifier(compile=True, ema_decay=0.5)
    fit = trainer(max_epochs=1)
    fit.fit(model, batches([4]), batches([4]))
    fit.validate(model, batches([4]), verbose=False)
    assert compiled == [model.network, model.ema_network]
    assert ran == [model.network, model.ema_network, model.ema_network]
    assert model.state_dict().keys() == classifier(ema_decay=0.5).state_dict().keys()


@pytest.mark.parametrize(
    ("compile", "mode"), [(True, None), ("default", "default"), ("reduce-overhead", "reduce-overhead")]
)
def test_the_mode_is_that_of_torch_compile(monkeypatch: pytest.MonkeyPatch, compile: Any, mode: str | None) -> None:
    given: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call, *args, **options: (given.append(options["mode"]), call)[1])
    trainer(max_epochs=1).fit(classifier(compile=compile), batches([4]))
    assert given == [mode]


@pytest.mark.parametrize(("compile", "resets"), [(False, 0), ("default", 0), ("reduce-overhead", 2)])
def test_graphs_of_an_earlier_run_are_dropped(monkeypatch: pytest.MonkeyPatch, compile: Any, resets: int) -> None:
    """Before a Trainer's run compiles or calls anything: tests/gpu trains one network after the other."""
    happened: list[str] = []
    monkeypatch.setattr(
        torch, "compile", lambda call, *args, **options: lambda x: (happened.append("call"), call(x))[1]
    )
    monkeypatch.setattr(torch.compiler, "reset", lambda: happened.append("reset"))
    model = classifier(compile=compile)
    for run in (1, 2):
        trainer(max_epochs=1).fit(model, batches([4]))
        assert happened.count("reset") == resets * run // 2
        assert not resets or happened[-2:] == ["reset", "call"]


def test_what_a_cuda_graph_overwrites_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = torch.empty(2, CLASSES)  # of every call, as by a graph
    monkeypatch.setattr(torch, "compile", lambda call, *args, **options: lambda x: returned.copy_(call(x).detach()))
    model = classifier(compile="reduce-overhead").eval()
    model.configure_model()
    images, _ = samples(2)
    logits = model(images)
    kept = logits.clone()
    model(images * 2)
    assert torch.equal(logits, kept)
    assert not torch.equal(returned, kept)


def test_a_mode_that_torch_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"compile must be true, false or one of default, .*, got 'fast'"):
        classifier(compile="fast")


def test_cuda_graphs_refuse_to_accumulate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda call, *args, **options: call)
    with pytest.raises(ValueError, match=r"compile='reduce-overhead' .* accumulate_grad_batches must be 1, got 2"):
        trainer(max_epochs=1, accumulate_grad_batches=2).fit(classifier(compile="reduce-overhead"), batches([4, 4]))
    trainer(max_epochs=1, accumulate_grad_batches=2).fit(classifier(compile="default"), batches([4, 4]))


# Averaging


def test_the_average_is_the_formula_and_moves_with_optimizer_steps_only() -> None:
    record = Record()
    model = classifier(ema_decay=0.75, lr=0.1, scheduler="none")
    expected = {name: value.double() for name, value in model.network.state_dict().items()}
    trainer(max_epochs=1, accumulate_grad_batches=2, callbacks=[record]).fit(model, batches([4] * 5))
    for index, (network, average) in enumerate(zip(record.networks, record.averages, strict=True)):
        if index in (1, 3, 4):  # where the optimizer stepped
            for name, value in network.items():
                floating = value.is_floating_point()
                expected[name] = 0.75 * expected[name] + 0.25 * value if floating else value.double()
        for name, value in average.items():
            torch.testing.assert_close(value.double(), expected[name].double(), rtol=1e-5, atol=1e-6)
    assert not torch.equal(record.averages[-1]["bn1.running_mean"], record.networks[-1]["bn1.running_mean"])
    assert any("running_mean" in name for name in expected)


def test_evaluation_and_prediction_use_the_average() -> None:
    model = classifier(ema_decay=0.9, lr=0.5, scheduler="none")
    fit = trainer(max_epochs=1)
    data = batches([4] * 3)
    fit.fit(model, data)
    images, targets = data.batches[0]
    assert model.ema_network is not None
    averaged, live = model.ema_network.eval()(images), model.network.eval()(images)
    assert not torch.allclose(averaged, live)
    [prediction, *_] = fit.predict(model, Batches([(images, torch.tensor([5, 6, 7, 8]))]))  # type: ignore[misc]
    assert prediction["index"].tolist() == [5, 6, 7, 8]
    assert torch.equal(prediction["label"], averaged.argmax(1))
    torch.testing.assert_close(prediction["probability"], averaged.softmax(1).max(1).values)
    [result] = fit.validate(model, Batches([(images, targets)]), verbose=False)
    assert result["val/loss"] == pytest.approx(F.cross_entropy(averaged, targets).item(), rel=1e-5)


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_every_part_follows_the_models_mode(ema_decay: float | None) -> None:
    """Lightning warns of modules that are in eval mode when training starts: the average must not be one of them."""
    model = classifier(ema_decay=ema_decay)
    fit = trainer(max_epochs=1, num_sanity_val_steps=1)
    fit.fit(model, batches([4] * 2), batches([4]))  # a warning would be an error
    fit.validate(model, batches([4]), verbose=False)
    fit.fit_loop.max_epochs = 2
    fit.fit(model, batches([4] * 2), batches([4]))
    assert all(part.training for part in model.modules())
    assert not any(part.training for part in model.eval().modules())


def test_averaging_starts_from_the_weights_training_starts_from() -> None:
    record = Record()
    model = classifier(ema_decay=0.5, lr=1e-9, scheduler="none", weight_decay=0.0)
    model.network.fc.weight.data.fill_(3.0)  # type: ignore[union-attr]
    trainer(max_epochs=1, callbacks=[record]).fit(model, batches([4]))
    torch.testing.assert_close(record.averages[0]["fc.weight"], torch.full((CLASSES, model.network.num_features), 3.0))


def test_half_precision_weights_and_constants_in_the_average() -> None:
    network = torch.nn.Linear(2, 2).bfloat16()
    with pytest.raises(ValueError, match=r"^ema_decay needs float32 weights .* got weight 'weight' in torch.bfloat16"):
        AverageUpdater(network, make_average(network), 0.9)
    network = torch.nn.Linear(2, 2)
    network.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=False)
    average = make_average(network)
    AverageUpdater(network, average, 0.9).update()
    assert average.mask.tolist() == [0.0, -torch.inf]


# Metrics


def by_hand(logits: Tensor, targets: Tensor) -> dict[str, float]:
    ranked = logits.argsort(dim=1, descending=True)
    hits = ranked == targets[:, None]
    return {
        "loss": F.cross_entropy(logits.double(), targets).item(),
        "top1": hits[:, :1].any(1).double().mean().item(),
        "top5": hits[:, :5].any(1).double().mean().item(),
    }


@pytest.mark.parametrize("classes", [3, 5, 9])
def test_metrics_do_not_depend_on_batch_sizes(classes: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits, targets = torch.randn(21, classes, generator=generator), torch.randint(classes, (21,), generator=generator)
    expected = by_hand(logits, targets)
    for sizes in ([21], [8, 8, 5], [20, 1], [1] * 21):
        metrics = EvaluationMetrics("multiclass", classes)
        for some_logits, some_targets in zip(logits.split(sizes), targets.split(sizes), strict=True):
            losses = F.cross_entropy(some_logits, some_targets, reduction="none")
            metrics.update(losses, some_logits, some_targets)
        assert {name: metric.compute().item() for name, metric in metrics.named_metrics()} == pytest.approx(expected)
    assert (expected["top5"] == 1.0) == (classes <= 5)


class Shards(pl.LightningDataModule):
    """21 validation samples on two ranks: 11 in batches of 4, 4, 3 and 10 in batches of 4, 4, 2."""

    def train_dataloader(self) -> Batches:
        return batches([4] * 3, seed=100 + self.trainer.global_rank)  # type: ignore[union-attr]

    def val_dataloader(self) -> Batches:
        images, targets = samples(21, seed=5)
        rank = self.trainer.global_rank  # type: ignore[union-attr]
        mine, sizes = (slice(0, 11), [4, 4, 3]) if rank == 0 else (slice(11, 21), [4, 4, 2])
        return Batches(list(zip(images[mine].split(sizes), targets[mine].split(sizes), strict=True)))


def test_two_ranks_give_the_one_process_value(tmp_path: Path) -> None:
    # Rank-local BatchNorm statistics, averaged weights and unequal last batches, all in one run.
    fit = trainer(
        max_epochs=2,
        devices=2,
        strategy="ddp_spawn",
        callbacks=[LeavesItsGroup(), ModelCheckpoint(tmp_path, "last", save_top_k=1)],
    )
    fit.fit(classifier(lr=0.05, ema_decay=0.5), datamodule=Shards())
    model = Classifier.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True).eval()
    images, targets = samples(21, seed=5)
    with torch.no_grad():
        expected = by_hand(model(images), targets)
    got = {name: fit.callback_metrics[f"val/{name}"].item() for name in expected}
    assert got["top1"] == pytest.approx(expected["top1"], abs=1e-7)
    assert got["top5"] == pytest.approx(expected["top5"], abs=1e-7)
    assert got["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert 0.0 < expected["top1"] < expected["top5"] < 1.0


# Batches


def test_three_classes_soft_targets_and_logged_names() -> None:
    images, targets = samples(8, classes=3)
    soft = F.one_hot(targets, 3).float() * 0.7 + 0.1
    model = classifier(num_classes=3, label_smoothing=0.1)
    fit = trainer(max_epochs=1)
    fit.fit(model, Batches([(images, soft)]), Batches([(images, soft)]))
    assert {"train/loss", "lr", "val/loss", "val/top1", "val/top5"} <= fit.callback_metrics.keys()
    logits = model.eval()(images).detach()
    assert fit.callback_metrics["val/top5"] == 1.0
    assert fit.callback_metrics["val/top1"].item() == pytest.approx(
        (logits.argmax(1) == targets).double().mean().item()
    )
    expected = -(soft * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(fit.callback_metrics["val/loss"], expected)


def test_label_smoothing_applies_to_training_alone() -> None:
    images, targets = samples(6)
    model = classifier(label_smoothing=0.3, scheduler="none", lr=1e-12)
    fit = trainer(max_epochs=1)
    fit.fit(model, Batches([(images, targets)]))
    logits = model.train()(images)
    smooth = F.one_hot(targets, CLASSES) * 0.7 + 0.3 / CLASSES
    expected = -(smooth * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(fit.callback_metrics["train/loss"], expected.detach(), rtol=1e-4, atol=1e-5)


def test_multilabel_trains_evaluates_and_predicts() -> None:
    images, _ = samples(12)
    targets = torch.zeros(12, 4)
    targets[torch.arange(12), torch.arange(12) % 4] = 1.0
    targets[::3, 0] = 1.0
    model = classifier(num_classes=4, task="multilabel", label_smoothing=0.2)
    fit = trainer(max_epochs=1)
    data = Batches(list(zip(images.split(5), targets.split(5), strict=True)))
    fit.fit(model, data)
    [result] = fit.test(model, data, verbose=False)
    logits = model.eval()(images).detach()
    precisions = []
    for label in range(4):
        order = logits[:, label].argsort(descending=True)
        hits = targets[order, label]
        precision = hits.cumsum(0) / torch.arange(1, 13)
        precisions.append((precision * hits).sum() / hits.sum())
    assert result["test/mAP"] == pytest.approx(torch.stack(precisions).mean().item(), rel=1e-5)
    assert result["test/loss"] == pytest.approx(F.binary_cross_entropy_with_logits(logits, targets).item(), rel=1e-4)
    [prediction, *_] = fit.predict(model, Batches([(images, torch.arange(12))]))  # type: ignore[misc]
    torch.testing.assert_close(prediction["scores"], logits.sigmoid(), rtol=1e-4, atol=1e-5)
    assert torch.equal(prediction["label"], prediction["scores"].argmax(1))


@pytest.mark.parametrize(
    ("task", "targets", "message"),
    [
        ("multiclass", torch.zeros(4, 1, dtype=torch.int64), r"int64 \(4,\) or float \(4, 7\) .*int64 \(4, 1\)$"),
        ("multiclass", torch.zeros(4, dtype=torch.int32), r"got torch.int32 \(4,\)$"),
        ("multiclass", torch.zeros(4, 6), r"got torch.float32 \(4, 6\)$"),
        ("multilabel", torch.zeros(4, dtype=torch.int64), r"float \(4, 7\) for task='multilabel'"),
    ],
)
def test_wrong_targets_are_refused(task: Any, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"^targets must be .*{message}"):
        classifier(task=task).training_step((torch.zeros(4, 3, 32, 32), targets), 0)


def test_the_images_dtype_must_fit_the_precision() -> None:
    images, targets = samples(4)
    half = Batches([(images.bfloat16(), targets)])
    message = r"^images must be torch.float32 under trainer.precision='32-true', got torch.bfloat16: set the data's"
    with pytest.raises(ValueError, match=message):
        trainer(max_epochs=1).fit(classifier(), half)
    with pytest.raises(ValueError, match=r"^images must be torch.float32 .* got torch.uint8"):
        trainer(max_epochs=1, precision="bf16-mixed").fit(classifier(), Batches([(images.byte(), targets)]))
    for precision in ("bf16-mixed", "bf16-true"):
        fit = trainer(max_epochs=1, precision=precision)
        fit.fit(classifier(), half, half)
        assert fit.callback_metrics["train/loss"].dtype == torch.float32
        assert math.isfinite(fit.callback_metrics["val/loss"].item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_a_mean_loss_of_many_samples_in_half_precision(task: Task, dtype: torch.dtype) -> None:
    """`precision="bf16-true"` and `"16-true"` convert the whole module, metrics included."""
    metrics = EvaluationMetrics(task, 3).to(dtype)
    logits, targets = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
    for _ in range(2):
        for i in range(3000):
            targets_now = targets if task == "multiclass" else F.one_hot(targets, 3)
            metrics.update(torch.full((4,), 2.0 + i % 2 / 2), logits, targets_now)
        loss = dict(metrics.named_metrics())["loss"]
        assert loss.compute().dtype == torch.float32
        assert loss.compute().item() == 2.25
        loss.reset()


@pytest.mark.parametrize("option", [{"limit_train_batches": 0}, {"max_steps": 0}], ids=str)
def test_a_run_without_training_batches_is_left_to_the_trainer(option: dict[str, int]) -> None:
    fit = trainer(max_epochs=1, **option)
    fit.fit(classifier(warmup_epochs=1.0), batches([4]))
    assert fit.global_step == 0


@pytest.mark.parametrize("threshold", [None, 0.2])
@pytest.mark.parametrize("soft", [False, True])
def test_binary_cross_entropy_is_timms(threshold: float | None, soft: bool) -> None:
    """timm smooths hard labels in its loss, and mixed ones in its Mixup."""
    model = classifier(loss="binary_cross_entropy", target_threshold=threshold, label_smoothing=0.1)
    logits = torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(6)
    targets = labels
    theirs = BinaryCrossEntropy(smoothing=0.1, target_threshold=threshold)(logits, labels)
    if soft:
        targets = 0.7 * F.one_hot(labels, CLASSES).float() + 0.3 * F.one_hot(labels.flip(0), CLASSES).float()
        mixed = mixup_target(labels, CLASSES, 0.7, 0.1)
        theirs = BinaryCrossEntropy(smoothing=0.1, target_threshold=threshold)(logits, mixed)
    torch.testing.assert_close(model._training_loss(logits, targets), theirs)
    hard = model._losses(logits, labels, 0.0)
    torch.testing.assert_close(hard, F.cross_entropy(logits, labels, reduction="none"))  # what evaluation reports


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "bce"}, r"^loss must be 'cross_entropy' or 'binary_cross_entropy', got 'bce'$"),
        ({"loss": "binary_cross_entropy", "task": "multilabel"}, "^loss is for task='multiclass', got"),
        (
            {"target_threshold": 0.2},
            r"^target_threshold must be in \[0, 1\) and is for loss='binary_cross_entropy', got 0.2",
        ),
        (
            {"loss": "binary_cross_entropy", "target_threshold": 1.0},
            r"^target_threshold must be in \[0, 1\) .* got 1.0",
        ),
    ],
)
def test_losses_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**arguments)
