"""Which slot of a sample's random numbers serves what. A slot is four uniform numbers."""

from __future__ import annotations

import enum


class Slot(enum.IntEnum):
    """First slot of each use. Never renumber: runs are resumed by them."""

    CROP = 0  # one a try, up to 9: `ops.random_crops`
    FLIP = 10  # horizontal (also of `ops.random_crops`), vertical
    JITTER = 12
    JITTER_ORDER = 13
    SINGLE = 14  # grayscale, blur (two), solarize
    AUTO = 16  # sub-policy, chain depths
    AUTO_OP = 32  # one an op: op, magnitude bin or noise, sign, probability
    AUTO_EXTRA = 48  # one an op: noise, interpolation, the op's own number
    AUTO_CHOICE = 64  # draws without replacement: a number an op of the policy
    ERASE = 80
    ERASE_COLOR = 81
    ERASE_ATTEMPT = 84
    MIX = 96
    MIXUP_GAMMA = 128
    CUTMIX_GAMMA = 160
    AUGMIX_SHARE = 192
    AUGMIX_WEIGHTS = 224
