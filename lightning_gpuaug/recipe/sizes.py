"""Progressive resizing: the size of training images as a function of the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lightning_gpuaug.recipe.checks import check_whole, is_whole, require

LARGEST = 32767


@dataclass(frozen=True)
class SizeRamp:
    """A size that grows linearly from one epoch to another (FFCV's schedule of resolutions).

    Attributes:
        start_epoch: up to it the size is `min_size`.
        end_epoch: from it on the size is `max_size`; above `start_epoch`.
        min_size: pixels.
        max_size: pixels, at least `min_size`.
        multiple: in between, sizes are rounded to the nearest multiple of it, half to even.
    """

    start_epoch: int
    end_epoch: int
    min_size: int
    max_size: int
    multiple: int = 32

    def __post_init__(self) -> None:
        """Validate every field."""
        check_whole("SizeRamp.start_epoch", self.start_epoch, 0, 2**31)
        require(is_whole(self.end_epoch) and self.end_epoch > self.start_epoch, "SizeRamp.end_epoch",
                f"must be a whole number above start_epoch={self.start_epoch}", self.end_epoch)  # fmt: skip
        check_whole("SizeRamp.min_size", self.min_size, 1, LARGEST)
        check_whole("SizeRamp.max_size", self.max_size, self.min_size, LARGEST)
        check_whole("SizeRamp.multiple", self.multiple, 1, self.max_size)

    def at(self, epoch: int) -> int:
        """The size in an epoch, pixels."""
        if epoch <= self.start_epoch:
            return self.min_size
        if epoch >= self.end_epoch:
            return self.max_size
        share = (epoch - self.start_epoch) / (self.end_epoch - self.start_epoch)
        exact = self.min_size + share * (self.max_size - self.min_size)
        return max(1, round(exact / self.multiple)) * self.multiple


SizeSteps = tuple[tuple[int, int], ...]
"""(first epoch, size) of each period, by rising epoch, the first of them 0."""

ImageSize = int | SizeRamp | dict[int, int]


def size_steps(name: str, sizes: Mapping[int, int]) -> SizeSteps:
    """A mapping of first epochs to sizes, checked, as a value that can be compared and hashed."""
    rule = "must map first epochs to sizes, epoch 0 among them"
    require(0 in sizes and all(is_whole(epoch) and epoch >= 0 for epoch in sizes), name, rule, dict(sizes))
    for size in sizes.values():
        check_whole(name, size, 1, LARGEST)
    return tuple(sorted(sizes.items()))


def size_at(size: int | SizeRamp | SizeSteps, epoch: int) -> int:
    """The size in an epoch, pixels."""
    if isinstance(size, int):
        return size
    if isinstance(size, SizeRamp):
        return size.at(epoch)
    return [pixels for first, pixels in size if first <= epoch][-1]
