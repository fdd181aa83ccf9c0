"""`Classifier`: train, evaluate and predict with any timm model."""

from __future__ import annotations

from typing import Any, Literal, get_args

import lightning.pytorch as pl
import timm
import timm.optim
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import StochasticWeightAveraging
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from timm.scheduler.scheduler import Scheduler
from torch import Tensor, nn

from lightning_gpuaug.classifier.batch_counters import BatchCounters
from lightning_gpuaug.classifier.ema import AverageUpdater, make_average
from lightning_gpuaug.classifier.labels import require_labels
from lightning_gpuaug.classifier.metrics import EvaluationMetrics, Task
from lightning_gpuaug.classifier.names import require_known_model, require_known_optimizer, require_plain
from lightning_gpuaug.classifier.schedule import Schedule, ScheduleName, rescale, run_length
from lightning_gpuaug.classifier.step_log import StepLog
from lightning_gpuaug.data import Stage

CompileMode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
"""Modes of `torch.compile`."""

_WITH_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that replay CUDA graphs."""
_AUTOCAST_INPUTS = (torch.float32, torch.float16, torch.bfloat16)


class Classifier(pl.LightningModule):
    """A timm image classifier.

    Batches are `(images, targets)`: images float (N, C, H, W), finished and on the device; targets int64 (N,), or
    float32 (N, num_classes) for soft labels ("multiclass") or 0/1 labels ("multilabel"). Predict batches are
    `(images, indices)`, indices int64 (N,).

    The images' dtype must be the network's, or any of float32, float16 and bfloat16 under autocast
    (`trainer.precision="bf16-mixed"`): nothing is cast silently.

    Logged: `train/loss` and `lr` each step (the loss of rank 0's batch); `val/loss`, `val/top1`, `val/top5`
    (`val/mAP` for "multilabel") each validation, and the same under `test/`: exact over all ranks, without label
    smoothing. With `ema_decay`, everything but training uses the averaged weights.

    Args:
        model: name of a timm model, with or without a pretrained tag; see `timm.list_models()`.
        num_classes: classes (labels, for "multilabel"), > 0.
        pretrained: start from the model's pretrained weights, which timm downloads and caches.
        model_args: further arguments of `timm.create_model`, such as `{"drop_path_rate": 0.1}`.
        task: "multiclass" (softmax cross-entropy) or "multilabel" (binary cross-entropy on each label).
        label_smoothing: share of the target spread evenly over the classes, in [0, 1); training only. For
            "multilabel" it moves each 0/1 target towards 1/2.
        channels_last: keep the network's 4-D weights in channels_last memory, the fast one on tensor cores.
        compile: run the network through `torch.compile`; a string is its mode. Names in checkpoints are the same either
            way. "reduce-overhead" and "max-autotune" replay CUDA graphs, so that the host has next to nothing to
            launch: the way to train a small network fast. They need memory for the graphs, and no
            `accumulate_grad_batches`; each call of a Trainer records them anew, and resets `torch.compile` for the
            process (what is compiled already comes from torch's cache on disk).
        optimizer: name from `timm.optim.list_optimizers()`; note that timm's "sgd" is Nesterov's and "momentum" is
            the plain one. Biases, norms and what the model names get no weight decay.
        lr: peak learning rate, > 0.
        weight_decay: ≥ 0.
        momentum: for the optimizers that have one.
        optimizer_args: further arguments of `timm.optim.create_optimizer_v2`, such as `{"layer_decay": 0.75}`.
        scheduler: "cosine", "tanh", "poly", "step", "multistep" or "none", moved after each optimizer step.
        warmup_epochs: epochs of linear warm-up, which may be a fraction. The curve ends with the run.
        warmup_steps: the same in optimizer steps, instead of `warmup_epochs`.
        warmup_lr: learning rate of the first warm-up step.
        min_lr: final learning rate of "cosine", "tanh" and "poly".
        decay_epochs: for "step" the epochs between decays; for "multistep" a rising list of epochs.
        decay_rate: factor of each decay (default 0.1), or the power of "poly" (default 1).
        ema_decay: keep an exponential moving average of the weights with this decay, in (0, 1). It starts from the
            weights that a run starts from, is updated after each optimizer step, and is part of the checkpoint.
            Single device and DDP only.
        loss: of a "multiclass" training step: "cross_entropy" (softmax), or "binary_cross_entropy", the mean over all
            classes, each a yes or no of its own, as timm's A1 to A3 have it. Evaluation always reports cross-entropy.
        target_threshold: for "binary_cross_entropy": a class whose (smoothed, mixed) target is above it counts as 1,
            another as 0; None keeps the targets.

    Raises:
        ValueError: a name that timm does not know (the nearest ones are given), or a value out of range; when a Trainer
            begins, labels of an `ImageDataModule` that are none for `task` or `num_classes`.
    """

    def __init__(
        self,
        model: str,
        num_classes: int,
        pretrained: bool = False,
        model_args: dict[str, Any] | None = None,
        task: Task = "multiclass",
        label_smoothing: float = 0.0,
        channels_last: bool = True,
        compile: bool | CompileMode = False,
        optimizer: str = "sgd",
        lr: float = 0.1,
        weight_decay: float = 1e-4,
        momentum: float = 0.9,
        optimizer_args: dict[str, Any] | None = None,
        scheduler: ScheduleName = "cosine",
        warmup_epochs: float = 0.0,
        warmup_steps: int | None = None,
        warmup_lr: float = 1e-5,
        min_lr: float = 0.0,
        decay_epochs: float | list[float] = 30.0,
        decay_rate: float | None = None,
        ema_decay: float | None = None,
        loss: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy",
        target_threshold: float | None = None,
    ) -> None:
        """Check every value, then build the network."""
        super().__init__()
        if not isinstance(num_classes, int):
            raise ValueError(f"num_classes must be a whole number, got {num_classes!r}")
        if num_classes <= 0:
            raise ValueError(f"num_classes must be > 0, got {num_classes!r}")
        for name, value in (("lr", lr), ("weight_decay", weight_decay), ("label_smoothing", label_smoothing)):
            if not isinstance(value, int | float):
                raise ValueError(f"{name} must be a number, got {value!r}")
        if task not in ("multiclass", "multilabel"):
            raise ValueError(f"task must be 'multiclass' or 'multilabel', got {task!r}")
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}")
        if not lr > 0.0:
            raise ValueError(f"lr must be > 0, got {lr!r}")
        if weight_decay < 0.0:
            raise ValueError(f"weight_decay must be ≥ 0, got {weight_decay!r}")
        if ema_decay is not None and not 0.0 < ema_decay < 1.0:
            raise ValueError(f"ema_decay must be in (0, 1), got {ema_decay!r}")
        if loss not in ("cross_entropy", "binary_cross_entropy"):
            raise ValueError(f"loss must be 'cross_entropy' or 'binary_cross_entropy', got {loss!r}")
        if loss != "cross_entropy" and task != "multiclass":
            raise ValueError(f"loss is for task='multiclass', got {loss!r} for task={task!r}")
        if target_threshold is not None and not (loss == "binary_cross_entropy" and 0.0 <= target_threshold < 1.0):
            raise ValueError(
                "target_threshold must be in [0, 1) and is for loss='binary_cross_entropy', "
                f"got {target_threshold!r} for loss={loss!r}"
            )
        if compile not in (True, False, *get_args(CompileMode)):
            raise ValueError(
                f"compile must be true, false or one of {', '.join(get_args(CompileMode))}, got {compile!r}"
            )
        require_known_model(model)
        require_known_optimizer(optimizer)
        require_plain("model_args", model_args)
        require_plain("optimizer_args", optimizer_args)
        self._schedule = Schedule(scheduler, warmup_epochs, warmup_steps, warmup_lr, min_lr, decay_epochs, decay_rate)
        self.save_hyperparameters()

        self.num_classes = num_classes
        self.task: Task = task
        self.network: nn.Module = timm.create_model(model, pretrained, num_classes=num_classes, **(model_args or {}))
        if channels_last:
            self.network.to(memory_format=torch.channels_last)
        self.ema_network: nn.Module | None = make_average(self.network) if ema_decay is not None else None
        self.val_metrics = EvaluationMetrics(task, num_classes)
        self.test_metrics = EvaluationMetrics(task, num_classes)
        self._step_log = StepLog()
        self._ema: AverageUpdater | None = None
        self._counters = BatchCounters(None)  # until training starts
        self._compiled = False
        self._planned_steps = 0
        self._scheduled_lr = lr

    @property
    def evaluation_network(self) -> nn.Module:
        """The network that validation, test and prediction use: the averaged one where there is one."""
        return self.network if self.ema_network is None else self.ema_network

    def forward(self, images: Tensor) -> Tensor:
        """Logits (N, num_classes) of float images (N, C, H, W); in eval mode those of `evaluation_network`."""
        network = self.network if self.training else self.evaluation_network
        logits: Tensor = network(images)
        # What a CUDA graph returns is overwritten when it runs again; metrics and callers may keep it until then.
        return logits.clone() if self.hparams["compile"] in _WITH_GRAPHS else logits

    def configure_model(self) -> None:
        """Compile the networks, once. In place, so that no name in a checkpoint changes.

        A Trainer calls this whenever it begins to fit or evaluate. What was recorded as CUDA graphs until then is
        dropped. torch 2.11 (2.14's code is the same) replays a graph for any network of the same kind whose parameters
        lie where the recorded one's lay, but hands the recorded network's own to the backward pass, wherever a Trainer
        has moved them since: a crash in the lucky case.
        """
        mode = self.hparams["compile"]
        if mode in _WITH_GRAPHS:
            torch.compiler.reset()
        if mode and not self._compiled:
            self._compiled = True
            for network in (self.network, self.ema_network):
                if network is not None:
                    network.compile(mode=None if mode is True else mode)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Configure timm's optimizer and, unless there is none, its scheduler stepped after each optimizer step."""
        hparams = self.hparams
        optimizer = timm.optim.create_optimizer_v2(  # type: ignore[attr-defined]
            self.network,
            opt=hparams["optimizer"],
            lr=hparams["lr"],
            weight_decay=hparams["weight_decay"],
            momentum=hparams["momentum"],
            **(hparams["optimizer_args"] or {}),
        )
        self._scheduled_lr = hparams["lr"]
        total, per_epoch = run_length(self.trainer, self._schedule)
        warmup = self._schedule.warmup_length(per_epoch)
        if 0 < total <= warmup:
            rank_zero_warn(f"the warm-up of {warmup} steps does not end within the run of {total} steps")
        self._planned_steps = max(total, warmup + 1)
        # Lightning's type wants torch's scheduler; it accepts any that `lr_scheduler_step` knows how to step.
        scheduler: Any = self._schedule.build(optimizer, total, per_epoch)
        if scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Set the learning rate of the step that follows: a function of the optimizer steps taken, nothing else.

        A scheduler that a callback has put in its place (a search for the rate, weight averaging) steps as it does.
        """
        if isinstance(scheduler, Scheduler):
            scheduler.step_update(num_updates=self.trainer.global_step)
        else:
            super().lr_scheduler_step(scheduler, metric)

    def on_fit_start(self) -> None:
        """Refuse labels that do not fit, before the first step."""
        self._check_labels("train", "val")

    def on_validation_start(self) -> None:
        """The same of validation data without a fit."""
        if self.trainer.state.fn == TrainerFn.VALIDATING:
            self._check_labels("val")

    def on_test_start(self) -> None:
        """The same of test data."""
        self._check_labels("test")

    def _check_labels(self, *stages: Stage) -> None:
        for stage in stages:
            require_labels(getattr(self.trainer, "datamodule", None), stage, self.task, self.num_classes)

    def on_train_start(self) -> None:
        """Pair the averaged weights with the live ones, now that both are where they will stay; find the counters."""
        # A compiled network counts within its kernels.
        self._counters = BatchCounters(None if self.hparams["compile"] else self.network)
        if self.ema_network is not None:
            strategy = self.trainer.strategy
            if not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
                raise ValueError(f"ema_decay needs one device or DDP, got strategy {type(strategy).__name__}")
            if any(isinstance(callback, StochasticWeightAveraging) for callback in self.trainer.callbacks):  # type: ignore[attr-defined]
                # It would reset the batch norms of the averaged network too, which nothing fills again.
                raise ValueError(
                    f"ema_decay must be None beside StochasticWeightAveraging, got {self.hparams['ema_decay']}"
                )
            self._ema = AverageUpdater(self.network, self.ema_network, self.hparams["ema_decay"])
            if self.trainer.global_step == 0:
                self._ema.start()  # the weights may have been replaced since construction
        scheduler = self.lr_schedulers()
        if self._schedule.needs_total and isinstance(scheduler, Scheduler):
            ending: Any = scheduler
            restored = ending.t_initial + ending.warmup_t
            if restored != self._planned_steps:
                rank_zero_warn(
                    f"the schedule of the checkpoint is kept: it ends at step {restored}, "
                    f"although this run would end it at step {self._planned_steps}"
                )

    def on_train_epoch_start(self) -> None:
        """Refuse what CUDA graphs cannot do, follow a new rate; here, for a callback may change both with the epoch."""
        self._follow_new_rate()
        batches, mode = self.trainer.accumulate_grad_batches, self.hparams["compile"]
        if mode in _WITH_GRAPHS and batches != 1:
            raise ValueError(
                f"compile={mode!r} replays CUDA graphs, which write each batch's gradients over those of the batch "
                f'before: accumulate_grad_batches must be 1, got {batches}; or compile with "default"'
            )

    def _follow_new_rate(self) -> None:
        """Schedule the rate that a search (`LearningRateFinder`) has set since the schedule was made."""
        scheduler: Any = self.lr_schedulers()
        if self.hparams["lr"] != self._scheduled_lr and isinstance(scheduler, Scheduler):
            rescale(scheduler, self.hparams["lr"] / self._scheduled_lr)
            self._scheduled_lr = self.hparams["lr"]
            scheduler.step_update(num_updates=self.trainer.global_step)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Step, average, log: here, and not in a batch hook, for it runs once a step and before any checkpoint."""
        super().optimizer_step(*args, **kwargs)
        self._update_average()
        self._step_log.write(self.trainer)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The batch's mean loss, a float32 scalar."""
        images, targets = batch
        self._check_batch(images, targets)
        with self._counters.one_batch():
            logits = self.network(images)
        loss = self._training_loss(logits, targets)
        # Not in the progress bar: the bar reads its values after every batch, and reading makes the host wait for
        # the GPU. For the same reason the rate is a tensor on the CPU.
        lr = torch.tensor(self.trainer.optimizers[0].param_groups[0]["lr"], dtype=torch.float64)
        values = {"train/loss": loss.detach(), "lr": lr}
        if self.automatic_optimization:
            self._step_log.note(self.trainer, values)
        else:  # no hook says when a subclass steps
            self.log_dict(values, batch_size=images.shape[0])
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        """Log the last step of a run that a callback ends."""
        self._step_log.write_last(self.trainer)

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Add one batch to `val/…`."""
        self._evaluate("val", self.val_metrics, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Add one batch to `test/…`."""
        self._evaluate("test", self.test_metrics, batch)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Predict `(images, indices)`.

        Returns:
            `index` int64 (N,): the batch's indices. `label` int64 (N,): the most probable class. `probability`
            float32 (N,): its softmax ("multiclass") or sigmoid ("multilabel"). `scores` float32 (N, num_classes):
            the probabilities of all labels, for "multilabel" only.
        """
        images, indices = batch
        self._check_images(images)
        logits = self(images).float()
        scores = logits.softmax(dim=1) if self.task == "multiclass" else logits.sigmoid()
        probability, label = scores.max(dim=1)
        prediction = {"index": indices, "label": label, "probability": probability}
        return prediction if self.task == "multiclass" else {**prediction, "scores": scores}

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As always, in the midst of a training pass too."""
        with self._counters.shown():
            return super().state_dict(*args, **kwargs)

    def _update_average(self) -> None:
        if self._ema is not None:
            self._ema.update()

    def _evaluate(self, stage: str, metrics: EvaluationMetrics, batch: tuple[Tensor, Tensor]) -> None:
        images, targets = batch
        self._check_batch(images, targets)
        logits = self(images).float()
        metrics.update(self._losses(logits, targets, 0.0), logits, targets)
        for name, metric in metrics.named_metrics():
            self.log(f"{stage}/{name}", metric, on_step=False, on_epoch=True, prog_bar=True, batch_size=images.shape[0])

    def _training_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean loss, a float32 scalar."""
        smoothing = self.hparams["label_smoothing"]
        if self.hparams["loss"] == "cross_entropy":
            return self._losses(logits, targets, smoothing, reduction="mean")
        if not targets.is_floating_point():
            targets = F.one_hot(targets, self.num_classes)
        targets = targets.float() * (1.0 - smoothing) + smoothing / self.num_classes
        if self.hparams["target_threshold"] is not None:
            targets = (targets > self.hparams["target_threshold"]).float()
        return F.binary_cross_entropy_with_logits(logits.float(), targets)

    def _losses(self, logits: Tensor, targets: Tensor, label_smoothing: float, reduction: str = "none") -> Tensor:
        """Each sample's loss, float32 (N,), or their "mean"."""
        if self.task == "multiclass":
            return F.cross_entropy(logits.float(), targets, label_smoothing=label_smoothing, reduction=reduction)
        targets = targets * (1.0 - label_smoothing) + 0.5 * label_smoothing
        losses = F.binary_cross_entropy_with_logits(logits.float(), targets, reduction=reduction)
        return losses.mean(dim=1) if reduction == "none" else losses

    def _check_images(self, images: Tensor | list[Tensor]) -> None:
        if not isinstance(images, Tensor):
            raise ValueError(
                f"Classifier takes one image a sample, got {len(images)} views: a recipe with views is for a "
                "self-supervised LightningModule of your own, whose training_step gets (list of image batches, targets)"
            )
        weight = next(self.network.parameters())
        if images.dtype == weight.dtype:
            return
        if torch.is_autocast_enabled(images.device.type) and images.dtype in _AUTOCAST_INPUTS:
            return
        raise ValueError(
            f"images must be {weight.dtype} under trainer.precision={self.trainer.precision!r}, got {images.dtype}: "
            "set the data's dtype to match, or train with 'bf16-mixed'"
        )

    def _check_batch(self, images: Tensor, targets: Tensor) -> None:
        """Shapes and dtypes alone: looking at values would make the host wait for the GPU."""
        self._check_images(images)
        rows = images.shape[0]
        if targets.is_floating_point():
            right = tuple(targets.shape) == (rows, self.num_classes)
        else:
            right = self.task == "multiclass" and tuple(targets.shape) == (rows,) and targets.dtype == torch.int64
        if not right:
            wanted = f"float ({rows}, {self.num_classes})"
            if self.task == "multiclass":
                wanted = f"int64 ({rows},) or {wanted}"
            raise ValueError(
                f"targets must be {wanted} for task={self.task!r}, got {targets.dtype} {tuple(targets.shape)}"
            )
