"""The steps of a recipe with equal parameters: crop, flip, jitter, grey, blur, solarize, erasing, MixUp and CutMix.

Ours come from a recipe whose ranges are single values, drawn by `sample_params` and run by the ops of training. What
stays random (a window, a rectangle, a share, the order of the jitter) is read from the record and forced on the peer.
Peers work on tensors ("torchvision", "timm") or, as most training scripts do, on Pillow images ("Pillow": what
torchvision and timm do with those).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from lightning_gpuaug import ops
from lightning_gpuaug.augment import Params, sample_params
from lightning_gpuaug.augment.explain import program_of
from lightning_gpuaug.cli.parity_ops import LEVELS, MEAN_APART_BLURRED, MOST_APART, OpParity, op_parity
from lightning_gpuaug.cli.peers import Pixels, timm_mix, timm_noise
from lightning_gpuaug.ops.record import Flag, Opcode, Word
from lightning_gpuaug.recipe import (
    ColorJitter,
    GaussianBlur,
    Mix,
    RandomErasing,
    RandomResizedCrop,
    Solarize,
    TrainRecipe,
)
from lightning_gpuaug.recipe.checks import Interpolation

Record = NDArray[np.int32]
Apply = Callable[[Pixels, Record], Pixels]
"""An image and our record of it to what the peer makes of it, with the parameters of the record."""

_EPOCHS = 6
"""Draws of each step: other windows, rectangles, shares and orders."""
_FACTORS = ((1.4, 0.7, 1.5, 0.1), (0.6, 1.3, 0.5, -0.2), (1.2, 1.5, 0.2, 0.02))
"""Of the jitter: brightness, contrast, saturation, hue."""
_SIGMAS = (0.1, 0.5, 1.0, 2.0)
_BLUR_KERNEL = 15
_SMALLER = 0.6
"""Result of a crop in sizes of the image: some windows are shrunk to it, some grow."""
MEAN_APART_HUE = 1.5
"""Levels on average between a hue turned in float and Pillow's, which has 256 hues and a saturation of 8 bits."""
PIL_BICUBIC = 0.02
"""Share of values more than a level off Pillow's bicubic, which is cut to 0..255 between its two passes."""
NEAREST_TIES = 0.03
"""Share of values more than a level off where a pixel's centre falls just between two pixels of the window."""
MEAN_APART_CUBIC = 2.0
"""Levels on average between Keys' kernel with a = -0.5 (ours, Pillow's) and torch's -0.75 without antialias."""
MEAN_APART_PILLOW = 1.0
"""Levels on average between a grey that is truncated (torchvision's tensors) and one that is rounded (Pillow's)."""
PLAIN_SEED = 0


@dataclass(frozen=True)
class Step:
    """One step of a recipe beside its peer.

    Attributes:
        peer: "torchvision", "Pillow" or "timm".
        op: its name.
        recipe: ours, everything else switched off.
        apply: the peer's, for one image.
        batch: the peer's where it takes a batch: (N, 3, S, S) float and our records.
        force: writes what the peer will draw into our records; gets them and the side of the result.
        size: of the result in sizes of the image.
        most_over_one: as of `OpParity`.
        most_mean: as of `OpParity`.
    """

    peer: str
    op: str
    recipe: TrainRecipe
    apply: Apply | None = None
    batch: Callable[[torch.Tensor, Record], torch.Tensor] | None = None
    force: Callable[[Record, int], None] | None = None
    size: float = 1.0
    most_over_one: float = MOST_APART
    most_mean: float = LEVELS


def _plain(**steps: Any) -> TrainRecipe:
    return TrainRecipe(**{"crop": None, "hflip": 0.0, "normalize": None, **steps})


def compare_steps(
    images: Pixels, device: torch.device, seed: int = PLAIN_SEED, done: Callable[[], None] = lambda: None
) -> list[OpParity]:
    """Compare every step of a recipe with its peers.

    Args:
        images: (N, S, S, 3) uint8; of an odd number the first comes twice, since mixing takes pairs.
        device: where our ops run.
        seed: of the windows, rectangles, shares and orders.
        done: called after each step.
    """
    if len(images) % 2:
        images = np.concatenate([images, images[:1]])
    groups: dict[tuple[str, str], list[Step]] = {}
    for step in steps():
        groups.setdefault((step.peer, step.op), []).append(step)
    result = []
    for (peer, op), cases in groups.items():
        counts = np.zeros(LEVELS, dtype=np.int64)
        for step in cases:
            for epoch in range(_EPOCHS):
                counts += _differences(step, images, epoch, seed, device)
        first = cases[0]
        result.append(op_parity(peer, op, len(cases) * _EPOCHS, images.shape[1], counts, first.most_over_one,
                                first.most_mean))  # fmt: skip
        done()
    return result


def _differences(step: Step, images: Pixels, epoch: int, seed: int, device: torch.device) -> NDArray[np.int64]:
    """How many values differ by how many levels, (256,); mixed values, which have fractions, to the nearest level."""
    size = max(1, round(images.shape[1] * step.size))
    params, ours = _ours(step.recipe, images, size, epoch, seed, device, step.force)
    if step.batch is not None:
        x = torch.from_numpy(images).permute(0, 3, 1, 2) / 255.0
        theirs = (step.batch(x, params.records) * 255.0).round().to(torch.int64).numpy()
    else:
        assert step.apply is not None
        drawn = [step.apply(image, record) for image, record in zip(images, params.records, strict=True)]
        theirs = np.stack(drawn).transpose(0, 3, 1, 2).astype(np.int64)
    apart = np.abs(np.rint(ours).astype(np.int64) - theirs)
    if step.recipe.erasing is not None and step.recipe.erasing.mode != "const":  # noise has no equal: `compare_noise`
        apart = apart[np.broadcast_to(~erased(params.records, size)[:, None], apart.shape)]
    return np.bincount(np.minimum(apart, LEVELS - 1).ravel(), minlength=LEVELS)


def _ours(
    recipe: TrainRecipe, images: Pixels, size: int, epoch: int, seed: int, device: torch.device,
    force: Callable[[Record, int], None] | None = None,
) -> tuple[Params, NDArray[np.float32]]:  # fmt: skip
    """The records of a batch and what they make of it, (N, 3, size, size), in levels."""
    n, side = images.shape[:2]
    pixels = torch.from_numpy(images).to(device)
    floating = recipe.mix is not None or recipe.erasing is not None
    dtype = torch.float32 if floating else torch.uint8
    sizes = np.full((n, 2), side, dtype=np.int32)
    params = sample_params(recipe, np.arange(n), epoch, seed, size, size, sizes=sizes)
    if force is not None:
        force(params.records, size)
    records = torch.from_numpy(params.records)
    offsets = torch.arange(n, device=device) * (3 * side * side)
    made = ops.augment_packed(pixels.reshape(-1), offsets, torch.from_numpy(sizes).to(device), records, (size, size),
                              dtype=dtype, chains=params.chains)  # fmt: skip
    return params, made.cpu().numpy().astype(np.float32) * (255.0 if floating else 1.0)


def erased(records: Record, size: int) -> NDArray[np.bool_]:
    """Where each image was erased: (N, size, size)."""
    where = np.zeros((len(records), size, size), dtype=bool)
    for mask, record in zip(where, records, strict=True):
        top, left, height, width = record[Word.ERASE : Word.ERASE + 4]
        mask[top : top + height, left : left + width] = True
    return where


# ---- the peers -----------------------------------------------------------------------------------------------------


def _tensor(image: Pixels) -> torch.Tensor:
    return torch.from_numpy(image.copy()).permute(2, 0, 1)


def _functional() -> Any:
    from torchvision.transforms.v2 import functional

    return functional


def _on_both(call: Callable[[Any, Record], Any]) -> tuple[tuple[str, Apply], tuple[str, Apply]]:
    """A torchvision functional, which takes both kinds of image, as both peers."""
    return (
        ("torchvision", lambda image, record: np.asarray(call(_tensor(image), record).permute(1, 2, 0))),
        ("Pillow", lambda image, record: np.asarray(call(Image.fromarray(image), record))),
    )


def steps() -> Iterator[Step]:
    """Every step with its settings and peers."""
    yield from _crops()
    yield from _flips()
    yield from _colours()
    yield from _erasing()
    yield from _mixes()


def _crops() -> Iterator[Step]:
    """Windows and filters.

    On tensors, torchvision's own "nearest" takes the pixel left of the centre, and its "nearest-exact" what Pillow and
    we take; Pillow always widens its filter.
    """
    settings: tuple[tuple[str, Interpolation, bool, str, float], ...] = (
        ("torchvision", "nearest", False, "nearest-exact", MOST_APART),
        ("Pillow", "nearest", True, "nearest", NEAREST_TIES),
        ("torchvision", "bilinear", True, "bilinear", MOST_APART),
        ("Pillow", "bilinear", True, "bilinear", MOST_APART),
        ("torchvision", "bilinear", False, "bilinear", MOST_APART),
        ("torchvision", "bicubic", True, "bicubic", MOST_APART),
        ("Pillow", "bicubic", True, "bicubic", PIL_BICUBIC),
        ("torchvision", "bicubic", False, "bicubic", 1.0),
    )
    for peer, interpolation, antialias, mode, limit in settings:
        recipe = _plain(crop=RandomResizedCrop(interpolation=interpolation, antialias=antialias))
        plain = ", no antialias" if interpolation != "nearest" and not antialias else ""
        apply = dict(_on_both(_resized_crop(mode, antialias)))[peer]
        yield Step(peer, f"RandomResizedCrop ({mode}{plain})", recipe, apply, size=_SMALLER, most_over_one=limit,
                   most_mean=MEAN_APART_CUBIC if limit == 1.0 else LEVELS)  # fmt: skip


def _resized_crop(mode: str, antialias: bool) -> Callable[[Any, Record], Any]:
    """torchvision's, of the window that our record names."""

    def crop(image: Any, record: Record) -> Any:
        from torchvision.transforms import InterpolationMode

        top, left, height, width = record[Word.CROP : Word.CROP + 4].tolist()
        side = image.shape[-1] if isinstance(image, torch.Tensor) else image.width
        size = max(1, round(side * _SMALLER))
        return _functional().resized_crop(image, top, left, height, width, [size, size], InterpolationMode(mode),
                                          antialias)  # fmt: skip

    return crop


def _flips() -> Iterator[Step]:
    for name, recipe, call in (
        ("RandomHorizontalFlip", _plain(hflip=1.0), lambda image, record: _functional().horizontal_flip(image)),
        ("RandomVerticalFlip", _plain(vflip=1.0), lambda image, record: _functional().vertical_flip(image)),
    ):
        for peer, apply in _on_both(call):
            yield Step(peer, name, recipe, apply)


def _colours() -> Iterator[Step]:
    for factors in _FACTORS:
        for hue in (False, True):
            used = factors if hue else (*factors[:3], 0.0)

            def jitter(image: Any, record: Record, used: tuple[float, ...] = used) -> Any:
                f = _functional()
                by_opcode = {
                    Opcode.BRIGHTNESS: (f.adjust_brightness, used[0]), Opcode.CONTRAST: (f.adjust_contrast, used[1]),
                    Opcode.SATURATION: (f.adjust_saturation, used[2]), Opcode.HUE: (f.adjust_hue, used[3]),
                }  # fmt: skip
                for op in program_of(record):
                    call, factor = by_opcode[op.opcode]
                    image = call(image, factor)
                return image

            b, c, s, h = ((value, value) for value in used)
            exact = ColorJitter(b, c, s, h)
            for peer, apply in _on_both(jitter):
                share, mean = MOST_APART, float(LEVELS)
                if peer == "Pillow":
                    share, mean = 1.0, MEAN_APART_HUE if hue else MEAN_APART_PILLOW
                yield Step(peer, f"ColorJitter ({'with' if hue else 'no'} hue)", _plain(color_jitter=exact), apply,
                           most_over_one=share, most_mean=mean)  # fmt: skip
    for peer, apply in _on_both(lambda image, record: _functional().rgb_to_grayscale(image, num_output_channels=3)):
        yield Step(peer, "RandomGrayscale", _plain(grayscale=1.0), apply)
    for sigma in _SIGMAS:
        recipe = _plain(blur=GaussianBlur(_BLUR_KERNEL, (sigma, sigma), 1.0))

        def blurred(image: Pixels, record: Record, sigma: float = sigma) -> Pixels:
            result = _functional().gaussian_blur(_tensor(image), [_BLUR_KERNEL, _BLUR_KERNEL], [sigma, sigma])
            return np.asarray(result.permute(1, 2, 0))

        def boxes(image: Pixels, record: Record, sigma: float = sigma) -> Pixels:
            return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(sigma)))

        yield Step("torchvision", "GaussianBlur", recipe, blurred)
        yield Step("Pillow", "GaussianBlur", recipe, boxes, most_over_one=1.0, most_mean=MEAN_APART_BLURRED)
    for peer, apply in _on_both(lambda image, record: _functional().solarize(image, 128)):
        yield Step(peer, "RandomSolarize", _plain(solarize=Solarize(128, 1.0)), apply)


def _erasing() -> Iterator[Step]:
    value = (0.3, 0.6, 0.1)

    def erase(x: torch.Tensor, records: Record) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        fill = torch.tensor(value)[:, None, None]
        boxes = [record[Word.ERASE : Word.ERASE + 4].tolist() for record in records]
        return torch.stack([functional.erase(image, *box, fill) for image, box in zip(x, boxes, strict=True)])

    for mode in ("const", "rand", "pixel"):
        where = "" if mode == "const" else ", outside"
        yield Step("torchvision", f"RandomErasing ({mode}{where})",
                   _plain(erasing=RandomErasing(1.0, mode=mode, value=value)), batch=erase)  # fmt: skip


def _mixes() -> Iterator[Step]:
    for name, mix in (("MixUp", Mix(0.8, 0.0)), ("CutMix", Mix(0.0, 1.0))):
        recipe = _plain(mix=mix)
        yield Step("torchvision", name, recipe, batch=_torchvision_mix)
        yield Step("timm", name, recipe, batch=_timm_mix, force=_force_timms_box)


def _mix_of(records: Record) -> tuple[float, tuple[int, int, int, int] | None]:
    """A batch's share and, of CutMix, its box: top, left, height, width."""
    top, left, height, width = records[0, Word.CUT : Word.CUT + 4].tolist()
    cut = bool(records[0, Word.FLAGS] & Flag.CUTMIX)
    return float(records.view(np.float32)[0, Word.LAMBDA]), (top, left, height, width) if cut else None


def _timm_mix(x: torch.Tensor, records: Record) -> torch.Tensor:
    """timm's, with the batch's share; the box is the one that timm draws from the epoch as a seed."""
    share, box = _mix_of(records)
    return timm_mix(x, share, box is not None, int(records[0, Word.EPOCH]))


def _force_timms_box(records: Record, size: int) -> None:
    """Write the box that `_timm_mix` will cut into the records: the box of a probe of zeros and ones."""
    if _mix_of(records)[1] is None:
        return
    probe = torch.stack([torch.zeros(3, size, size), torch.ones(3, size, size)])
    inside = np.argwhere(_timm_mix(probe, records)[0, 0].numpy() == 1)
    records[:, Word.CUT : Word.CUT + 4] = 0
    if len(inside):
        first, last = inside.min(axis=0), inside.max(axis=0) + 1
        records[:, Word.CUT : Word.CUT + 4] = [*first, *(last - first)]


def _torchvision_mix(x: torch.Tensor, records: Record) -> torch.Tensor:
    """torchvision's, which mixes row i with row i - 1: rows i and N - 1 - i side by side as batches of two."""
    from torchvision.transforms import v2

    share, box = _mix_of(records)
    transform = v2.MixUp(num_classes=2) if box is None else v2.CutMix(num_classes=2)
    labels = torch.arange(2)
    parameters: dict[str, Any] = {"labels": labels, "batch_size": 2, "lam": share, "lam_adjusted": share}
    if box is not None:
        top, left, height, width = box
        parameters["box"] = (left, top, left + width, top + height)
    result = torch.empty_like(x)
    for i in range(len(x) // 2):
        rows = [i, len(x) - 1 - i]
        result[rows] = transform.transform(x[rows], parameters)
    return result


# ---- noise ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoiseParity:
    """Numbers that both sides draw: as distributions.

    Attributes:
        peer: whose.
        op: which step.
        count: numbers on each side.
        mean: ours and theirs.
        std: ours and theirs.
        distance: largest difference of the cumulative distributions (Kolmogorov and Smirnov), 0..1.
        noise: the same between two runs of the peer.
        apart: the distance in units of what chance makes; see `parity_statistics.distribution_apart`.
    """

    peer: str
    op: str
    count: int
    mean: tuple[float, float]
    std: tuple[float, float]
    distance: float
    noise: float
    apart: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is within what chance makes."""
        from lightning_gpuaug.cli.parity_statistics import MOST_DISTRIBUTION_APART

        return self.apart <= MOST_DISTRIBUTION_APART


def compare_noise(side: int, draws: int, device: torch.device, seed: int = PLAIN_SEED) -> list[NoiseParity]:
    """Compare what random erasing writes with timm's, in units of the normalised image.

    Args:
        side: height and width of the images, pixels.
        draws: images on each side.
        device: where our op runs.
        seed: of all draws.
    """
    from lightning_gpuaug.cli.parity_statistics import distribution_apart, distribution_distance

    result = []
    for mode in ("rand", "pixel"):
        recipe = _plain(erasing=RandomErasing(1.0, mode=mode))
        params, made = _ours(recipe, np.zeros((draws, side, side, 3), np.uint8), side, 0, seed, device)
        where = erased(params.records, side)
        ours = [image[:, mask] / 255.0 for image, mask in zip(made, where, strict=True)]
        theirs, again = (timm_noise(mode, draws, side, seed + run) for run in (1, 2))
        a, b, c = (_numbers(mode, images) for images in (ours, theirs, again))
        result.append(NoiseParity(
            "timm", f"RandomErasing ({mode})", len(a), (float(a.mean()), float(b.mean())),
            (float(a.std()), float(b.std())), distribution_distance(a, b), distribution_distance(b, c),
            distribution_apart(a, b),
        ))  # fmt: skip
    return result


def _numbers(mode: str, images: list[NDArray[np.float32]]) -> NDArray[np.float64]:
    """The numbers that were drawn, of erased pixels (3, P) of each image: of "rand" one a channel."""
    if mode == "rand":
        images = [image[:, :1] if image.size and (image == image[:, :1]).all() else image for image in images]
    return np.concatenate([image.ravel() for image in images]).astype(np.float64)
