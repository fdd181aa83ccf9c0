"""What pinned memory would save of the copies to a GPU."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_COPIES = 3


def pinned_saves(batch: Any, device: torch.device) -> float:
    """Share of a batch's copy to a CUDA device that pinned memory saves, 0..1, measured on memory of its size."""
    size = sum(leaf.nbytes for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
    if size == 0:
        return 0.0
    pageable = torch.zeros(size, dtype=torch.uint8)
    pinned = pageable.pin_memory()
    slow, fast = _seconds(pageable, device), _seconds(pinned, device)
    return max(0.0, 1.0 - fast / slow)


def _seconds(source: torch.Tensor, device: torch.device) -> float:
    target = torch.empty_like(source, device=device)
    target.copy_(source)
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(_COPIES):
        target.copy_(source, non_blocking=True)
    torch.cuda.synchronize(device)
    return (time.perf_counter() - begin) / _COPIES
