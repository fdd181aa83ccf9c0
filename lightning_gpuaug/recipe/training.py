"""What happens to images that are trained on: one view of a sample, or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from lightning_gpuaug.recipe.checks import (
    check_probability,
    check_step,
    check_switch,
    check_whole,
    is_whole,
    require,
)
from lightning_gpuaug.recipe.policies import NAMED_POLICIES, AugMix, AutoPolicy
from lightning_gpuaug.recipe.policy_strings import read_policy
from lightning_gpuaug.recipe.sizes import LARGEST, SizeRamp, SizeSteps, size_at, size_steps
from lightning_gpuaug.recipe.steps import (
    ColorJitter,
    GaussianBlur,
    Mix,
    Normalize,
    RandomErasing,
    RandomResizedCrop,
    Solarize,
)

MOST_REPEATS, MOST_SPLITS, MOST_VIEWS = 64, 8, 64

_STEPS = ("crop", "hflip", "vflip", "auto", "color_jitter", "grayscale", "blur", "solarize", "erasing")
"""The fields that a view has for itself."""


@dataclass(frozen=True)
class View:
    """One kind of view of a sample, for self-supervised learning: its own window, size and steps.

    Its steps come in the order of `TrainRecipe`'s and mean the same.

    Attributes:
        count: how many views of this kind, each with draws of its own.
        image_size: height and width, pixels; None takes that of the recipe or the data module.
        crop: the random resized crop, or None to resize the whole image.
        hflip: probability of a horizontal flip, 0..1.
        vflip: probability of a vertical flip, 0..1.
        auto: a policy of random ops.
        color_jitter: random brightness, contrast, saturation and hue.
        grayscale: probability of turning the view grey, 0..1.
        blur: Gaussian blur.
        solarize: inverted highlights.
        erasing: random erasing.
    """

    count: int = 1
    image_size: int | None = None
    crop: RandomResizedCrop | None = field(default_factory=RandomResizedCrop)
    hflip: float = 0.5
    vflip: float = 0.0
    auto: AutoPolicy | str | None = None
    color_jitter: ColorJitter | None = None
    grayscale: float = 0.0
    blur: GaussianBlur | None = None
    solarize: Solarize | None = None
    erasing: RandomErasing | None = None

    def __post_init__(self) -> None:
        """Validate every field."""
        check_whole("View.count", self.count, 1, MOST_VIEWS)
        if self.image_size is not None:
            check_whole("View.image_size", self.image_size, 1, LARGEST)
        _check_steps(self)


@dataclass(frozen=True)
class TrainRecipe:
    """Training, in this order: crop, flip, auto, color_jitter, grayscale, blur, solarize, normalise, erase, mix.

    Attributes:
        crop: the random resized crop, or None to resize the whole image (aspect ratio not kept).
        hflip: probability of a horizontal flip, 0..1.
        vflip: probability of a vertical flip, 0..1.
        auto: a policy of random ops: `RandAugment`, `AutoAugment`, `TrivialAugmentWide` or `AugMix` in torchvision's
            definitions, or the name of one for its defaults; a name of torchvision's training reference ("ra",
            "ta_wide", "imagenet", "cifar10", "svhn", "augmix"), for its settings; or a string in timm's definitions:
            "rand-m9-mstd0.5-inc1", "v0", "original-mstd0.5", "3a", "augmix-m5-w4-d2".
        color_jitter: random brightness, contrast, saturation and hue; not together with AugMix.
        grayscale: probability of turning the image grey, 0..1.
        blur: Gaussian blur.
        solarize: inverted highlights.
        erasing: random erasing.
        mix: MixUp and CutMix.
        normalize: mean and std, or None for pixels on the 0..1 scale.
        exif_orientation: rotate as the EXIF tag says. Off by default, as PIL and torchvision's ImageFolder behave.
        image_size: height and width of training images, pixels, where they are not the data module's `image_size`
            (which evaluation keeps): a number, a `SizeRamp`, or a mapping from first epochs to sizes such as
            `{0: 128, 10: 160, 20: 224}`. Sizes change between epochs, without a pause.
        repeats: repeated augmentation: each sample comes so many times in a row of the global order, with draws of
            its own each time, so that its neighbours are on different ranks. An epoch keeps its number of steps and
            so visits a share of the samples; as timm's `RepeatAugSampler`, it is cut to a multiple of 256 images.
        splits: augmentation splits, as timm's `--aug-splits` for the Jensen–Shannon loss of AugMix: batches hold
            `splits` × N images. The first N are only cropped and flipped (not erased either, timm's `--resplit`), each
            further N are the same crops with draws of their own; targets are repeated. 1 is off. Not with `mix`.
        views: for self-supervised learning: kinds of views of each sample, decoded once. Batches are then
            `(list of image batches, targets)`, one image batch a view, in the order given. Each kind has its own
            steps, so the recipe's own (crop to erasing) stay at their defaults; not together with `mix` or `splits`.
    """

    crop: RandomResizedCrop | None = field(default_factory=RandomResizedCrop)
    hflip: float = 0.5
    normalize: Normalize | None = field(default_factory=Normalize)
    exif_orientation: bool = False
    vflip: float = 0.0
    auto: AutoPolicy | str | None = None
    color_jitter: ColorJitter | None = None
    grayscale: float = 0.0
    blur: GaussianBlur | None = None
    erasing: RandomErasing | None = None
    mix: Mix | None = None
    solarize: Solarize | None = None
    image_size: int | SizeRamp | dict[int, int] | SizeSteps | None = None
    repeats: int = 1
    splits: int = 1
    views: tuple[View, ...] = ()

    @property
    def resample(self) -> RandomResizedCrop:
        """Interpolation and antialias of the resize, with or without a random crop."""
        return self.crop or RandomResizedCrop()

    @property
    def needs_program(self) -> bool:
        """Whether more happens to the pixels than crop, horizontal flip and normalise."""
        steps = (self.auto, self.color_jitter, self.blur, self.solarize, self.erasing, self.mix)
        return any(step is not None for step in steps) or self.vflip > 0 or self.grayscale > 0 or self.splits > 1

    def size_at(self, epoch: int, otherwise: int) -> int:
        """Height and width of training images in an epoch, pixels.

        Args:
            epoch: number of the epoch.
            otherwise: the data module's size.
        """
        size = self.image_size
        if size is None:
            return otherwise
        return size_at(tuple(size.items()) if isinstance(size, dict) else size, epoch)

    def view_recipe(self, view: View) -> TrainRecipe:
        """The recipe of one kind of view alone."""
        steps = {name: getattr(view, name) for name in _STEPS}
        return TrainRecipe(normalize=self.normalize, exif_orientation=self.exif_orientation, **steps)

    def __post_init__(self) -> None:
        """Validate every field."""
        _check_steps(self)
        check_step("TrainRecipe.normalize", self.normalize, Normalize)
        check_switch("TrainRecipe.exif_orientation", self.exif_orientation)
        check_step("TrainRecipe.mix", self.mix, Mix)
        self._check_size()
        check_whole("TrainRecipe.repeats", self.repeats, 1, MOST_REPEATS)
        check_whole("TrainRecipe.splits", self.splits, 1, MOST_SPLITS)
        require(self.splits == 1 or self.mix is None, "TrainRecipe.splits", "must be 1 together with mix", self.splits)
        self._check_views()

    def _check_size(self) -> None:
        name, size = "TrainRecipe.image_size", self.image_size
        if isinstance(size, tuple | list):
            pairs = all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in size)
            require(pairs, name, "must map first epochs to sizes", size)
            size = dict(size)
        if isinstance(size, Mapping):
            object.__setattr__(self, "image_size", size_steps(name, size))
        elif is_whole(size):
            assert isinstance(size, int)
            check_whole(name, size, 1, LARGEST)
        else:
            require(size is None or isinstance(size, SizeRamp), name,
                    "must be a size, a SizeRamp, a mapping of first epochs to sizes, or None", size)  # fmt: skip

    def _check_views(self) -> None:
        name, views = "TrainRecipe.views", self.views
        listed = isinstance(views, Sequence) and not isinstance(views, str)
        require(listed and all(isinstance(view, View) for view in views), name, "must be a list of View", views)
        object.__setattr__(self, "views", tuple(views))
        if not views:
            return
        count = sum(view.count for view in views)
        require(count <= MOST_VIEWS, name, f"must be at most {MOST_VIEWS} in all", count)
        require(self.mix is None and self.splits == 1, name, "must not be given together with mix or splits", views)
        defaults = {f.name: f.default_factory() if callable(f.default_factory) else f.default for f in fields(self)}
        for step in _STEPS:
            require(getattr(self, step) == defaults[step], f"TrainRecipe.{step}",
                    "must be left at its default together with views, which have steps of their own",
                    getattr(self, step))  # fmt: skip


def _check_steps(recipe: View | TrainRecipe) -> None:
    """The fields that views and recipes share."""
    owner = type(recipe).__name__
    check_step(f"{owner}.crop", recipe.crop, RandomResizedCrop)
    for name in ("hflip", "vflip", "grayscale"):
        check_probability(f"{owner}.{name}", getattr(recipe, name))
    check_step(f"{owner}.color_jitter", recipe.color_jitter, ColorJitter)
    check_step(f"{owner}.blur", recipe.blur, GaussianBlur)
    check_step(f"{owner}.solarize", recipe.solarize, Solarize)
    check_step(f"{owner}.erasing", recipe.erasing, RandomErasing)
    auto = recipe.auto
    require(auto is None or isinstance(auto, AutoPolicy | str), f"{owner}.auto",
            "must be a policy, its name, a timm string or None", auto)  # fmt: skip
    if isinstance(auto, str) and auto not in NAMED_POLICIES:
        read_policy(auto)
    if isinstance(auto, AugMix) or (isinstance(auto, str) and auto.lower().startswith("augmix")):
        alone = recipe.color_jitter is None and recipe.grayscale == 0 and recipe.blur is None
        require(alone and recipe.solarize is None, f"{owner}.auto",
                "must not be AugMix together with color_jitter, grayscale, blur or solarize", auto)  # fmt: skip
