"""Draws the ops of a policy for every sample of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.augment import timm_policies
from lightning_gpuaug.augment.distributions import DrawAt, Floats, Ints, beta, dirichlet, each, normal
from lightning_gpuaug.augment.policies import Words, autoaugment_table, policy_words
from lightning_gpuaug.augment.slots import Slot
from lightning_gpuaug.augment.timm_policies import TimmPolicy
from lightning_gpuaug.ops.record import CHAIN_END
from lightning_gpuaug.recipe import NAMED_POLICIES, AugMix, AutoAugment, AutoPolicy, RandAugment, TrivialAugmentWide

_DEEPEST = 3


@dataclass(frozen=True)
class AutoProgram:
    """The ops of a policy for N samples.

    Attributes:
        words: (N, K, 3) int32.
        fill: of uncovered pixels.
        weights: (N, 1 + chains) of the unchanged image and of each AugMix chain; None for other policies.
    """

    words: Words
    fill: tuple[int, int, int]
    weights: Floats | None = None


def auto_program(
    policy: AutoPolicy | str, n: int, height: int, width: int, mean: tuple[float, float, float], draw_at: DrawAt
) -> AutoProgram:
    """Draw a policy's ops for n samples.

    Args:
        policy: of the recipe.
        n: samples.
        height: of the images.
        width: of the images.
        mean: of the normalisation; the fill of timm's policies.
        draw_at: the samples' uniform numbers.
    """
    if isinstance(policy, str) and policy in NAMED_POLICIES:
        policy = NAMED_POLICIES[policy]
    if isinstance(policy, str):
        return _timm(timm_policies.parse(policy), n, height, width, mean, draw_at)
    table = policy_words(policy, height, width)
    rows = np.arange(n)
    match policy:
        case RandAugment():
            u = draw_at(rows, Slot.AUTO_OP + np.arange(policy.num_ops))
            words = table[_index(u[..., 0], len(table)), policy.magnitude, _index(u[..., 2], 2)]
        case TrivialAugmentWide():
            u = draw_at(rows, np.array([Slot.AUTO_OP]))
            words = table[_index(u[..., 0], len(table)), _index(u[..., 1], table.shape[1]), _index(u[..., 2], 2)]
        case AutoAugment():
            ops, probabilities, bins = autoaugment_table(policy.policy)
            u = draw_at(rows, np.array([Slot.AUTO, Slot.AUTO_OP, Slot.AUTO_OP + 1]))
            pair = _index(u[:, 0, 0], len(ops))
            words = table[ops[pair], bins[pair], _index(u[:, 1:, 2], 2)]
            words[u[:, 1:, 3] > probabilities[pair]] = 0
        case AugMix():
            u = draw_at(rows, Slot.AUTO_OP + np.arange(_longest(policy.chain_depth) * policy.mixture_width))
            words = table[_index(u[..., 0], len(table)), _index(u[..., 1], policy.severity), _index(u[..., 2], 2)]
            words = _as_chains(words, policy.mixture_width, policy.chain_depth, n, draw_at)
            share = beta(policy.alpha, np.arange(n), Slot.AUGMIX_SHARE, draw_at)
            return AutoProgram(words, policy.fill, _weights(share, policy.alpha, policy.mixture_width, n, draw_at))
    return AutoProgram(words, policy.fill)


def _longest(depth: int) -> int:
    """Ops of the longest chain: AugMix draws 1 to 3 where the depth is not fixed."""
    return _DEEPEST if depth < 0 else depth


def _index(u: Floats, count: int) -> Ints:
    index: Ints = (u * count).astype(np.int64)
    return index


def _weights(share: Floats, alpha: float, width: int, n: int, draw_at: DrawAt) -> Floats:
    """`share` for the unchanged image, the rest spread over the chains."""
    chains = dirichlet(alpha, width, np.arange(n), Slot.AUGMIX_WEIGHTS, draw_at) if width > 1 else np.ones((n, 1))
    return np.concatenate([share[:, None], chains * (1.0 - share)[:, None]], axis=1)


def _as_chains(words: Words, width: int, depth: int, n: int, draw_at: DrawAt) -> Words:
    """Cut (N, width * longest, 3) words into chains: shortened, each with an end mark that survives an identity."""
    longest = _longest(depth)
    if depth > 0:
        depths = np.full((n, width), depth)
    else:
        depths = 1 + _index(draw_at(np.arange(n), np.array([Slot.AUTO]))[:, 0, :width], longest)
    chains = words.reshape(n, width, longest, words.shape[-1]).copy()
    chains[np.arange(longest) >= depths[:, :, None]] = 0
    last = depths - 1
    at = np.ix_(np.arange(n), np.arange(width))
    chains[at[0], at[1], last, 0] |= CHAIN_END << 16
    return chains.reshape(n, width * longest, words.shape[-1])


def _timm(policy: TimmPolicy, n: int, height: int, width: int, mean: tuple[float, float, float],
          draw_at: DrawAt) -> AutoProgram:  # fmt: skip
    fill = tuple(min(255, round(255 * m)) for m in mean)
    assert len(fill) == 3
    rows = np.arange(n)
    counts = {
        "rand": policy.num_ops,
        "auto": max(map(len, policy.steps), default=0),
        "augmix": _longest(policy.depth) * policy.width,
    }
    count = counts[policy.kind]
    u = draw_at(rows, Slot.AUTO_OP + np.arange(count))
    extra = draw_at(rows, Slot.AUTO_EXTRA + np.arange(count))
    probability: NDArray[np.float64] | float = policy.probability if policy.kind == "rand" else 1.0
    magnitude: NDArray[np.float64] | float = policy.magnitude
    if policy.kind == "auto":
        ops, probabilities, magnitudes = _steps(policy)
        chosen_pair = _index(draw_at(rows, np.array([Slot.AUTO]))[:, 0, 0], len(ops))
        chosen, probability, magnitude = ops[chosen_pair], probabilities[chosen_pair], magnitudes[chosen_pair]
    elif policy.weights is not None:
        chosen = _without_replacement(policy.weights, count, n, draw_at)
    else:
        chosen = _index(u[..., 0], len(policy.ops))
    if policy.deviation == float("inf"):
        magnitude = u[..., 1] * magnitude
    elif policy.deviation > 0:
        magnitude = magnitude + policy.deviation * normal(u[..., 1], extra[..., 0])
    level: Floats = np.clip(np.broadcast_to(np.asarray(magnitude), chosen.shape), 0.0, policy.highest)
    chosen = np.where(u[..., 3] <= probability, chosen, -1)
    words = timm_policies.words_of(policy.ops, chosen, level, u[..., 2] > 0.5, extra[..., 1] >= 0.5, extra[..., 2],
                                   height, width, policy.translate)  # fmt: skip
    if policy.kind != "augmix":
        return AutoProgram(words, fill)
    words = _as_chains(words, policy.width, policy.depth, n, draw_at)
    share = 1.0 - beta(policy.alpha, np.arange(n), Slot.AUGMIX_SHARE, draw_at)
    return AutoProgram(words, fill, _weights(share, policy.alpha, policy.width, n, draw_at))


def _steps(policy: TimmPolicy) -> tuple[Ints, Floats, Floats]:
    """The sub-policies as arrays (P, steps): position in `ops`, probability, magnitude."""
    return (
        np.array([[policy.ops.index(step[0]) for step in pair] for pair in policy.steps]),
        np.array([[step[1] for step in pair] for pair in policy.steps]),
        np.array([[float(step[2]) for step in pair] for pair in policy.steps]),
    )


def _without_replacement(weights: tuple[float, ...], count: int, n: int, draw_at: DrawAt) -> Ints:
    """`count` different ops a sample, one after the other by weight (Efraimidis and Spirakis, 2006)."""
    slots = -(-len(weights) // 4)
    u = draw_at(np.arange(n), Slot.AUTO_CHOICE + np.arange(slots)).reshape(n, 4 * slots)[:, : len(weights)]
    waiting_time = -each(math.log1p, -u) / np.array(weights)
    chosen: Ints = np.argsort(waiting_time, axis=1, kind="stable")[:, :count]
    return chosen
