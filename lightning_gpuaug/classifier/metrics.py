"""Evaluation metrics whose value does not depend on batch size, rank count or uneven last batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy, MultilabelAveragePrecision

Task = Literal["multiclass", "multilabel"]


class _Mean(MeanMetric):
    """A mean whose sums stay float32 in a module of half precision, where bfloat16 could not count beyond 256."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], *args: Any, **kwargs: Any) -> nn.Module:
        """Move, as `fn` does, without what it does to the type."""
        return super()._apply(lambda tensor: fn(tensor).to(tensor.dtype), *args, **kwargs)


class EvaluationMetrics(nn.Module):
    """Loss and quality over one evaluation pass.

    Each metric sums over samples and divides once, after adding up all ranks, so each sample weighs the same.

    "multiclass": `loss`, `top1`, `top5` (top-C with fewer than five classes C). "multilabel": `loss`, `mAP` (mean
    over labels of the exact average precision; keeps all scores until the pass ends, 4·C bytes a sample and rank).
    """

    def __init__(self, task: Task, num_classes: int) -> None:
        """Build empty metrics."""
        super().__init__()
        # No update may wait for the GPU: input validation and NaN checks read values back, so both are off. And no
        # MetricCollection: it merges metrics whose states agree after the first batch, as top-1 and top-5 may.
        # The mean takes one loss a sample, for torchmetrics drops a batch's weight when its NaN check is off.
        metrics: dict[str, Metric] = {"loss": _Mean(nan_strategy="disable")}
        if task == "multiclass":
            for name, k in (("top1", 1), ("top5", min(5, num_classes))):
                metrics[name] = MulticlassAccuracy(num_classes, top_k=k, average="micro", validate_args=False)
        else:
            metrics["mAP"] = MultilabelAveragePrecision(num_classes, average="macro", validate_args=False)
        self._task = task
        self._metrics = nn.ModuleDict(metrics)

    def update(self, losses: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """Take in one batch.

        Args:
            losses: float32 (N,), each sample's loss.
            logits: float (N, C).
            targets: int64 (N,), or float (N, C); a soft multiclass target counts as its most probable class.
        """
        for name, metric in self.named_metrics():
            if name == "loss":
                metric.update(losses)
            elif self._task == "multilabel":
                metric.update(logits.sigmoid(), targets.long())
            else:
                metric.update(logits, targets.argmax(dim=1) if targets.ndim == 2 else targets)

    def named_metrics(self) -> list[tuple[str, Metric]]:
        """`(name, metric)` pairs, ready to be logged."""
        return [(name, metric) for name, metric in self._metrics.items() if isinstance(metric, Metric)]
