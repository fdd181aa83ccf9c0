"""Whether two data sets mean the same by their class numbers."""

from __future__ import annotations

import numpy as np

from lightning_gpuaug.sources.base import Source, some, sums_to_one


def require_same_numbers(stage: str, source: Source, train: Source) -> None:
    """Check labels that are to be compared with those of training data that has no class names.

    Args:
        stage: what `source` is for, for messages.
        source: the data.
        train: the training data, whose `classes` are None.

    Raises:
        ValueError: `source` has class names; labels of another kind; or a number that is no class of `train`.
    """
    if not (train.has_labels and source.has_labels):
        return
    require_no_names(stage, source, "training data")
    if not (train.knows_targets and source.knows_targets):
        return
    classes_beside_soft = require_same_kind(stage, source, train)
    ours = source.targets
    if classes_beside_soft and ours.ndim == 2 and ours.shape[1] != train.num_classes:
        raise ValueError(
            f"labels of the {stage} data are {_kind(source)}, those of the training data classes of {train.num_classes}"
        )
    if ours.ndim == 1 and ours.dtype == np.int64 and int(ours.max()) >= train.num_classes:
        wrong = int(np.argmax(ours >= train.num_classes))
        raise ValueError(
            f"{source.location(wrong)}: label {int(ours[wrong])} of the {stage} data is no class of the training data, "
            f"whose labels are 0..{train.num_classes - 1} (class_names of both would say which classes there are)"
        )


def require_no_names(stage: str, source: Source, beside: str) -> None:
    """Refuse labelled data with class names beside other data, `beside`, that has numbers alone."""
    if source.classes is not None and source.has_labels:
        raise ValueError(
            f"the {stage} data has names of classes ({some(source.classes, 3)}), the {beside} numbers alone: "
            "give the training data class_names, which say what its numbers stand for"
        )


def require_same_kind(stage: str, source: Source, train: Source) -> bool:
    """Refuse labels of another kind than those of the training data; nothing is said of those not known yet.

    Returns:
        Whether one has class numbers, the other soft labels (which sum to 1) of them.
    """
    known = train.knows_targets and source.knows_targets
    if not known or not (train.has_labels and source.has_labels):
        return False
    theirs, ours = train.targets, source.targets
    if {(t.ndim, t.dtype.kind) for t in (theirs, ours)} == {(1, "i"), (2, "f")}:
        if sums_to_one(theirs if theirs.ndim == 2 else ours).all():
            return True
    elif theirs.dtype == ours.dtype and theirs.shape[1:] == ours.shape[1:]:
        return False
    raise ValueError(f"labels of the {stage} data are {_kind(source)}, those of the training data {_kind(train)}")


def _kind(source: Source) -> str:
    targets = source.targets
    if targets.ndim == 2:
        return f"{targets.shape[1]} numbers each"
    return "class numbers" if targets.dtype == np.int64 else "floating-point numbers"
