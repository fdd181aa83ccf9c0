"""timm's policies, against timm itself: strings, tables, and each op at several magnitudes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import auto_augment as timm_aa
from timm.data import create_transform

from lightning_gpuaug import ops
from lightning_gpuaug.augment import sample_params
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


@pytest.mark.parametrize("text", ["augmix", "augmix-m5-w2-d2", "augmix-m5-w4-d2", "augmix-m4-a0.5-mstd1"])
def test_augmix_strings_are_read_as_timm_reads_them(text):
    theirs = timm_aa.augment_and_mix_transform(text, {"img_mean": FILL})
    policy = ours.parse(text)
    assert policy.kind == "augmix"
    assert (policy.width, policy.depth, policy.alpha) == (theirs.width, theirs.depth, theirs.alpha)
    assert (policy.magnitude, policy.deviation) == (theirs.ops[0].magnitude, theirs.ops[0].magnitude_std)
    assert policy.ops == tuple(op.name for op in theirs.ops)


@pytest.mark.parametrize(
    ("text", "message", "nearest"),
    [
        ("rand-q3", "'rand' has no section 'q3'", "rand"),
        ("rand-m9-m8", "section 'm' is given twice", "rand-m9"),
        ("rand-m", "'rand' has no section 'm'", "rand"),
        ("rand-m9-inc", "'rand' has no section 'inc'", "rand-m9-inc1"),
        ("rand-m9-std0.5", "'rand' has no section 'std0.5'", "rand-m9-mstd0.5"),
        ("rand-n11", r"'n' must be a whole number in 1\.\.10, got '11'", "rand-n10"),
        ("rand-m40-p2", r"'m' must be a whole number in 0\.\.30, got '40'", "rand-m30-p1"),
        ("rand-m1.2.3", "'m' must be a whole number .*, got '1\\.2\\.3'", "rand"),
        ("rand-mstd-1", "'rand' has no section 'mstd'", "rand"),
        ("rand-tmine", "'t' must be weights or 3a or 3aw, got 'mine'", "rand"),
        ("rand_m9_mstd0.5", "no policy 'rand_m9_mstd0.5'", "rand-m9-mstd0.5"),
        ("RAND-M9", "no policy 'RAND'", "rand-m9"),
        ("randaugment", "no policy 'randaugment'", "RandAugment"),
        ("ta-wide", "no policy 'ta'", "ta_wide"),
        ("trivial", "no policy 'trivial'", "TrivialAugmentWide"),
        ("cifar", "no policy 'cifar'", "cifar10"),
        ("orginal-mstd1", "no policy 'orginal'", "original-mstd1"),
        ("augmix-w5-d1", r"'w' must be a whole number in 1\.\.4, got '5'", "augmix-w4-d1"),
        ("augmix-w4", r"4 chains need 'd1' or 'd2' \(at most 10 ops\)", "augmix-w4-d2"),
        ("augmix-b1", "'b' must be 0, got '1'", "augmix-b0"),
        ("v0-m9", "'v0' has no section 'm9'", "v0"),
        ("", "no policy ''", "rand"),
    ],
)
def test_bad_strings_fail_with_the_grammar_and_the_nearest_valid_one(text, message, nearest):
    rule = rf"TrainRecipe\.auto: .*{message}.*grammar: rand\[-m#\].*nearest valid one is '(.*)'$"
    with pytest.raises(ValueError, match=rule) as error:
        TrainRecipe(auto=text)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).endswith(f"nearest valid one is {nearest!r}")
    TrainRecipe(auto=nearest)


@pytest.mark.parametrize(
    "text",
    ["rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.5", "original", "originalr", "v0", "v0r", "augmix-m5-w4-d2", "3a"],
)  # fmt: skip
def test_the_strings_that_timm_users_write(text):
    assert TrainRecipe(auto=text).auto == text
    params = sample_params(TrainRecipe(auto=text), np.arange(64), 0, 0, HEIGHT, WIDTH)
    ops.check_records(torch.from_numpy(params.records), HEIGHT, WIDTH, params.chains)


def test_augmix_translates_as_timms_create_transform_has_it():
    """0.3 of the side there, whatever the policy alone would do."""
    steps = create_transform(32, is_training=True, auto_augment="augmix-m5-w4-d2", interpolation="bilinear").transforms
    theirs = next(step for step in steps if isinstance(step, timm_aa.AugMixAugment))
    policy = ours.parse("augmix-m5-w4-d2")
    assert policy.translate == theirs.ops[0].hparams["translate_pct"] == 0.3
    assert ours.parse("rand-m9").translate == 0.45
    assert (policy.width, policy.depth) == (theirs.width, theirs.depth) == (4, 2)


def test_four_chains_of_augmix_are_four_programs_mixed():
    """The chains one by one, each with its weight, are what the record of all four makes."""
    params = sample_params(TrainRecipe(auto="augmix-m5-w4-d2", hflip=0.0), np.arange(6), 0, 0, HEIGHT, WIDTH)
    assert params.chains == 4
    images = IMAGE.expand(6, -1, -1, -1).contiguous()
    mixed = ops.augment(images, torch.from_numpy(params.records), dtype=torch.uint8, chains=4).permute(0, 2, 3, 1)
    words = params.records.view(np.float32)
    total = words[:, rec.Word.ORIGINAL_WEIGHT, None, None, None] * images.numpy().astype(np.float32)
    for chain in range(4):
        alone = np.zeros_like(params.records)
        alone[:, : rec.Word.CHAINS] = params.records[:, : rec.Word.CHAINS]
        alone[:, rec.Word.FILL] = params.records[:, rec.Word.FILL]
        program = params.records[:, rec.Word.PROGRAM + 6 * chain : rec.Word.PROGRAM + 6 * (chain + 1)].copy()
        program[:, ::3] &= 0xFFFF | rec.PIL_GRAY << 16  # without the marks of the chains' ends
        alone[:, rec.Word.PROGRAM : rec.Word.PROGRAM + 6] = program
        image = ops.augment(images, torch.from_numpy(alone), dtype=torch.uint8).permute(0, 2, 3, 1).numpy()
        total += words[:, rec.Word.CHAIN_WEIGHT + chain, None, None, None] * image.astype(np.float32)
    assert np.abs(words[:, rec.Word.ORIGINAL_WEIGHT : rec.Word.ORIGINAL_WEIGHT + 5].sum(axis=1) - 1).max() < 1e-6
    assert np.abs(mixed.numpy() - total).max() <= 1.001


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
