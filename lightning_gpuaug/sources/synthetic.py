"""Made-up data: real JPEG files for the whole path, or one ready batch for the upper bound of training speed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image

from lightning_gpuaug.sources.base import Source, map_classes, read_only, validated_classes
from lightning_gpuaug.sources.names import NameList

#: Goes into the name of a cache folder: raise it when other pixels are drawn for the same fields.
_DRAWING_VERSION = 1
_MAX_SIDE = 65_500  # of a JPEG, by libjpeg


@dataclass(frozen=True)
class Synthetic(Source):
    """Samples that exist nowhere, to try out or to measure with.

    - mode "jpeg": `length` distinct JPEG files, the same for the same fields, written when the paths are first asked
      for. A class is a stripe pattern (direction, width, colour) under noise, so a model can learn them.
    - mode "cached": no files; the loader hands over one random batch on the device again and again, the same memory:
      an op in place changes all of them. What training then reaches is the most that any input pipeline could allow.

    Sample `i` has label `i % num_classes`; the classes are `class0`, `class1`, …

    Attributes:
        length: number of samples, from 1.
        num_classes: size of the class list, from 1.
        height: of the images, pixels.
        width: of the images, pixels.
        mode: "jpeg" or "cached".
        seed: of everything random, a whole number from 0.
        quality: of the JPEGs, 1..100.
        cache_dir: keep the JPEGs in a sub-folder of this and use them again; by default they are in a temporary
            folder that goes with the source or the process.
        class_names: the class list, `num_classes` long, when it must not be `class0`, `class1`, …
        drawn_classes: set by `with_classes`: the classes among `class_names` that samples are drawn of.
    """

    length: int = 1280
    num_classes: int = 10
    height: int = 375
    width: int = 500
    mode: Literal["jpeg", "cached"] = "jpeg"
    seed: int = 0
    quality: int = 90
    cache_dir: str | os.PathLike[str] | None = None
    class_names: Sequence[str] | None = None
    drawn_classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Validate the fields; nothing is written."""
        limits = {"length": 2**31, "num_classes": 2**31, "height": _MAX_SIDE, "width": _MAX_SIDE, "quality": 100}
        for field, limit in limits.items():
            value = getattr(self, field)
            if not isinstance(value, int) or not 1 <= value <= limit:
                raise ValueError(f"Synthetic.{field} must be a whole number in 1..{limit}, got {value!r}")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"Synthetic.seed must be a whole number from 0, got {self.seed!r}")
        if self.mode not in ("jpeg", "cached"):
            raise ValueError(f'Synthetic.mode must be "jpeg" or "cached", got {self.mode!r}')
        if self.cache_dir is not None:
            object.__setattr__(self, "cache_dir", os.fspath(self.cache_dir))
        for field in ("class_names", "drawn_classes"):
            value = getattr(self, field)
            if value is not None:
                object.__setattr__(self, field, validated_classes(value, f"Synthetic.{field}"))
        if self.class_names is not None and len(self.class_names) != self.num_classes:
            rule = f"must have num_classes={self.num_classes} names"
            raise ValueError(f"Synthetic.class_names {rule}, got {len(self.class_names)}")

    @property
    def cached(self) -> bool:
        """Whether there are no files and the loader makes one batch to hand over again and again."""
        return self.mode == "cached"

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, the position being the label."""
        if self.class_names is not None:
            return tuple(self.class_names)
        return tuple(f"class{i}" for i in range(self.num_classes))

    @property
    def paths(self) -> Sequence[str]:
        """The JPEG of each sample, written on the first call and there for as long as this source (or its cache) is.

        Raises:
            ValueError: in mode "cached".
        """
        if self.cached:
            raise ValueError('Synthetic(mode="cached") has no files; use mode="jpeg" to read and decode')
        return self._names.with_prefix(os.path.join(self._folder.path, ""))

    @property
    def targets(self) -> npt.NDArray[np.int64]:
        """Labels, int64 (N,), read-only."""
        return self._targets

    def __len__(self) -> int:
        """Number of samples."""
        return self.length

    def sample_name(self, i: int) -> str:
        """`<drawn class>/<sample>.jpg`, both as numbers."""
        return self._names[i]

    def with_classes(self, classes: Sequence[str]) -> Synthetic:
        """The same samples labelled with the (training) class list `classes`, by name.

        Raises:
            ValueError: a class that samples are drawn of is not in `classes`.

        Warns:
            UserWarning: some of `classes` have no samples.
        """
        names = tuple(classes)
        other = dataclasses.replace(self, num_classes=len(names), class_names=names, drawn_classes=self._drawn)
        for cached in ("_names", "_folder"):
            if cached in vars(self):
                vars(other)[cached] = vars(self)[cached]
        _ = other._targets
        return other

    def check(self) -> None:
        """Write the JPEGs now, if the mode has any."""
        _ = self._targets
        if not self.cached:
            _ = self._folder

    def fingerprint(self) -> str:
        """Short hexadecimal name of what the data is, pixels included."""
        return hashlib.blake2b(f"{super().fingerprint()}{self._drawing}".encode(), digest_size=8).hexdigest()

    @property
    def _drawn(self) -> tuple[str, ...]:
        return self.classes if self.drawn_classes is None else tuple(self.drawn_classes)

    @property
    def _drawing(self) -> tuple[int, ...]:
        """All that the pixels depend on."""
        size = (self.length, len(self._drawn), self.height, self.width)
        return (_DRAWING_VERSION, *size, self.seed, self.quality)

    @cached_property
    def _targets(self) -> npt.NDArray[np.int64]:
        targets = np.arange(self.length, dtype=np.int64) % len(self._drawn)
        if self.drawn_classes is not None:
            drawn = self._drawn[: self.length]  # of the others there is no sample
            targets = map_classes(drawn, self.classes, "Synthetic")[targets]
        read_only(targets)
        return targets

    @cached_property
    def _names(self) -> NameList:
        count = len(self._drawn)
        return NameList.of(f"{i % count:04d}/{i:07d}.jpg" for i in range(self.length))

    @cached_property
    def _folder(self) -> _Folder:
        """The folder of JPEGs, complete."""
        if self.cache_dir is None:
            folder = _Folder(tempfile.mkdtemp(prefix="gpuaug-synthetic-"))
            weakref.finalize(folder, _remove, folder.path, os.getpid())
        else:
            key = "-".join(map(str, self._drawing))
            folder = _Folder(os.path.join(os.path.expanduser(self.cache_dir), f"synthetic-{key}"))
        for label in range(min(len(self._drawn), self.length)):
            os.makedirs(os.path.join(folder.path, f"{label:04d}"), exist_ok=True)
        painter = _Painter(len(self._drawn), self.height, self.width, self.seed)

        def write(i: int) -> None:
            path = os.path.join(folder.path, self._names[i])
            if os.path.exists(path):
                return
            # Under another name first: processes that share a cache never see half a file.
            unfinished = f"{path}.{os.getpid()}"
            painter.paint(i).save(unfinished, "JPEG", quality=self.quality)
            os.replace(unfinished, path)

        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            for _ in pool.map(write, range(self.length)):
                pass
        return folder


@dataclass(frozen=True, eq=False)
class _Folder:
    """A folder on disk; sources with the same files share one such object, and a temporary folder goes with it."""

    path: str


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that was forked off
        shutil.rmtree(path, ignore_errors=True)


class _Painter:
    """Draws sample `i`: the stripes of its class (the same for every seed), shifted and under noise."""

    def __init__(self, num_classes: int, height: int, width: int, seed: int) -> None:
        self._num_classes, self._height, self._width, self._seed = num_classes, height, width, seed
        self._y, self._x = np.mgrid[0:height, 0:width].astype(np.float32) / min(height, width)
        # Noise is the dear part: one sheet, from which every sample takes another window.
        sheet = np.random.default_rng((seed, 0)).normal(0, 14, (height + 64, width + 64, 3))
        self._noise = sheet.astype(np.float32)

    def paint(self, i: int) -> Image.Image:
        """An RGB image that depends on the seed, `i` and the class of `i` alone."""
        rng = np.random.default_rng((self._seed, 1, i))
        top, left = rng.integers(0, 64, 2)
        shift, contrast = rng.uniform(0, 2 * np.pi), rng.uniform(0.6, 1.0)
        # Multiples of irrational numbers spread over the circle evenly however many classes there are.
        label = i % self._num_classes
        angle, cycles = np.pi * (label * 0.618034 % 1), 3 + 9 * (label * 0.414214 % 1)
        hue = 2 * np.pi * (label * 0.754878 % 1)
        color = np.cos(hue + np.array([0, 2, 4], dtype=np.float32) * np.pi / 3).astype(np.float32)
        phase = (np.cos(angle) * self._x + np.sin(angle) * self._y) * np.float32(2 * np.pi * cycles)
        wave = np.sin(phase + np.float32(shift)) * np.float32(40 * contrast)
        pixels = wave[..., None] * (0.5 + 0.5 * color) + (128 + 50 * color)
        pixels += self._noise[top : top + self._height, left : left + self._width]
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
