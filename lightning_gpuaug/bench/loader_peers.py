"""Other loaders over the same files, each imported only when it is measured: torchvision, timm, a raw DALI reader.

All of them make a random resized crop and a horizontal flip; what else a recipe does to the pixels is ours alone, so
that the comparison never favours us. torchvision's and timm's batches are normalised, raw DALI's are uint8.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lightning_gpuaug.recipe import RandomResizedCrop
from lightning_gpuaug.sources.base import Targets

Step = Callable[[], object]


@dataclass(frozen=True)
class Work:
    """What all loaders have to do.

    Attributes:
        paths: (N,) file names as bytes.
        targets: (N,) or (N, C) labels.
        batch_size: images a batch.
        image_size: height and width, pixels.
        crop: the random resized crop.
        hflip: probability of a flip.
        device: where the batches must arrive.
        workers: processes of a Python loader.
        threads: CPU threads of a DALI pipeline.
        hw_decoder_load: share of the JPEGs for the hardware decoder.
        decode_on_gpu: whether DALI decodes there.
    """

    paths: NDArray[np.bytes_]
    targets: Targets
    batch_size: int
    image_size: int
    crop: RandomResizedCrop
    hflip: float
    device: torch.device
    workers: int
    threads: int
    hw_decoder_load: float
    decode_on_gpu: bool


class Files(torch.utils.data.Dataset[Any]):
    """Image files as Pillow opens them: torchvision's ImageFolder for any list of paths."""

    def __init__(self, work: Work, transform: Callable[[Any], Any]) -> None:
        self._paths, self._targets, self._transform = work.paths, work.targets, transform

    def __len__(self) -> int:
        """Number of files."""
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """(transformed image, label)."""
        from PIL import Image

        with open(os.fsdecode(bytes(self._paths[index])), "rb") as file, Image.open(file) as image:
            return self._transform(image.convert("RGB")), self._targets[index]


def cycle(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches without end.

    Raises:
        ValueError: the loader has none.
    """
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError("the loader has no batches: fewer files than a batch")


@contextmanager
def torchvision(work: Work) -> Iterator[Step]:
    """A torch DataLoader with torchvision's transforms on Pillow images."""
    from torchvision import transforms as T

    kind = T.InterpolationMode(work.crop.interpolation)
    steps = [
        T.RandomResizedCrop(work.image_size, work.crop.scale, work.crop.ratio, kind),
        T.RandomHorizontalFlip(work.hflip),
        T.ToTensor(),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    with _data_loader(Files(work, T.Compose(steps)), work) as loader:
        batches = cycle(loader)
        yield lambda: [t.to(work.device, non_blocking=True) for t in next(batches)]


@contextmanager
def timm(work: Work) -> Iterator[Step]:
    """Timm's training transforms and collation and, on a GPU, its PrefetchLoader: what its training script runs."""
    from timm.data import create_transform  # type: ignore[attr-defined]
    from timm.data.loader import PrefetchLoader, fast_collate

    cuda = work.device.type == "cuda"
    transform = create_transform(
        work.image_size, is_training=True, scale=work.crop.scale, ratio=work.crop.ratio, hflip=work.hflip,
        color_jitter=0.0, interpolation=work.crop.interpolation, use_prefetcher=cuda,
    )  # fmt: skip
    with _data_loader(Files(work, transform), work, fast_collate if cuda else None) as loader:
        batches = cycle(PrefetchLoader(loader, device=work.device) if cuda else loader)
        yield lambda: next(batches)


@contextmanager
def _data_loader(
    files: Files, work: Work, collate: Callable[[Any], Any] | None = None
) -> Iterator[torch.utils.data.DataLoader[Any]]:
    # Not forked from here: this process runs CUDA, DALI and their threads, of which a fork would inherit the locks.
    context = multiprocessing.get_context("forkserver")
    # What the workers' main module imports too, once instead of in each.
    context.set_forkserver_preload([__name__, "lightning_gpuaug.bench.loader", "torchvision.transforms"])
    several: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4, "multiprocessing_context": context}
    loader = torch.utils.data.DataLoader(
        files, work.batch_size, shuffle=True, num_workers=work.workers, pin_memory=work.device.type == "cuda",
        drop_last=True, collate_fn=collate, **several if work.workers else {},
    )  # fmt: skip
    try:
        yield loader
    finally:
        if loader._iterator is not None and work.workers:
            loader._iterator._shutdown_workers()  # type: ignore[attr-defined]  # now, not when the collector comes by


@contextmanager
def raw_dali(work: Work) -> Iterator[Step]:
    """The pipeline people write by hand, of DALI's own examples: a file reader, image_random_crop, resize; uint8."""
    from nvidia.dali import fn, pipeline_def

    gpu = work.decode_on_gpu
    paths = [os.fsdecode(bytes(path)) for path in work.paths]

    @pipeline_def(  # type: ignore[untyped-decorator]
        batch_size=work.batch_size, num_threads=work.threads, device_id=work.device.index if gpu else None, seed=1
    )
    def pipeline() -> Any:
        encoded, labels = fn.readers.file(files=paths, random_shuffle=True, initial_fill=1024, name="reader")
        options: dict[str, Any] = {"hw_decoder_load": work.hw_decoder_load} if gpu else {}
        images = fn.decoders.image_random_crop(
            encoded, device="mixed" if gpu else "cpu", random_area=list(work.crop.scale),
            random_aspect_ratio=list(work.crop.ratio), **options,
        )  # fmt: skip
        return fn.resize(images, size=(work.image_size, work.image_size)), labels

    pipe = pipeline()
    pipe.build()
    yield pipe.run


PEERS: dict[str, Callable[[Work], AbstractContextManager[Step]]] = {
    "torchvision": torchvision,
    "timm": timm,
    "dali": raw_dali,
}
"""Name on the command line to loader."""


def described(name: str, workers: int, threads: int) -> str:
    """A peer's line in the table."""
    if name == "dali":
        return f"raw DALI reader, {threads} threads, uint8"
    return f"{'torchvision DataLoader' if name == 'torchvision' else 'timm loader'}, {workers} workers"
