"""torchvision's policies as record words, against torchvision itself."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms import autoaugment as tv

from lightning_gpuaug import ops
from lightning_gpuaug.augment import policies
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.recipe import NAMED_POLICIES, AugMix, AutoAugment, RandAugment, TrainRecipe, TrivialAugmentWide
from tests.ops.programs import records
from tests.ops.test_augment_ops import picture

HEIGHT, WIDTH = 60, 84
IMAGE = picture(HEIGHT, WIDTH)


def test_linspace_is_torchs():
    ranges = [(0.0, end, 31) for end in (0.3, 0.9, 0.99, 150 / 331 * 224, 32.0, 30.0, 135.0)]
    ranges += [(0.0, end, 10) for end in (0.3, 0.9, 224 / 3, 30.0)]
    ranges += [(255.0, 0.0, 31), (255.0, 0.0, 10), (0.0, 0.3, 7)]
    for start, stop, steps in ranges:
        expected = torch.linspace(start, stop, steps)
        ours = torch.tensor(policies.linspace(start, stop, steps))
        assert torch.allclose(ours, expected, rtol=2e-7, atol=1e-7)
        assert torch.equal(ours.floor(), expected.floor())


CASES = [
    (RandAugment(), tv.RandAugment(), lambda t: t._augmentation_space(31, (HEIGHT, WIDTH))),
    (RandAugment(num_magnitude_bins=11), tv.RandAugment(), lambda t: t._augmentation_space(11, (HEIGHT, WIDTH))),
    (AutoAugment(), tv.AutoAugment(), lambda t: t._augmentation_space(10, (HEIGHT, WIDTH))),
    (TrivialAugmentWide(), tv.TrivialAugmentWide(), lambda t: t._augmentation_space(31)),
    (AugMix(), tv.AugMix(), lambda t: t._augmentation_space(10, (HEIGHT, WIDTH))),
    (AugMix(all_ops=False), tv.AugMix(all_ops=False), lambda t: t._augmentation_space(10, (HEIGHT, WIDTH))),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_op_at_every_magnitude_does_what_torchvision_does(case):
    policy, transform, space_of = CASES[case]
    space = space_of(transform)
    assert policies.ops_of(policy) == tuple(space)
    table = policies.policy_words(policy, HEIGHT, WIDTH)
    words, expected, names = [], [], []
    mode = InterpolationMode(policy.interpolation)
    for i, (name, (magnitudes, signed)) in enumerate(space.items()):
        bins = range(table.shape[1]) if magnitudes.ndim else [0]
        for b in list(bins)[:: max(1, len(bins) // 6)]:
            for s in (0, 1) if signed else (0,):
                magnitude = float(magnitudes[b]) if magnitudes.ndim else 0.0
                magnitude = -magnitude if s else magnitude
                # A nearest neighbour at a tie is either one: then a hair more or less decides it.
                hairs = (1.0, 1 + 1e-4, 1 - 1e-4) if name in ("Rotate", "ShearX", "ShearY") else (1.0,)
                images = [tv._apply_op(IMAGE.permute(2, 0, 1), name, magnitude * hair, mode, None) for hair in hairs]
                words.append(table[i, b, s])
                expected.append(torch.stack(images).permute(0, 2, 3, 1))
                names.append(name)
    params = records([[]] * len(words))
    params[:, rec.Word.PROGRAM : rec.Word.PROGRAM + 3] = torch.from_numpy(np.stack(words))
    results = ops.augment(IMAGE.expand(len(words), -1, -1, -1), params, dtype=torch.uint8).permute(0, 2, 3, 1)
    for ours, theirs, name in zip(results, expected, names, strict=True):
        difference = (ours.int() - theirs.int()).abs().amax(-1).amin(0)
        assert int(difference.max()) <= 1, name
    assert len(results) > 40


def test_autoaugment_tables_are_torchvisions():
    for ours, theirs in zip(("imagenet", "cifar10", "svhn"), tv.AutoAugmentPolicy, strict=True):
        table = tv.AutoAugment()._get_policies(theirs)
        assert theirs.value == ours
        assert policies.AUTOAUGMENT_TABLES[ours] == tuple(
            tuple((name, p, 0 if bin_ is None else bin_) for name, p, bin_ in pair) for pair in table
        )


def test_tables_are_made_once_and_read_only():
    table = policies.policy_words(RandAugment(), 8, 9)
    assert policies.policy_words(RandAugment(), 8, 9) is table
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 1


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("ra", tv.RandAugment(interpolation=InterpolationMode.BILINEAR)),
        ("ta_wide", tv.TrivialAugmentWide(interpolation=InterpolationMode.BILINEAR)),
        ("imagenet", tv.AutoAugment(tv.AutoAugmentPolicy.IMAGENET, InterpolationMode.BILINEAR)),
        ("cifar10", tv.AutoAugment(tv.AutoAugmentPolicy.CIFAR10, InterpolationMode.BILINEAR)),
        ("svhn", tv.AutoAugment(tv.AutoAugmentPolicy.SVHN, InterpolationMode.BILINEAR)),
        ("augmix", tv.AugMix(interpolation=InterpolationMode.BILINEAR)),
    ],
)
def test_names_are_those_of_torchvisions_training_reference(name, theirs):
    """Its presets build these with `interpolation=bilinear` and otherwise the defaults."""
    policy = NAMED_POLICIES[name]
    fields = {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy)}
    for key, value in fields.items():
        other = getattr(theirs, {"bins": "num_magnitude_bins"}.get(key, key))
        if key == "fill":
            assert (value, other) == ((0, 0, 0), None)
        else:
            assert value == getattr(other, "value", other), key
    TrainRecipe(auto=name)
