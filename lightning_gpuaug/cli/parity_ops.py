"""Op by op: the same images, the same parameters, our op and the peer's, and how far the pixels lie apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug import ops
from lightning_gpuaug.augment.policies import GEOMETRIC
from lightning_gpuaug.cli.peers import Forced, forced_ops
from lightning_gpuaug.ops.record import VERSION, WORDS, Word

LEVELS = 256
MOST_APART = 0.002
"""Share of the values that may differ by more than one level: a threshold in float32 that a value just meets."""
WARPED_RINGS = 2.0
"""The same for torchvision's warps, in rows of the image: the ring that torchvision blends with the fill twice, and
nearest neighbours at ties (see docs/augment.md)."""
MEAN_APART_BLURRED = 1.0
"""Levels between a true Gaussian and Pillow's three box blurs, on average."""


@dataclass(frozen=True)
class OpParity:
    """How far one op of ours is from the peer's, over all images, magnitudes and signs.

    Attributes:
        peer: "timm" or "torchvision".
        op: the peer's name.
        cases: parameter settings.
        size: height and width of the images, pixels.
        mean: difference, levels of 0..255.
        median: of the absolute differences of all values.
        p99: their 99th percentile.
        p999: their 99.9th percentile.
        largest: the largest.
        equal: share of values that are the same, 0..1.
        over_one: share of values that differ by more than one level.
        most_over_one: how large that share may be: what is documented.
        most_mean: how large the mean may be.
    """

    peer: str
    op: str
    cases: int
    size: int
    mean: float
    median: int
    p99: int
    p999: int
    largest: int
    equal: float
    over_one: float
    most_over_one: float = MOST_APART
    most_mean: float = LEVELS

    @property
    def agrees(self) -> bool:
        """Whether the difference is no more than is documented."""
        return self.over_one <= self.most_over_one and self.mean <= self.most_mean


def compare_ops(
    images: NDArray[np.uint8], peers: tuple[str, ...], device: torch.device, done: Callable[[], None] = lambda: None
) -> list[OpParity]:
    """Compare every op of the peers' policies.

    Args:
        images: (N, S, S, 3) uint8.
        peers: which ones.
        device: where our ops run.
        done: called after each op.
    """
    size = images.shape[1]
    groups: dict[tuple[str, str], list[Forced]] = {}
    for case in forced_ops(size, size):
        if case.peer in peers:
            groups.setdefault((case.peer, case.op), []).append(case)
    result = []
    for (peer, op), cases in groups.items():
        limits = _limits(peer, op, size)
        result.append(op_parity(peer, op, len(cases), size, _differences(images, cases, device), *limits))
        done()
    return result


def _differences(images: NDArray[np.uint8], cases: list[Forced], device: torch.device) -> NDArray[np.int64]:
    """How many values differ by how many levels: (256,)."""
    counts = np.zeros(LEVELS, dtype=np.int64)
    pixels = torch.from_numpy(images).to(device)
    for case in cases:
        records = torch.zeros(len(images), WORDS, dtype=torch.int32)
        records[:, Word.VERSION] = VERSION
        records[:, Word.FILL] = case.fill[0] | case.fill[1] << 8 | case.fill[2] << 16
        records[:, Word.PROGRAM : Word.PROGRAM + len(case.words)] = torch.from_numpy(case.words.copy())
        ours = ops.augment(pixels, records, dtype=torch.uint8).permute(0, 2, 3, 1).cpu().numpy().astype(np.int16)
        theirs = np.stack([case.apply(image) for image in images])
        counts += np.bincount(np.abs(ours - theirs).ravel(), minlength=LEVELS)
    return counts


def _limits(peer: str, op: str, size: int) -> tuple[float, float]:
    """The largest share over one level and the largest mean of a policy's op."""
    if op.startswith("GaussianBlur"):
        return 1.0, MEAN_APART_BLURRED
    warped = peer == "torchvision" and op.startswith(GEOMETRIC)
    return WARPED_RINGS / size if warped else MOST_APART, LEVELS


def op_parity(
    peer: str, op: str, cases: int, size: int, counts: NDArray[np.int64], most_over_one: float, most_mean: float
) -> OpParity:
    """Sum up an op.

    Args:
        peer: as of `OpParity`.
        op: as of `OpParity`.
        cases: as of `OpParity`.
        size: as of `OpParity`.
        counts: (256,) how many values differ by how many levels.
        most_over_one: as of `OpParity`.
        most_mean: as of `OpParity`.
    """
    total = int(counts.sum())
    cumulative = np.cumsum(counts) / total

    def quantile(share: float) -> int:
        return int(np.searchsorted(cumulative, share))

    return OpParity(
        peer, op, cases, size,
        mean=float(counts @ np.arange(LEVELS)) / total,
        median=quantile(0.5), p99=quantile(0.99), p999=quantile(0.999),
        largest=int(np.flatnonzero(counts).max()),
        equal=float(cumulative[0]),
        over_one=float(1.0 - cumulative[1]),
        most_over_one=most_over_one, most_mean=most_mean,
    )  # fmt: skip
