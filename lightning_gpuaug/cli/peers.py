"""timm's and torchvision's augmentation on the CPU: the only file of the commands that imports them.

Each peer is used two ways: op by op with parameters forced to given values, and as it comes, drawing for itself while
the ops that it applies are counted. No module of theirs is patched: timm's op objects and torchvision's transform
objects get a listener put in front of one of their own attributes.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from lightning_gpuaug.augment import policies, timm_policies
from lightning_gpuaug.recipe import IMAGENET_MEAN, AugMix, AutoAugment, AutoPolicy, RandAugment, TrivialAugmentWide

Pixels = NDArray[np.uint8]
Words = NDArray[np.int32]

FILL = (124, 116, 104)
"""Of uncovered pixels in timm's policies: ImageNet's mean colour."""

_MAGNITUDES = (1.0, 3.0, 5.0, 7.0, 9.0, 10.0)
_SEED_OF_SIGN = {False: 1, True: 0}  # random.Random(1).random() is 0.13, random.Random(0).random() is 0.84
_WARPS = ("Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel")
_SIGNED = (*_WARPS, "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing")

# Their names of ops, as ours. A suffix tells timm's scales of magnitude apart, not ops.
_SUFFIXES = ("Increasing", "Original", "Rand", "Rel")
_OURS = {
    "AutoContrast": "autocontrast", "Equalize": "equalize", "Invert": "invert", "Rotate": "rotate",
    "Posterize": "posterize", "Solarize": "solarize", "SolarizeAdd": "solarize add", "Color": "saturation",
    "Desaturate": "saturation", "Contrast": "contrast", "Brightness": "brightness", "Sharpness": "sharpness",
    "GaussianBlur": "blur", "ShearX": "shear x", "ShearY": "shear y", "TranslateX": "translate x",
    "TranslateY": "translate y",
}  # fmt: skip


@dataclass(frozen=True)
class Forced:
    """One op of a peer with its parameters fixed.

    Attributes:
        peer: "timm" or "torchvision".
        op: the peer's name of it.
        words: our record words of the same op with the same parameters, (3,) int32.
        fill: of uncovered pixels.
        apply: (H, W, 3) uint8 to (H, W, 3) uint8, by the peer.
    """

    peer: str
    op: str
    words: Words
    fill: tuple[int, int, int]
    apply: Callable[[Pixels], Pixels]


@dataclass
class Drawing:
    """A peer's whole policy, drawing for itself.

    Attributes:
        peer: "timm" or "torchvision".
        apply: (H, W, 3) uint8 to (H, W, 3) uint8.
        applied: our names of the ops that were applied since it was last cleared.
    """

    peer: str
    apply: Callable[[Pixels], Pixels]
    applied: list[str]


def forced_ops(height: int, width: int) -> Iterator[Forced]:
    """Every op of every policy of both peers, at several magnitudes, with both signs, for images of one size."""
    yield from _forced_timm(height, width)
    yield from _forced_torchvision(height, width)


def drawing(policy: AutoPolicy | str, size: int) -> Drawing:
    """The peer's own version of one of our policies.

    Args:
        policy: ours, or a string of timm's.
        size: height and width of the images it will get.
    """
    return _timm(policy, size) if isinstance(policy, str) else _torchvision(policy)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators that the peers draw from, and put everything back afterwards."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _name(op: str, moves: bool = True) -> str:
    """Our name of a peer's op; a translation by less than a pixel has no axis."""
    for suffix in _SUFFIXES:
        op = op.removesuffix(suffix)
    return _OURS[op] if moves or not op.startswith("Translate") else "translate"


# ---- timm ----------------------------------------------------------------------------------------------------------


def _forced_timm(height: int, width: int) -> Iterator[Forced]:
    from timm.data import auto_augment

    one = np.ones((1, 1))
    for name in sorted(set(auto_augment.LEVEL_TO_ARG) - {"TranslateX", "TranslateY"}):  # those are in no policy
        for magnitude in _MAGNITUDES if auto_augment.LEVEL_TO_ARG[name] is not None else _MAGNITUDES[:1]:
            for negate in (False, True) if name in _SIGNED else (False,):
                for bicubic in (False, True) if name in _WARPS else (False,):
                    seed = _SEED_OF_SIGN[negate]
                    words = timm_policies.words_of(
                        (name,), np.zeros((1, 1), np.int64), magnitude * one, one == negate, one == bicubic,
                        random.Random(seed).random() * one, height, width,
                    )  # fmt: skip
                    method = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
                    op: Any = auto_augment.AugmentOp(  # type: ignore[no-untyped-call]
                        name, 1.0, magnitude, {"img_mean": FILL, "interpolation": method}
                    )
                    yield Forced("timm", name, words[0, 0], FILL, _timm_call(op, seed))


def _timm_call(op: Callable[[Image.Image], Image.Image], seed: int | None = None) -> Callable[[Pixels], Pixels]:
    """A timm transform on pixels. With a seed, the one number that a forced op draws (its sign) is always the same."""

    def call(pixels: Pixels) -> Pixels:
        image = Image.fromarray(pixels)
        if seed is None:
            return np.asarray(op(image))
        state = random.getstate()
        random.seed(seed)
        try:
            return np.asarray(op(image))
        except ValueError as error:
            if "bits must be between" not in str(error):
                raise
            return np.zeros_like(pixels)  # posterize to 0 bits: black before Pillow 12, which refuses
        finally:
            random.setstate(state)

    return call


def _timm(policy: str, size: int) -> Drawing:
    from timm.data import auto_augment

    parameters: dict[str, Any] = {
        "translate_const": int(size * 0.45), "img_mean": tuple(min(255, round(255 * m)) for m in IMAGENET_MEAN),
    }  # fmt: skip
    applied: list[str] = []
    if policy.startswith("rand"):
        transform = auto_augment.rand_augment_transform(policy, parameters)
        ops = list(transform.ops)
    elif policy.startswith("augmix"):
        transform = auto_augment.augment_and_mix_transform(policy, {**parameters, "translate_pct": 0.3})
        ops = list(transform.ops)
    else:
        transform = auto_augment.auto_augment_transform(policy, parameters)
        ops = [op for pair in transform.policy for op in pair]
    hear_timm(ops, applied)
    return Drawing("timm", _timm_call(transform), applied)


def hear_timm(ops: list[Any], applied: list[str]) -> None:
    """Have timm's ops write our names of those that are applied into a list."""
    for op in ops:
        op.aug_fn = _heard(op.aug_fn, op.name, applied)


def _heard(apply: Callable[..., Image.Image], name: str, applied: list[str]) -> Callable[..., Image.Image]:
    def call(image: Image.Image, *arguments: Any, **options: Any) -> Image.Image:
        applied.append(_name(name, moves=not arguments or arguments[0] != 0))
        if name.startswith("Posterize") and arguments[0] == 0:
            return Image.new(image.mode, image.size)  # what Pillow gave before it came to refuse 0 bits
        return apply(image, *arguments, **options)

    return call


def timm_mix(x: torch.Tensor, share: float, cut: bool, seed: int) -> torch.Tensor:
    """The `Mixup` of timm, of a batch with its share forced; the place of a CutMix box comes from a seed.

    Args:
        x: (N, 3, H, W) float, N even.
        share: of each row itself, before it is corrected to the pixels of the box.
        cut: CutMix instead of MixUp.
        seed: of the box.
    """
    from timm.data.mixup import Mixup

    mixup: Any = Mixup(num_classes=2)  # type: ignore[no-untyped-call]
    mixup._params_per_batch = lambda: (share, cut)
    with seeded(seed):
        mixed: torch.Tensor = mixup(x.clone(), torch.zeros(len(x), dtype=torch.int64))[0]
    return mixed


def timm_noise(mode: str, draws: int, side: int, seed: int) -> list[NDArray[np.float32]]:
    """What timm's `RandomErasing` writes into black images: the erased pixels, (3, P), of each."""
    from timm.data.random_erasing import RandomErasing

    erase: Any = RandomErasing(probability=1.0, mode=mode, device="cpu")  # type: ignore[no-untyped-call]
    with seeded(seed):
        images = [erase(torch.zeros(3, side, side)).flatten(1) for _ in range(draws)]
    return [image[:, image[0] != 0].numpy() for image in images]


# ---- torchvision ---------------------------------------------------------------------------------------------------


def _forced_torchvision(height: int, width: int) -> Iterator[Forced]:
    ours: AutoPolicy
    known: set[str] = set()
    for ours in (RandAugment(), TrivialAugmentWide(), AugMix(), AutoAugment()):
        transform = _transform(ours)
        space = getattr(transform, "_AUGMENTATION_SPACE")  # noqa: B009 - theirs, and private
        table = policies.policy_words(ours, height, width)
        for row, (name, (magnitudes_of, signed)) in enumerate(space.items()):
            if isinstance(ours, AutoAugment) and name in known:
                continue  # RandAugment's magnitudes
            known.add(name)
            magnitudes = magnitudes_of(table.shape[1], height, width)
            bins = range(0, table.shape[1], max(1, table.shape[1] // 3)) if magnitudes is not None else [0]
            for place in bins:
                for sign in (0, 1) if signed else (0,):
                    magnitude = 0.0 if magnitudes is None else float(magnitudes[place]) * (1 - 2 * sign)
                    yield Forced(
                        "torchvision", f"{name} ({ours.interpolation})" if name in policies.GEOMETRIC else name,
                        table[row, place, sign], ours.fill, _torchvision_call(transform, name, magnitude),
                    )  # fmt: skip


def _torchvision_call(transform: Any, name: str, magnitude: float) -> Callable[[Pixels], Pixels]:
    def call(pixels: Pixels) -> Pixels:
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
        result = transform._apply_image_or_video_transform(
            image, name, magnitude, interpolation=transform.interpolation, fill=transform._fill
        )
        return np.asarray(result.permute(1, 2, 0))

    return call


def _transform(policy: AutoPolicy) -> Any:
    from torchvision.transforms import v2
    from torchvision.transforms.autoaugment import AutoAugmentPolicy

    options: dict[str, Any] = {
        "interpolation": v2.InterpolationMode(policy.interpolation), "fill": list(policy.fill)
    }  # fmt: skip
    match policy:
        case RandAugment():
            return v2.RandAugment(policy.num_ops, policy.magnitude, policy.num_magnitude_bins, **options)
        case TrivialAugmentWide():
            return v2.TrivialAugmentWide(policy.bins, **options)
        case AutoAugment():
            return v2.AutoAugment(AutoAugmentPolicy(policy.policy), **options)
        case AugMix():
            return v2.AugMix(policy.severity, policy.mixture_width, policy.chain_depth, policy.alpha, policy.all_ops,
                             **options)  # fmt: skip


def hear_torchvision(transform: Any, applied: list[str]) -> None:
    """Have a policy of torchvision's (v2) write our names of the ops that it applies into a list."""
    apply = transform._apply_image_or_video_transform

    def heard(image: Any, name: str, magnitude: float, **options: Any) -> Any:
        if name != "Identity":
            applied.append(_name(name, moves=int(magnitude) != 0))
        return apply(image, name, magnitude, **options)

    transform._apply_image_or_video_transform = heard


def _torchvision(policy: AutoPolicy) -> Drawing:
    transform = _transform(policy)
    applied: list[str] = []
    hear_torchvision(transform, applied)

    def call(pixels: Pixels) -> Pixels:
        return np.asarray(transform(torch.from_numpy(pixels.copy()).permute(2, 0, 1)).permute(1, 2, 0))

    return Drawing("torchvision", call, applied)
