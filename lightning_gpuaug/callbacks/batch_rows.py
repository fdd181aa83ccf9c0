"""How many samples a batch of any structure holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch


def batch_rows(batch: object) -> int | None:
    """Rows of a batch: the length of the first tensor found in it, depth first.

    Looks into mappings, lists, tuples and dataclasses. A nested list of 3-D tensors, as detection loaders give images
    of different sizes, counts as that many rows.

    Returns:
        None when there is no tensor with a first dimension.
    """
    # Nearly every batch is like this, and is asked about at every step.
    first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
    if isinstance(first, torch.Tensor) and first.ndim:
        return first.shape[0]
    return _rows(batch, nested=False)


def _rows(value: object, nested: bool) -> int | None:
    if isinstance(value, torch.Tensor):
        return value.shape[0] if value.ndim else None
    if isinstance(value, list | tuple):
        if nested and value and all(isinstance(item, torch.Tensor) and item.ndim == 3 for item in value):
            return len(value)
        children = list(value)
    elif isinstance(value, Mapping):
        children = list(value.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        children = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return None
    return next((rows for child in children if (rows := _rows(child, nested=True)) is not None), None)
