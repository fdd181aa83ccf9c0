"""The record's layout: the same in C++ and in Python, and what packing refuses."""

from __future__ import annotations

import json

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word

needs_native = pytest.mark.skipif(ops.backend("cpu") != "native-cpu", reason="the native CPU library is not built")


@needs_native
def test_the_layout_is_that_of_the_native_code():
    native = json.loads(torch.ops.lightning_gpuaug.record_layout())
    words = {
        "flags": Word.FLAGS, "chains": Word.CHAINS, "seed": Word.SEED, "epoch": Word.EPOCH, "index": Word.INDEX,
        "partner": Word.PARTNER, "crop": Word.CROP, "erase": Word.ERASE, "erase_value": Word.ERASE_VALUE,
        "lambda": Word.LAMBDA, "cut": Word.CUT, "fill": Word.FILL, "original_weight": Word.ORIGINAL_WEIGHT,
        "chain_weight": Word.CHAIN_WEIGHT, "program": Word.PROGRAM,
    }  # fmt: skip
    assert native == {name: int(word) for name, word in words.items()} | {
        "words": rec.WORDS,
        "version": rec.VERSION,
        "program_words": rec.PROGRAM_WORDS,
        "max_chains": rec.MAX_CHAINS,
        "noise_slot": rec.NOISE_SLOT,
        "flag_bits": [*(int(flag) for flag in Flag), rec.CROP_FILTER_SHIFT],
        "op_flags": [rec.CHAIN_END, rec.PIL_GRAY],
        "parameters": list(rec.PARAMETERS),
    }


def test_words_do_not_overlap():
    sizes = {Word.INDEX: 2, Word.CROP: 4, Word.ERASE: 4, Word.ERASE_VALUE: 3, Word.CUT: 4, Word.CHAIN_WEIGHT: 3,
             Word.PROGRAM: rec.PROGRAM_WORDS}  # fmt: skip
    taken = [at for word in Word for at in range(word, word + sizes.get(word, 1))]
    assert len(taken) == len(set(taken))
    assert max(taken) == rec.WORDS - 1


def test_a_program_is_packed_in_order():
    words = rec.program_words(
        [
            Op(Opcode.ROTATE, (1.0, -2.0), "bicubic", "pil", rec.CHAIN_END),
            Op(Opcode.POSTERIZE, (3,)),
            Op(Opcode.EQUALIZE),
        ]
    )
    assert words[0] == Opcode.ROTATE | 2 << 8 | 4 << 12 | 1 << 16
    assert torch.tensor(words[1:3], dtype=torch.int32).view(torch.float32).tolist() == [1.0, -2.0]
    assert words[3:6] == [Opcode.POSTERIZE, 3, Opcode.EQUALIZE]
    assert words[6:] == [0] * 26


def test_packing_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="ROTATE takes 2 parameters, got 1"):
        rec.program_words([Op(Opcode.ROTATE, (1.0,))])
    with pytest.raises(ValueError, match="a program has room for 32 words, got 36"):
        rec.program_words([Op(Opcode.PERSPECTIVE, (1.0,) * 8)] * 4)
