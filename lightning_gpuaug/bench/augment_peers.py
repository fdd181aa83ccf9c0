"""The other ways to augment a batch, each imported only when it is measured.

Per-sample loops and DALI are timed by the clock over a few batches, since their cost is the host's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lightning_gpuaug.bench.augment import Bench
from lightning_gpuaug.bench.timing import BUFFERS, clock
from lightning_gpuaug.recipe import IMAGENET_MEAN as MEAN
from lightning_gpuaug.recipe import IMAGENET_STD as STD

Images = Callable[[torch.Tensor], torch.Tensor]


def torchvision(bench: Bench) -> None:
    """transforms.v2, sample by sample as in a data set, and on the batch, where all samples get the same draw.

    On the CPU on Pillow's images too, as `ImageFolder` has them, which is quicker there than on tensors.
    """
    from torchvision.transforms import v2

    images = [x.permute(0, 3, 1, 2) for x in bench.inputs]
    finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    plain = v2.Compose([v2.RandomHorizontalFlip(), finish, v2.RandomErasing(0.25)])
    randaugment = v2.Compose([v2.RandomHorizontalFlip(), v2.RandAugment(2, 9), finish, v2.RandomErasing(0.25)])

    def done(batch: torch.Tensor) -> torch.Tensor:
        return batch.to(torch.bfloat16, memory_format=torch.channels_last)

    def per_sample(transform: Images) -> Callable[[int], torch.Tensor]:
        return lambda i: done(torch.stack([transform(image) for image in images[i % BUFFERS]]))

    bench.add("torchvision, a sample at a time: flip, normalise, erase", clock(per_sample(plain), 3))
    bench.add("torchvision, a sample at a time: + RandAugment(2, 9)", clock(per_sample(randaugment), 3))
    if bench.device.type == "cpu":
        from PIL import Image

        pictures = [[Image.fromarray(image.numpy()) for image in x] for x in bench.inputs]
        from_pil = v2.Compose([v2.PILToTensor(), finish, v2.RandomErasing(0.25)])
        on_pil = v2.Compose([v2.RandomHorizontalFlip(), v2.RandAugment(2, 9), from_pil])
        bench.add(
            "torchvision on Pillow's images: + RandAugment(2, 9)",
            clock(lambda i: done(torch.stack([on_pil(image) for image in pictures[i % BUFFERS]])), 3),
        )
    whole = clock(lambda i: done(randaugment(images[i % BUFFERS])), None if bench.device.type == "cpu" else 50)
    bench.add("torchvision, ops drawn once a batch: + RandAugment", whole)


def kornia(bench: Bench) -> None:
    """Kornia on float images; its RandAugment draws its ops once a batch."""
    from kornia import augmentation as K
    from kornia.augmentation.auto import RandAugment

    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    auto = K.AugmentationSequential(K.RandomHorizontalFlip(), RandAugment(2, 9), K.Normalize(mean, std))
    jitter = K.AugmentationSequential(
        K.RandomHorizontalFlip(), K.ColorJitter(0.4, 0.4, 0.4, 0.1), K.Normalize(mean, std)
    )

    def run(augmentation: Images) -> Callable[[int], torch.Tensor]:
        return lambda i: augmentation(bench.inputs[i % BUFFERS].permute(0, 3, 1, 2).float() / 255).to(torch.bfloat16)

    bench.add("kornia, ops drawn once a batch: + RandAugment(2, 9)", clock(run(auto), 20))
    bench.add("kornia, a draw a sample: + ColorJitter", clock(run(jitter), 20))


def dali(bench: Bench) -> None:
    """DALI's own augmentation of pixels that are fed to it; on a GPU with the upload."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.auto_aug import rand_augment

    gpu = bench.device.type == "cuda"
    pixels = [np.ascontiguousarray(x.cpu().numpy()) for x in bench.inputs]

    def pipeline(augmented: bool) -> Callable[[int], object]:
        @pipeline_def(  # type: ignore[untyped-decorator]
            batch_size=bench.batch, num_threads=8, device_id=0 if gpu else None, enable_conditionals=True, seed=1
        )
        def graph() -> Any:
            images = fn.external_source(lambda i: pixels[i.iteration % BUFFERS], batch=True, batch_info=True)
            images = fn.reshape(images.gpu() if gpu else images, layout="HWC")
            if augmented:
                images = rand_augment.rand_augment(images, n=2, m=9, shape=(bench.size, bench.size))
            mean, std = [255 * m for m in MEAN], [255 * s for s in STD]
            return fn.crop_mirror_normalize(
                images, dtype=types.FLOAT16, output_layout="HWC", mirror=fn.random.coin_flip(), mean=mean, std=std
            )

        pipe = graph()
        pipe.build()
        return lambda _: pipe.run()

    upload = " (with the upload)" if gpu else ""
    for name, augmented in (("flip + normalise", False), ("+ RandAugment(2, 9)", True)):
        bench.add(f"DALI: {name}{upload}", clock(pipeline(augmented), 20 if gpu else None, bench.seconds))


def compiled(bench: Bench) -> None:
    """torch.compile of what people write by hand, without any policy."""
    mean, std = (torch.tensor(v, device=bench.device).view(1, 3, 1, 1) for v in (MEAN, STD))
    flips = torch.arange(bench.batch, device=bench.device) % 2 == 1

    def normalise(x: torch.Tensor) -> torch.Tensor:
        x = torch.where(flips[:, None, None, None], x.flip(2), x)
        return x.permute(0, 3, 1, 2).float().div(255).sub(mean).div(std).to(torch.bfloat16)

    call = torch.compile(normalise, dynamic=False)
    bench.add("compiled torch: flip + normalise", bench.time(lambda i: call(bench.inputs[i % BUFFERS])))


PEERS: dict[str, Callable[[Bench], None]] = {
    "torchvision": torchvision,
    "kornia": kornia,
    "dali": dali,
    "compiled": compiled,
}
"""Name on the command line to what is measured."""


def measure(name: str, bench: Bench) -> str | None:
    """Measure a peer; why there is no figure, or None. Another library's failure must not lose our figures."""
    try:
        with warnings.catch_warnings(record=True):  # of their own deprecated parts, which are not the user's
            warnings.simplefilter("ignore")
            PEERS[name](bench)
    except ImportError as error:
        return f"not installed ({error})"
    except Exception as error:
        return f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    return None
