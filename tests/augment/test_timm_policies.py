"""timm's policies, against timm itself: strings, tables, and each op at several magnitudes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment as timm_aa

from lightning_gpuaug import ops
from lightning_gpuaug.augment import timm_policies as ours
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.recipe import TrainRecipe
from tests.ops.programs import records
from tests.ops.test_augment_ops import picture

HEIGHT, WIDTH = 60, 84
IMAGE = picture(HEIGHT, WIDTH)
FILL = (124, 116, 104)


def test_tables_are_timms():
    assert tuple(timm_aa._RAND_TRANSFORMS) == ours._RAND
    assert tuple(timm_aa._RAND_INCREASING_TRANSFORMS) == ours._RAND_INCREASING
    assert tuple(timm_aa._RAND_3A) == ours._RAND_3A
    assert ours._WEIGHTS == timm_aa._RAND_WEIGHTED_0
    assert ours._WEIGHTS_3A == timm_aa._RAND_WEIGHTED_3A
    assert tuple(timm_aa._AUGMIX_TRANSFORMS) == ours._AUGMIX
    for name, table in ours.AUTO_TABLES.items():
        theirs = timm_aa.auto_augment_policy(name)
        assert table == tuple(tuple((op.name, op.prob, op.magnitude) for op in pair) for pair in theirs)


@pytest.mark.parametrize(
    "text",
    ["rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.7-mmax15", "rand", "rand-mstd200-n1", "rand-m5-tweights", "rand-t3a-n1",
     "rand-m6-t3aw", "rand-m15-mmax20-inc0"],
)  # fmt: skip
def test_rand_strings_are_read_as_timm_reads_them(text):
    theirs = timm_aa.rand_augment_transform(text, {"translate_const": 100, "img_mean": FILL})
    policy = ours.parse(text)
    assert policy.kind == "rand"
    assert policy.ops == tuple(op.name for op in theirs.ops)
    assert policy.num_ops == theirs.num_layers
    (op, *_) = theirs.ops
    assert policy.magnitude == op.magnitude
    assert policy.deviation == op.magnitude_std
    assert policy.highest == (op.magnitude_max or 10)
    assert policy.probability == op.prob
    if theirs.choice_weights is None:
        assert policy.weights is None
    else:
        assert np.allclose(np.array(policy.weights) / sum(policy.weights), theirs.choice_weights)


@pytest.mark.parametrize("text", ["augmix", "augmix-m5-w2-d2", "augmix-m4-a0.5-mstd1"])
def test_augmix_strings_are_read_as_timm_reads_them(text):
    theirs = timm_aa.augment_and_mix_transform(text, {"img_mean": FILL})
    policy = ours.parse(text)
    assert policy.kind == "augmix"
    assert (policy.width, policy.depth, policy.alpha) == (theirs.width, theirs.depth, theirs.alpha)
    assert (policy.magnitude, policy.deviation) == (theirs.ops[0].magnitude, theirs.ops[0].magnitude_std)
    assert policy.ops == tuple(op.name for op in theirs.ops)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rand-q3", "'rand' knows the sections .*, got 'q3' in 'rand-q3'"),
        ("rand-m", "knows the sections .*, got 'm'"),
        ("rand-n11", r"'n' must be in 1\.\.10, got 11"),
        ("rand-m1.2.3", r"'m' must be a number, got '1\.2\.3'"),
        ("rand-tmine", "'t' must be weights, 3a or 3aw, got 'mine'"),
        ("augmix-w4", r"'w' must be in 1\.\.3, got 4"),
        ("augmix-b1", "the blended mode of augmix is not offered"),
        ("v0-m9", "'v0' knows the sections .*, got 'm9'"),
        ("trivial", "must start with rand, augmix or one of"),
    ],
)
def test_bad_strings(text, message):
    with pytest.raises(ValueError, match=rf"TrainRecipe\.auto: .*{message}") as error:
        ours.parse(text)
    assert len(str(error.value).splitlines()) == 1


def test_a_recipe_refuses_what_is_no_policy():
    with pytest.raises(ValueError, match=r"TrainRecipe\.auto must be one of .* or a timm policy .*, got 'randaugment'"):
        TrainRecipe(auto="randaugment")


SIGNED = {"Rotate", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel", "ColorIncreasing", "ContrastIncreasing",
          "BrightnessIncreasing", "SharpnessIncreasing"}  # fmt: skip
NAMES = sorted(set(timm_aa.LEVEL_TO_ARG) - {"TranslateX", "TranslateY"})


@pytest.mark.parametrize("name", NAMES)
def test_each_op_does_what_timm_does(name, monkeypatch):
    for magnitude in (0.0, 2.7, 6.3, 9.0, 10.0):
        for negate in (False, True) if name in SIGNED else (False,):
            for bicubic in (False, True):
                extra = 0.37
                monkeypatch.setattr(timm_aa.random, "random", lambda negate=negate: 0.9 if negate else 0.1)
                monkeypatch.setattr(timm_aa.random, "uniform", lambda a, b: a + (b - a) * 0.37)
                method = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
                op = timm_aa.AugmentOp(name, 1.0, magnitude, {"img_mean": FILL, "interpolation": method})
                try:
                    theirs = torch.from_numpy(np.array(op(Image.fromarray(IMAGE.numpy()))))
                except ValueError as error:  # Pillow has come to refuse 0 bits; before, that was black
                    if "bits must be between" not in str(error):
                        raise
                    theirs = torch.zeros_like(IMAGE)
                one = np.ones((1, 1))
                first = np.zeros((1, 1), np.int64)
                words = ours.words_of((name,), first, magnitude * one, one == negate, one == bicubic, extra * one,
                                      HEIGHT, WIDTH)  # fmt: skip
                params = records([[]], fill=FILL)
                params[:, rec.Word.PROGRAM : rec.Word.PROGRAM + 3] = torch.from_numpy(words[:, 0])
                result = ops.augment(IMAGE[None], params, dtype=torch.uint8)[0].permute(1, 2, 0)
                difference = (result.int() - theirs.int()).abs()
                if name.startswith("GaussianBlur"):  # Pillow's is three box blurs
                    assert float(difference.float().mean()) < 4
                else:
                    assert float((difference > 1).any(-1).float().mean()) <= 0.005, (name, magnitude, negate)


def test_no_op_is_no_words():
    one = np.ones((2, 3))
    words = ours.words_of(("Invert",), -np.ones((2, 3), np.int64), one, one > 0, one > 0, one, 8, 8)
    assert not words.any()
