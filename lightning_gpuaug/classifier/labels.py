"""Whether the labels of data that is known are such as a task takes: said before the first batch, not in it."""

from __future__ import annotations

import numpy as np

from lightning_gpuaug.classifier.metrics import Task
from lightning_gpuaug.data import ImageDataModule, Stage
from lightning_gpuaug.sources.base import sums_to_one

_NEEDS = {
    "multiclass": "class numbers or soft labels that sum to 1 for task='multiclass' (several: task='multilabel')",
    "multilabel": "a vector of numbers, one a class, for task='multilabel'",
}


def require_labels(data: object, stage: Stage, task: Task, num_classes: int) -> None:
    """Look at all labels of a stage.

    Args:
        data: what the Trainer has; anything but an `ImageDataModule` is not looked at.
        stage: whose labels, if there are any and they are known before samples are fetched.
        task: of the classifier.
        num_classes: outputs of the network.

    Raises:
        ValueError: names the first sample whose label the task cannot have.
    """
    if not isinstance(data, ImageDataModule) or (targets := data.targets(stage)) is None:
        return
    if targets.ndim == 1 and task == "multiclass" and targets.dtype == np.int64:
        wrong = targets >= num_classes
        needs = f"classes from 0 to {num_classes - 1}, for num_classes={num_classes}"
    elif targets.ndim == 2:
        if targets.shape[1] != num_classes:
            raise ValueError(
                f"the {stage} data has {targets.shape[1]} numbers a label, the classifier {num_classes} classes"
            )
        wrong = ~sums_to_one(targets) if task == "multiclass" else np.zeros(len(targets), dtype=bool)
        needs = _NEEDS[task]
    else:
        wrong, needs = np.ones(len(targets), dtype=bool), _NEEDS[task]
    if wrong.any():
        row = int(np.argmax(wrong))
        found = f"that of {data.sample_name(row, stage)} is {targets[row].tolist()}"
        raise ValueError(f"labels of the {stage} data must be {needs}; {found}")
