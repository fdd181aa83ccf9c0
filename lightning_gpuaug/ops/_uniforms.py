"""The public `uniforms`, and what serves it without the native library."""

from __future__ import annotations

import torch

from lightning_gpuaug.ops._arguments import check_integer, check_tensor
from lightning_gpuaug.ops.reference_math import philox

SCHEMAS = {"uniforms": "uniforms(Tensor keys, Tensor slots, int epoch, int seed) -> Tensor"}


def uniforms(keys: torch.Tensor, slots: torch.Tensor, *, epoch: int, seed: int) -> torch.Tensor:
    """Uniform numbers in [0, 1) on a grid of 2**-24, keyed by (seed, epoch, key, slot) and nothing else.

    The words of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) with the key
    (seed, epoch) and the counter (key's low word, key's high word, slot, 0), the same on every machine.

    Args:
        keys: int64, shape (N,), on the CPU.
        slots: int64, shape (S,), on the CPU, 0..2**32-1. A slot's numbers do not depend on which others are asked for.
        epoch: its low 32 bits count.
        seed: its low 32 bits count.

    Returns:
        float64, shape (N, S, 4).

    Raises:
        ValueError: keys or slots are not int64 on the CPU, or epoch or seed is not an integer of 64 bits.
        RuntimeError: they have more or fewer dimensions than one.
    """
    check_integer("uniforms", "epoch", epoch)
    check_integer("uniforms", "seed", seed)
    for name, tensor in (("keys", keys), ("slots", slots)):
        check_tensor("uniforms", name, tensor)
        if tensor.dtype != torch.int64 or tensor.device.type != "cpu":
            raise ValueError(f"uniforms: {name} must be int64 on the CPU, got {tensor.dtype} on {tensor.device}")
    drawn: torch.Tensor = torch.ops.lightning_gpuaug.uniforms(keys, slots, epoch, seed)
    return drawn


def plain_uniforms(keys: torch.Tensor, slots: torch.Tensor, epoch: int, seed: int) -> torch.Tensor:
    """The same by torch."""
    if keys.ndim != 1 or slots.ndim != 1:
        raise RuntimeError(
            f"uniforms: keys and slots must have one dimension, got {tuple(keys.shape)} and {tuple(slots.shape)}"
        )
    word = 0xFFFFFFFF
    none = torch.zeros((len(keys), len(slots)), dtype=torch.int64)
    low, high = (keys & word)[:, None] + none, (keys >> 32 & word)[:, None] + none
    words = philox((seed & word, epoch & word), [low, high, (slots & word) + none, none])
    return (torch.stack(words, -1) >> 8).double() * 2.0**-24


def _fake(keys: torch.Tensor, slots: torch.Tensor, epoch: int, seed: int) -> torch.Tensor:
    return keys.new_empty((keys.shape[0], slots.shape[0], 4), dtype=torch.float64)


def register(library: torch.library.Library) -> None:
    """Add the plain kernel, for when there is no native one, and the fake."""
    library.impl("uniforms", plain_uniforms, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("lightning_gpuaug::uniforms", _fake, lib=library)
