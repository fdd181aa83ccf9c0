"""Fetching a sample of a map-style dataset: where its encoded image and its target are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np


class MapDataset(Protocol):
    """A map-style dataset, such as a torch `Dataset` or a Hugging Face `datasets.Dataset`."""

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int, /) -> Any:
        """A sample."""


class Unknown:
    """Target of a sample that could not be fetched; the one instance survives pickling."""

    def __reduce__(self) -> str:
        """Found again by its name."""
        return "UNKNOWN"


UNKNOWN = Unknown()


class Absent:
    """Target of a sample that has none; the one instance survives pickling."""

    def __reduce__(self) -> str:
        """Found again by its name."""
        return "ABSENT"


ABSENT = Absent()


Fetched: TypeAlias = tuple[bytes | str, Any, str]
"""Encoded image, or the path of its file; target; and what is wrong with the image (else "")."""


@dataclass(frozen=True)
class Fetcher:
    """Fetches one sample.

    Attributes:
        dataset: where from.
        image: see `Examples`.
        label: see `Examples`.
        labelled: look for a target.
    """

    dataset: MapDataset
    image: str | int | None
    label: str | int | None
    labelled: bool

    def __call__(self, index: int) -> Fetched:
        """A sample's image and target; see `Fetched`."""
        name = f"{type(self.dataset).__name__}[{index}]"
        try:
            sample = self.dataset[index]
        except OSError as error:
            return b"", UNKNOWN, f"unreadable: {error}"
        except Exception as error:
            raise RuntimeError(f"{name} raised {type(error).__name__}: {error}") from error
        image, target = self._parts(sample, name)
        if hasattr(target, "numpy"):  # a tensor, which would be shared memory between processes
            try:
                target = target.numpy()
            except (TypeError, RuntimeError) as error:  # of a dtype that NumPy lacks, with a gradient, elsewhere
                raise ValueError(f"{name}: a target must be a tensor that NumPy can hold: {error}") from None
        return _encoded(image, name), target, ""

    def _parts(self, sample: Any, name: str) -> tuple[Any, Any]:
        if isinstance(sample, Mapping):
            image, label = self._key(self.image, "image"), self._key(self.label, "label")
            if not self.labelled or (set(sample) == {image} and self.label is None):
                label = None
            elif image not in sample and set(sample) <= {"bytes", "path"}:
                return sample, ABSENT  # a Hugging Face image alone
            absent = [key for key in (image, label) if key is not None and key not in sample]
            if absent:
                raise ValueError(f"{name}: a sample must have {absent[0]!r}, has {', '.join(map(str, sample))}")
            return sample[image], ABSENT if label is None else sample[label]
        if isinstance(sample, (tuple, list)):
            image, label = self._key(self.image, 0), self._key(self.label, 1)
            wanted = [image, label] if self.labelled and len(sample) > 1 else [image]
            try:
                values = [sample[key] for key in wanted]
            except (IndexError, TypeError):
                raise ValueError(
                    f"{name}: a sample must have the positions {wanted}, has {len(sample)} items"
                ) from None
            return values[0], values[1] if len(values) > 1 else ABSENT
        return sample, ABSENT

    @staticmethod
    def _key(given: str | int | None, usual: str | int) -> Any:
        return usual if given is None else given


def _encoded(image: Any, name: str) -> bytes | str:
    """The bytes of an image that is bytes already or a vector of them, or the path where to find them."""
    if isinstance(image, Mapping):
        content, path = image.get("bytes"), image.get("path")
        image = content if content is not None else path
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, (str, os.PathLike)):
        path = os.fsdecode(image)
        if "\0" in path:
            raise ValueError(f"{name}: a path must have no zero byte, got {path!r}")
        return path
    if hasattr(image, "__array__") and getattr(image, "ndim", 0) == 1:
        array = np.asarray(image)
        if array.dtype == np.uint8:
            return array.tobytes()
    shape = f" of shape {tuple(image.shape)}" if hasattr(image, "shape") else ""
    raise ValueError(
        f"{name}: an image must be encoded: bytes, a path, or a uint8 vector, got {type(image).__name__}{shape}; the "
        "dataset must not decode (Hugging Face: cast_column(…, Image(decode=False)))"
    )


_worker_fetcher: Fetcher | None = None  # of a worker process


def start_worker(fetcher: Fetcher) -> None:
    """Take note, in a worker process, of what fetches."""
    global _worker_fetcher
    _worker_fetcher = fetcher


def fetch_here(indices: list[int]) -> list[Fetched]:
    """Fetch, in a worker process."""
    assert _worker_fetcher is not None
    return [_worker_fetcher(index) for index in indices]
