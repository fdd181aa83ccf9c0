"""Whole policies: both sides draw for themselves from the same images; what comes out is compared as a distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.augment import sample_params
from lightning_gpuaug.augment.explain import name_of, program_of
from lightning_gpuaug.cli.parity_statistics import STANDARD_ERRORS, histogram_distance
from lightning_gpuaug.cli.peers import Drawing, drawing, seeded
from lightning_gpuaug.ops.record import Opcode
from lightning_gpuaug.recipe import NAMED_POLICIES, AutoPolicy, TrainRecipe

COUNTED = 10
"""Images drawn for the ops' frequencies, for each one that is drawn for its pixels: small ones, which cost little."""
_SMALL = 32


@dataclass(frozen=True)
class RecipeParity:
    """How far what our policy makes of some images is from what the peer's makes of them.

    Attributes:
        peer: "timm" or "torchvision".
        recipe: `TrainRecipe.auto`.
        draws: images drawn on each side, for the pixels.
        mean: ours and theirs, of the pixels, levels of 0..255, a channel each.
        mean_apart: largest difference of a channel's mean, in standard errors.
        std: ours and theirs, of the pixels of one drawn image, averaged over the draws, a channel each.
        std_apart: largest difference of a channel's std, in standard errors.
        histogram: distance of the histograms of all pixels (earth mover's, levels), averaged over the channels.
        histogram_noise: the same distance between two runs of the peer: what chance alone makes.
        counted: images drawn on each side, for the frequencies.
        frequency: of each op, ours and theirs, applications a drawn image.
        frequency_apart: largest difference of an op's frequency, in standard errors.
        frequency_apart_of: which op's.
    """

    peer: str
    recipe: str
    draws: int
    mean: tuple[tuple[float, ...], tuple[float, ...]]
    mean_apart: float
    std: tuple[tuple[float, ...], tuple[float, ...]]
    std_apart: float
    histogram: float
    histogram_noise: float
    counted: int
    frequency: dict[str, tuple[float, float]]
    frequency_apart: float
    frequency_apart_of: str

    @property
    def agrees(self) -> bool:
        """Whether every difference is within what chance makes."""
        return max(self.mean_apart, self.std_apart, self.frequency_apart) <= STANDARD_ERRORS


@dataclass(frozen=True)
class _Drawn:
    """What one side made: D draws of each of N images.

    Attributes:
        means: (N, D, 3) of the pixels of each drawn image.
        stds: (N, D, 3).
        histogram: (3, 256) counts over all.
    """

    means: NDArray[np.float64]
    stds: NDArray[np.float64]
    histogram: NDArray[np.int64]


def compare_recipe(
    name: str, policy: AutoPolicy | str, images: NDArray[np.uint8], draws: int, seed: int, device: torch.device
) -> RecipeParity:
    """Compare one policy with its peer.

    Args:
        name: of it.
        policy: a policy, its name, or a string of timm's.
        images: (N, S, S, 3) uint8.
        draws: of each image, on each side.
        seed: of all draws.
        device: where our ops run.
    """
    if isinstance(policy, str) and policy in NAMED_POLICIES:
        policy = NAMED_POLICIES[policy]
    peer = drawing(policy, images.shape[1])
    ours = _ours(policy, images, draws, seed, device)
    with seeded(seed):
        theirs, again = (_theirs(peer, images, draws) for _ in range(2))
        counted = COUNTED * images.shape[0] * draws
        small = np.ascontiguousarray(images[0, :_SMALL, :_SMALL])
        peers_names = _their_names(drawing(policy, len(small)), small, counted)
    frequency, apart, apart_of = _frequencies(_our_names(policy, len(small), counted, seed), peers_names)
    return RecipeParity(
        peer.peer, name, images.shape[0] * draws,
        mean=_averages(ours.means, theirs.means), mean_apart=_apart(ours.means, theirs.means),
        std=_averages(ours.stds, theirs.stds), std_apart=_apart(ours.stds, theirs.stds),
        histogram=histogram_distance(ours.histogram, theirs.histogram),
        histogram_noise=histogram_distance(again.histogram, theirs.histogram),
        counted=counted, frequency=frequency, frequency_apart=apart, frequency_apart_of=apart_of,
    )  # fmt: skip


def _ours(policy: AutoPolicy | str, images: NDArray[np.uint8], draws: int, seed: int, device: torch.device) -> _Drawn:
    recipe = TrainRecipe(crop=None, hflip=0.0, auto=policy)
    size = images.shape[1]
    pixels = torch.from_numpy(images).to(device)
    drawn = []
    for epoch in range(draws):
        params = sample_params(recipe, np.arange(len(images)), epoch, seed, size, size)
        result = ops.augment(pixels, torch.from_numpy(params.records), dtype=torch.uint8, chains=params.chains)
        drawn.append(result.permute(0, 2, 3, 1).cpu().numpy())
    return _statistics(np.stack(drawn, axis=1))


def _our_names(policy: AutoPolicy | str, size: int, count: int, seed: int) -> list[list[str]]:
    """The ops of each of so many draws."""
    recipe = TrainRecipe(crop=None, hflip=0.0, auto=policy)
    records = sample_params(recipe, np.arange(count), 0, seed, size, size).records
    return [[name_of(op) for op in program_of(record) if op.opcode != Opcode.NONE] for record in records]


def _theirs(peer: Drawing, images: NDArray[np.uint8], draws: int) -> _Drawn:
    drawn = np.empty((len(images), draws, *images.shape[1:]), dtype=np.uint8)
    for i, image in enumerate(images):
        for d in range(draws):
            drawn[i, d] = peer.apply(image)
    return _statistics(drawn)


def _their_names(peer: Drawing, image: NDArray[np.uint8], count: int) -> list[list[str]]:
    """The ops of each of so many draws."""
    names = []
    for _ in range(count):
        peer.applied.clear()
        peer.apply(image)
        names.append(list(peer.applied))
    return names


def _statistics(drawn: NDArray[np.uint8]) -> _Drawn:
    """Of (N, D, S, S, 3) pixels."""
    values = drawn.reshape(*drawn.shape[:2], -1, 3)
    means = values.mean(axis=2, dtype=np.float64)
    stds = values.std(axis=2, dtype=np.float64)
    histogram = np.stack([np.bincount(drawn[..., c].ravel(), minlength=256) for c in range(3)])
    return _Drawn(means, stds, histogram)


def _averages(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    a, b = (tuple(values.mean(axis=(0, 1)).tolist()) for values in (ours, theirs))
    return a, b


def _apart(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    """Largest difference of the means over (N, D) draws, a channel each, in standard errors.

    Both sides saw the same images, so only the variance between draws of one image counts.
    """
    n, d = ours.shape[:2]
    variance = (ours.var(axis=1, ddof=1) + theirs.var(axis=1, ddof=1)).mean(axis=0) / (n * d)
    difference = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1)))
    return float(np.max(difference / np.maximum(np.sqrt(variance), 1e-9)))


def _frequencies(ours: list[list[str]], theirs: list[list[str]]) -> tuple[dict[str, tuple[float, float]], float, str]:
    """Applications a draw of each op on both sides; the largest difference in standard errors, and which op's it is."""
    frequency: dict[str, tuple[float, float]] = {}
    apart, apart_of = 0.0, ""
    for name in sorted({name for names in (*ours, *theirs) for name in names}):
        counts = [np.array([names.count(name) for names in side], dtype=np.float64) for side in (ours, theirs)]
        a, b = (float(values.mean()) for values in counts)
        frequency[name] = (a, b)
        error = math.sqrt(sum(float(values.var(ddof=1)) / len(values) for values in counts))
        if error > 0 and abs(a - b) / error > apart:
            apart, apart_of = abs(a - b) / error, name
    return frequency, apart, apart_of
