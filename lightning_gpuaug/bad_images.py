"""Images that cannot be decoded: found, named, and kept out of the way without losing a step."""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lightning_gpuaug.pipeline import DecodeError, DecodePipeline, Decoding, Paths, Request, reason_of
from lightning_gpuaug.plan import Indices
from lightning_gpuaug.sources.encoded import Encoded
from lightning_gpuaug.sources.imagefile import diagnose, diagnose_encoded

_OUTSIDE = "cropping window"
"""In what DALI says of a window that is not within its image."""

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

    Training, where every batch has its full size, puts neighbours of the batch in their place. Evaluation leaves
    their rows out, so that every good sample still comes exactly once; and as no rank may skip a step that the others
    make, a step without a good image is given one of another step: the next one that has any, or, behind the last of
    those, one before it that can spare any. Only when these have been handed over already, because the damage is
    found at the very end of a first pass, or when there are fewer good images than steps, does one come twice.

    Args:
        mode: "raise" at the first one, or "substitute".
        exactly_once: for evaluation, as above.
    """

    def __init__(self, mode: OnBadImage, exactly_once: bool) -> None:
        self.mode = mode
        self.exactly_once = exactly_once
        self.reasons: dict[int, str] = {}
        """Sample index to reason, of every bad image met."""
        self._dealt: dict[tuple[int, int], Indices] = {}  # by (pass, step), where evaluation departs from the plan

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
            _warn(f"bad image {done}: {names[index]}: {reason} ({len(self.reasons)} so far)")

    def start_from(self, epoch: int, step: int) -> None:
        """Forget what was dealt to this step of this pass and to all behind it: they are about to be planned again."""
        self._dealt = {at: rows for at, rows in self._dealt.items() if (epoch - 1, 0) <= at < (epoch, step)}

    def rows(self, batches: Steps, epoch: int, step: int) -> Indices:
        """The samples of a step without the bad ones, never empty.

        Args:
            batches: the plan of the pass.
            epoch: number of the pass.
            step: which step of it.

        Raises:
            BadImageError: this rank has no good image at all.
        """
        planned = batches[step]
        if not self.reasons:
            return planned
        if self.exactly_once:
            if (epoch, step) not in self._dealt:
                self._deal(batches, epoch, step)
            return self._dealt[epoch, step]
        bad = self._is_bad(planned)
        if not bad.any():
            return planned
        good = planned[~bad] if not bad.all() else self._next_good(batches, step)
        replaced = planned.copy()
        replaced[bad] = np.resize(good, int(bad.sum()))
        return replaced

    def _is_bad(self, samples: Indices) -> NDArray[np.bool_]:
        return np.isin(samples, list(self.reasons))

    def _deal(self, batches: Steps, epoch: int, first: int) -> None:
        """Deal the good samples to the steps from `first` on, at least one to each."""
        gone = {int(i) for (e, s), rows in self._dealt.items() if e == epoch and s < first for i in rows}
        left = [
            [i for i in batches[step][~self._is_bad(batches[step])].tolist() if i not in gone]
            for step in range(first, len(batches))
        ]
        later = 0  # from here on, steps may have a sample for an empty one before them
        for at, rows in enumerate(left):
            later = max(later, at + 1)
            while not rows and later < len(left):
                if left[later]:
                    rows.append(left[later].pop(0))
                else:
                    later += 1
        for at, rows in enumerate(left):
            if not rows:  # at the end of the pass: all empty steps are
                giver = next((before for before in reversed(left[:at]) if len(before) > 1), None)
                rows.append(giver.pop() if giver is not None else self._again(batches, epoch))
        for at, rows in enumerate(left):
            self._dealt[epoch, first + at] = np.array(rows, dtype=np.int64)

    def _again(self, batches: Steps, epoch: int) -> int:
        """A sample that this pass has had already."""
        sample = int(self._next_good(batches, 0)[0])
        _warn(f"sample {sample} comes twice in evaluation pass {epoch}: no other good image is left for its last steps")
        return sample

    def _next_good(self, batches: Steps, first: int) -> Indices:
        """The first good sample of the steps from `first` on, and then of those before: a resumed pass finds it too."""
        for step in (*range(first, len(batches)), *range(first)):
            good = batches[step][~self._is_bad(batches[step])]
            if len(good):
                return good[:1]
        raise BadImageError(
            f"no image of this rank's {len(batches)} steps can be decoded ({len(self.reasons)} bad images so far)"
        )


def _warn(message: str) -> None:
    warnings.warn(message, BadImageWarning, stacklevel=3)


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
            reason = _diagnosis(request.images, row) or _said(reason_of(error))
            culprits[int(indices[row])] = reason
    if pipe is not None:
        pipe.close()
    return culprits


def _said(reason: str) -> str:
    """What DALI says of an image in which nothing wrong was found."""
    if _OUTSIDE in reason:  # windows are drawn within the size that its header said
        return f"its size is not what it was when this run first read it: the file was changed meanwhile ({reason})"
    return f"DALI cannot decode it: {reason}"


def _diagnosis(images: Paths | Encoded, row: int) -> str | None:
    if isinstance(images, Encoded):
        if row in images.problems or images.sizes is not None:
            return images.problems.get(row)
        return diagnose_encoded(images.content(row))
    return diagnose(os.fsdecode(bytes(images[row])))
