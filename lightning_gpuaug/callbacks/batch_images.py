"""Find images, targets and class names in batches and data sets of any make."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lightning_gpuaug.recipe import Normalize

_TARGET_KEYS = ("label", "labels", "target", "targets", "y")
_DEEPEST_DATASET = 4  # Subset(Subset(…)): how far down to look


@dataclass(frozen=True)
class BatchImages:
    """What a batch shows.

    Attributes:
        views: one or more tensors of equally many images, (N, 1 or 3, H, W) or (N, H, W, 1 or 3).
        targets: (N,) labels or (N, C) scores, if there are any.
    """

    views: tuple[torch.Tensor, ...]
    targets: torch.Tensor | None


def find_images(batch: object) -> BatchImages | None:
    """The images and targets of a batch: tensors in tuples, lists, mappings and dataclasses.

    Images are the first tensor of four dimensions with one or three channels, together with its neighbours in the same
    list if they are images of as many samples (views). Targets are the tensor under a key such as "label" or "target",
    else the first tensor of one or two dimensions and as many rows.

    Returns:
        None when there are no images.
    """
    views = _views(batch)
    if not views:
        return None
    rows = views[0].shape[0]
    candidates = [t for t in _tensors(batch) if t.ndim in (1, 2) and t.shape[0] == rows]
    if isinstance(batch, Mapping):
        named = [batch[key] for key in _TARGET_KEYS if isinstance(batch.get(key), torch.Tensor)]
        candidates = [t for t in named if t.ndim in (1, 2) and t.shape[0] == rows] or candidates
    return BatchImages(views, candidates[0] if candidates else None)


def _is_images(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.ndim == 4
        and len(value) > 0
        and (value.is_floating_point() or value.dtype == torch.uint8)
        and (value.shape[1] in (1, 3) or value.shape[3] in (1, 3))
    )


def _children(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for child in _children(value):
        yield from _tensors(child)


def _views(value: object) -> tuple[torch.Tensor, ...]:
    if isinstance(value, torch.Tensor):
        return (value,) if _is_images(value) else ()
    children = _children(value)
    together = [child for child in children if isinstance(child, torch.Tensor) and _is_images(child)]
    if together:
        return tuple(t for t in together if t.shape[0] == together[0].shape[0])
    for child in children:
        found = _views(child)
        if found:
            return found
    return ()


def datasets_of(loaders: object) -> Iterator[object]:
    """The data sets behind a DataLoader, or the first of several, from the outermost wrapper to the innermost."""
    while isinstance(loaders, Mapping | Sequence) and not isinstance(loaders, str) and loaders:
        loaders = next(iter(loaders.values())) if isinstance(loaders, Mapping) else loaders[0]
    dataset: Any = loaders
    for _ in range(_DEEPEST_DATASET):
        dataset = getattr(dataset, "dataset", None)
        if dataset is None:
            return
        yield dataset


def normalize_of(dataset: object) -> Normalize | None:
    """What torchvision's `Normalize` among the data set's transforms does; None if there is none."""
    transform = getattr(dataset, "transform", None)
    for step in getattr(transform, "transforms", ()):
        if type(step).__name__ == "Normalize" and len(step.mean) == len(step.std) == 3:
            mean, std = ([float(value) for value in values] for values in (step.mean, step.std))
            return Normalize((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
    return None
