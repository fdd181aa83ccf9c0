"""Images that cannot be decoded: found, named, and kept out of the way without losing a step."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Literal, Protocol

import numpy as np

from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Request
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.sources.imagefile import diagnose

OnBadImage = Literal["raise", "substitute"]


class Steps(Protocol):
    """The planned samples of every step of a pass, this rank's."""

    def __len__(self) -> int:
        """Number of steps."""

    def __getitem__(self, step: int) -> Indices:
        """Sample indices of a step."""


class BadImageError(RuntimeError):
    """An image could not be decoded; the message names the file and the reason."""


class BadImageWarning(UserWarning):
    """An image could not be decoded and was left out or replaced."""


class BadImages:
    """The bad images met so far, and what comes in their place.

    Args:
        mode: "raise" at the first one, or "substitute".
        exactly_once: for evaluation: a bad image's row is left out, never replaced by a second copy of another
            sample. Otherwise (training, where every batch has its full size) a neighbour of the batch takes its place.
    """

    def __init__(self, mode: OnBadImage, exactly_once: bool) -> None:
        self.mode = mode
        self.exactly_once = exactly_once
        self.reasons: dict[int, str] = {}
        """Sample index to reason, of every bad image met."""
        self._borrowed: dict[int, int] = {}  # sample index to the step it was moved to, in this pass

    def register(self, culprits: dict[int, str], names: dict[int, str]) -> None:
        """Take note of bad images, or raise naming the first.

        Args:
            culprits: sample index to reason.
            names: sample index to file name.
        """
        for index, reason in culprits.items():
            if self.mode == "raise":
                raise BadImageError(f"{names[index]}: {reason}")
            self.reasons[index] = reason
            done = "left out" if self.exactly_once else "replaced"
            warnings.warn(
                f"bad image {done}: {names[index]}: {reason} ({len(self.reasons)} so far)",
                BadImageWarning,
                stacklevel=2,
            )

    def start_from(self, step: int) -> None:
        """Forget which samples were moved into steps from `step` on: these steps are about to be planned again."""
        self._borrowed = {index: to for index, to in self._borrowed.items() if to < step}

    def rows(self, batches: Steps, step: int) -> Indices:
        """The samples of a step without the bad ones, never empty.

        Args:
            batches: the plan of the pass.
            step: which step of it.
        """
        planned = batches[step]
        if not self.reasons:
            return planned
        good = self._good(planned)
        if self.exactly_once:
            return good if len(good) else self._borrow(batches, step)
        if len(good) == len(planned):
            return planned
        if not len(good):
            good = self._first_good(batches)
        bad = np.isin(planned, list(self.reasons))
        replaced = planned.copy()
        replaced[bad] = np.resize(good, int(bad.sum()))
        return replaced

    def _good(self, planned: Indices) -> Indices:
        gone = [*self.reasons, *self._borrowed] if self.exactly_once else list(self.reasons)
        return planned[~np.isin(planned, gone)]

    def _borrow(self, batches: Steps, step: int) -> Indices:
        """One sample of a later step, so that this rank makes the step that the other ranks make."""
        for later in range(step + 1, len(batches)):
            good = self._good(batches[later])
            if len(good):
                self._borrowed[int(good[0])] = step
                return good[:1]
        raise BadImageError(
            f"step {step} has no image left that can be decoded, and no later step of this rank has one to spare: "
            f"{len(self.reasons)} bad images so far; remove them from the data set"
        )

    def _first_good(self, batches: Steps) -> Indices:
        for step in range(len(batches)):
            good = self._good(batches[step])
            if len(good):
                return good[:1]
        raise BadImageError(f"no image of this rank's {len(batches)} steps can be decoded")


def find_culprits(decoding: Decoding, request: Request, indices: Indices) -> dict[int, str]:
    """Which samples of a batch cannot be decoded, each tried alone on the device that failed.

    Args:
        decoding: of the pipeline that failed.
        request: the batch it failed on.
        indices: (N,) its sample indices.

    Returns:
        Sample index to reason.
    """
    alone = dataclasses.replace(decoding, batch_size=1, prefetch=1)
    culprits: dict[int, str] = {}
    pipe: DecodePipeline | None = None
    for row in range(len(indices)):
        if int(indices[row]) in culprits:
            continue
        pipe = pipe or DecodePipeline(alone)
        pipe.start(request.row(row))
        try:
            pipe.pop()
        except DecodeError as error:
            pipe.close()
            pipe = None
            culprits[int(indices[row])] = diagnose(os.fsdecode(bytes(request.paths[row]))) or _last_words(error)
    if pipe is not None:
        pipe.close()
    return culprits


def _last_words(error: DecodeError) -> str:
    """What DALI says of the failure, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line and not line.startswith("Critical error")]
    return "DALI cannot decode it: " + (telling or lines or ["no reason given"])[0]
