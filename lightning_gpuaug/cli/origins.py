"""The training pipelines that the published recipes come from, as their authors run them: on Pillow images.

torchvision's and timm's are their own classes with the arguments of the published commands; DINO's, SimCLR's and FFCV's
are written here with torchvision.transforms and Pillow. They are written from the sources, not from our recipes, so
that a mistake in a recipe's file shows. What they draw is heard by listeners on their objects; nothing is patched.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFilter, ImageOps

from lightning_gpuaug.cli.peers import hear_timm, hear_torchvision
from lightning_gpuaug.recipe import IMAGENET_MEAN, IMAGENET_STD

Transform = Callable[[Any], Any]


@dataclass
class Heard:
    """What a pipeline drew since it was last cleared.

    Attributes:
        applied: names of the steps that were applied, one an application.
        numbers: values that were drawn.
    """

    applied: list[str] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(default_factory=dict)

    def number(self, name: str, value: float) -> None:
        """Note a value."""
        self.numbers.setdefault(name, []).append(float(value))

    def clear(self) -> None:
        """Forget."""
        self.applied.clear()
        self.numbers.clear()


@dataclass(frozen=True)
class Origin:
    """A pipeline.

    Attributes:
        peer: whose.
        views: kinds of views: how many of each, and what makes one: a Pillow image to (3, S, S) float, normalised.
        heard: what it draws.
        batch: what happens to a batch, (N, 3, S, S) float; None for nothing.
        known: how it resamples or filters otherwise than our recipe, "" for the same way.
    """

    peer: str
    views: tuple[tuple[int, Transform], ...]
    heard: Heard
    batch: Callable[[torch.Tensor], torch.Tensor] | None = None
    known: str = ""


def origin(name: str, size: int | None = None) -> Origin:
    """The pipeline behind a file of `configs/recipes`.

    Args:
        name: of the file, without its suffix.
        size: of the images instead of the published one, pixels; smaller views keep their share of it.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in ORIGINS:
        raise ValueError(f"origin must be one of {', '.join(ORIGINS)}, got {name!r}")
    published, build = ORIGINS[name]
    return build(size or published)


def published_size(name: str) -> int:
    """Height and width of the images that an origin trains on (of its first epochs; of its large views), pixels."""
    return ORIGINS[name][0]


# ---- listeners ------------------------------------------------------------------------------------------------------


def note_crop(heard: Heard, box: tuple[int, int, int, int], width: int, height: int) -> None:
    """Note a window (top, left, height, width) of an image."""
    top, left, h, w = box
    heard.number("crop area", h * w / (height * width))
    heard.number("crop ratio", w / h)
    heard.number("crop centre x", (left + w / 2) / width)
    heard.number("crop centre y", (top + h / 2) / height)


def _hear_crop(transform: Any, heard: Heard) -> Any:
    get_params = transform.get_params

    def call(image: Any, *arguments: Any) -> Any:
        box = get_params(image, *arguments)
        note_crop(heard, box, *image.size)
        return box

    transform.get_params = call
    return transform


def _hear(transform: Transform, name: str, heard: Heard) -> Transform:
    """A step that hands its argument back where it does nothing."""

    def call(image: Any) -> Any:
        result = transform(image)
        if result is not image:
            heard.applied.append(name)
        return result

    return call


def _hear_jitter(transform: Any, heard: Heard) -> Any:
    get_params, names = transform.get_params, ("brightness", "contrast", "saturation", "hue")

    def call(*ranges: Any) -> Any:
        drawn = get_params(*ranges)
        for place in drawn[0].tolist():
            heard.applied.append(names[place])
            heard.number(names[place], drawn[1 + place])
        heard.number("first of the jitter", drawn[0][0])
        return drawn

    transform.get_params = call
    return transform


def _hear_erasing(transform: Any, heard: Heard) -> Any:
    get_params = transform.get_params

    def call(image: Any, *arguments: Any, **options: Any) -> Any:
        drawn = get_params(image, *arguments, **options)
        if drawn[4] is not image:  # the image itself: ten tries did not fit
            heard.applied.append("erase")
            heard.number("erased area", drawn[2] * drawn[3] / (image.shape[-2] * image.shape[-1]))
        return drawn

    transform.get_params = call
    return transform


def _note_mix(heard: Heard, cut: bool, share: float) -> None:
    heard.applied.append("cutmix" if cut else "mixup")
    heard.number("cutmix share" if cut else "mixup share", share)


def _compose(*steps: Transform) -> Transform:
    def call(image: Any) -> Any:
        for step in steps:
            image = step(image)
        return image

    return call


# ---- torchvision: references/classification, presets.py and train.py ------------------------------------------------


def _torchvision_crop(size: int, heard: Heard, **options: Any) -> tuple[Transform, Transform]:
    from torchvision import transforms as T

    return (
        _hear_crop(T.RandomResizedCrop(size, **options), heard),
        _hear(T.RandomHorizontalFlip(), "flip", heard),
    )


def _to_input() -> Transform:
    from torchvision import transforms as T

    return _compose(T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD))


def _torchvision_v1(size: int) -> Origin:
    heard = Heard()
    return Origin("torchvision", ((1, _compose(*_torchvision_crop(size, heard), _to_input())),), heard)


def _torchvision_v2(size: int) -> Origin:
    """--auto-augment ta_wide --random-erase 0.1 --mixup-alpha 0.2 --cutmix-alpha 1.0 --train-crop-size 176."""
    from torchvision import transforms as T
    from torchvision.transforms import v2

    heard = Heard()
    policy = v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR)
    hear_torchvision(policy, heard.applied)
    one = _compose(*_torchvision_crop(size, heard), policy, _to_input(), _hear_erasing(T.RandomErasing(p=0.1), heard))
    mixers = [v2.MixUp(alpha=0.2, num_classes=2), v2.CutMix(alpha=1.0, num_classes=2)]
    for mixer, key in zip(mixers, ("lam", "lam_adjusted"), strict=True):
        mixer.make_params = _heard_mix(mixer.make_params, key, heard)
    choice = v2.RandomChoice(mixers)
    return Origin("torchvision", ((1, one),), heard, lambda x: choice(x, torch.zeros(len(x), dtype=torch.int64))[0])


def _heard_mix(make_params: Callable[[Any], Any], key: str, heard: Heard) -> Callable[[Any], Any]:
    def call(inputs: Any) -> Any:
        drawn = make_params(inputs)
        _note_mix(heard, key == "lam_adjusted", drawn[key])
        return drawn

    return call


# ---- timm: create_transform and Mixup -------------------------------------------------------------------------------


def _timm(size: int, mix: tuple[float, float], known: str, **options: Any) -> Origin:
    from timm.data.auto_augment import RandAugment
    from timm.data.mixup import Mixup
    from timm.data.random_erasing import RandomErasing
    from timm.data.transforms import RandomResizedCropAndInterpolation
    from timm.data.transforms_factory import create_transform

    heard = Heard()
    made: Any = create_transform(size, is_training=True, mean=IMAGENET_MEAN, std=IMAGENET_STD, **options)
    steps: list[Transform] = []
    for step in made.transforms:
        if isinstance(step, RandomResizedCropAndInterpolation):
            step = _hear_crop(step, heard)
        elif isinstance(step, RandAugment):
            hear_timm(step.ops, heard.applied)
        elif isinstance(step, RandomErasing):
            step = _heard_timm_erasing(step, heard)
        elif type(step).__name__ == "RandomHorizontalFlip":
            step = _hear(step, "flip", heard)
        steps.append(step)
    mixup: Any = Mixup(*mix, prob=1.0, switch_prob=0.5, mode="batch", label_smoothing=0.1, num_classes=2)  # type: ignore[no-untyped-call]
    params, mix_batch, cut = mixup._params_per_batch, mixup._mix_batch, [False]

    def heard_params() -> tuple[float, bool]:
        share, cut[0] = params()
        return share, cut[0]

    def heard_batch(x: torch.Tensor) -> float:
        share = float(mix_batch(x))
        _note_mix(heard, cut[0], share)
        return share

    mixup._params_per_batch, mixup._mix_batch = heard_params, heard_batch
    return Origin("timm", ((1, _compose(*steps)),), heard,
                  lambda x: mixup(x.clone(), torch.zeros(len(x), dtype=torch.int64))[0], known)  # fmt: skip


def _heard_timm_erasing(erase: Any, heard: Heard) -> Transform:
    """The erasing of timm, which works in place: what differs from a copy was erased."""

    def call(image: torch.Tensor) -> Any:
        before = image.clone()
        result = erase(image)
        changed = (result != before).any(dim=0)
        if changed.any():
            rows, columns = changed.any(dim=1).sum(), changed.any(dim=0).sum()
            heard.applied.append("erase")
            heard.number("erased area", float(rows * columns) / changed.numel())
        return result

    return call


def _timm_a(policy: str, mixup_alpha: float) -> Callable[[int], Origin]:
    """The train.py of timm with its defaults (--train-interpolation random) and --aa, --mixup, --cutmix 1.0."""
    known = "crops are bilinear or bicubic at random there, bicubic here"
    return lambda size: _timm(size, (mixup_alpha, 1.0), known, auto_augment=policy, interpolation="random",
                              color_jitter=0.4)  # fmt: skip


def _deit(size: int) -> Origin:
    """main.py: --train-interpolation bicubic --reprob 0.25 --remode pixel --mixup 0.8 --cutmix 1.0."""
    known = "warps are bicubic there, bilinear or bicubic at random here"
    return _timm(size, (0.8, 1.0), known, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic",
                 color_jitter=0.3, re_prob=0.25, re_mode="pixel", re_count=1)  # fmt: skip


# ---- FFCV: train_imagenet.py, RandomResizedCropRGBImageDecoder, RandomHorizontalFlip, NormalizeImage ----------------


def _ffcv(size: int) -> Origin:
    """Resized by OpenCV's INTER_AREA: the mean of an area where both sides shrink (Pillow's box), else bilinear."""
    from torchvision import transforms as T

    heard = Heard()
    crop = _hear_crop(T.RandomResizedCrop(size), heard)

    def resized(image: Image.Image) -> Image.Image:
        top, left, height, width = crop.get_params(image, [0.08, 1.0], [0.75, 4 / 3])
        shrinks = height >= size and width >= size
        method = Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR
        return image.crop((left, top, left + width, top + height)).resize((size, size), method)

    flip = _hear(T.RandomHorizontalFlip(), "flip", heard)
    known = "crops are resized by the mean of an area there, by a bilinear filter twice as wide here"
    return Origin("FFCV", ((1, _compose(resized, flip, _to_input())),), heard, known=known)


# ---- SimCLR: data_util.py, and DINO: main_dino.py -------------------------------------------------------------------


def _jitter_and_grey(heard: Heard, *strengths: float) -> tuple[Transform, Transform]:
    from torchvision import transforms as T

    jitter = _hear_jitter(T.ColorJitter(*strengths), heard)
    return T.RandomApply([jitter], p=0.8), _hear(T.RandomGrayscale(p=0.2), "grayscale", heard)


def _simclr(size: int) -> Origin:
    """Colour strength 1; the blur's kernel is a tenth of the 224 pixels, made odd."""
    from torchvision import transforms as T

    heard = Heard()
    blur = T.GaussianBlur(23, (0.1, 2.0))
    get_params = blur.get_params

    def sigma(low: float, high: float) -> float:
        drawn = float(get_params(low, high))
        heard.number("blur sigma", drawn)
        return drawn

    blur.get_params = sigma
    view = _compose(
        *_torchvision_crop(size, heard, scale=(0.08, 1.0), interpolation=T.InterpolationMode.BICUBIC),
        *_jitter_and_grey(heard, 0.8, 0.8, 0.8, 0.2),
        _hear(T.RandomApply([blur], p=0.5), "blur", heard),
        _to_input(),
    )
    return Origin("SimCLR", ((2, view),), heard, known="hue is turned in whole steps there")


def _dino(size: int) -> Origin:
    """DataAugmentationDINO: global crops 0.4..1, local ones 0.05..0.4 of 96 pixels; Pillow's blur and solarize."""
    from torchvision import transforms as T

    heard = Heard()

    def blur(probability: float) -> Transform:
        def call(image: Image.Image) -> Image.Image:
            if random.random() > probability:
                return image
            radius = random.uniform(0.1, 2.0)
            heard.number("blur sigma", radius)
            return image.filter(ImageFilter.GaussianBlur(radius=radius))

        return _hear(call, "blur", heard)

    def solarize(image: Image.Image) -> Image.Image:
        return ImageOps.solarize(image) if random.random() < 0.2 else image

    def view(side: int, scale: tuple[float, float], *last: Transform) -> Transform:
        crop, flip = _torchvision_crop(side, heard, scale=scale, interpolation=T.InterpolationMode.BICUBIC)
        return _compose(crop, flip, *_jitter_and_grey(heard, 0.4, 0.4, 0.2, 0.1), *last, _to_input())

    local = max(1, round(size * 96 / 224))
    return Origin(
        "DINO",
        (
            (1, view(size, (0.4, 1.0), blur(1.0))),
            (1, view(size, (0.4, 1.0), blur(0.1), _hear(solarize, "solarize", heard))),
            (6, view(local, (0.05, 0.4), blur(0.5))),
        ),
        heard,
        known="blur is Pillow's three box blurs there, a Gaussian here; hue is turned in whole steps there",
    )


ORIGINS: Mapping[str, tuple[int, Callable[[int], Origin]]] = {
    "torchvision_resnet50_v1": (224, _torchvision_v1),
    "torchvision_resnet50_v2": (176, _torchvision_v2),
    "timm_a1": (224, _timm_a("rand-m7-mstd0.5-inc1", 0.2)),
    "timm_a2": (224, _timm_a("rand-m7-mstd0.5-inc1", 0.1)),
    "timm_a3": (160, _timm_a("rand-m6-mstd0.5-inc1", 0.1)),
    "deit": (224, _deit),
    "ffcv_rn50": (160, _ffcv),
    "simclr": (224, _simclr),
    "dino": (224, _dino),
}
"""By name of the recipe's file: published size of the training images, and what builds the pipeline for a size."""


def make(origin: Origin, pictures: list[Image.Image]) -> list[tuple[torch.Tensor, Heard]]:
    """One batch, in a random order: of each kind of view (count × N, 3, S, S) and what was drawn for it.

    Args:
        origin: whose.
        pictures: N of them; an even number where the origin mixes.
    """
    order = np.random.permutation(len(pictures))
    batches = []
    for count, transform in origin.views:
        origin.heard.clear()
        batch = torch.stack([transform(pictures[i]) for _ in range(count) for i in order])
        if origin.batch is not None:
            batch = origin.batch(batch)
        batches.append((batch, Heard([*origin.heard.applied], {**origin.heard.numbers})))
    return batches
