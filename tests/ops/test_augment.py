"""The augment op as a whole on the CPU: normalise, erase, mix, AugMix; bad input; how it behaves as a torch op."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuaug import ops
from lightning_gpuaug.ops import record as rec
from lightning_gpuaug.ops import reference_augment
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word
from tests.ops.programs import random_records, records, set_floats
from tests.philox import philox4x32

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
MANTISSA_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}

needs_native = pytest.mark.skipif(ops.backend("cpu") != "native-cpu", reason="the native CPU library is not built")


def random_batch(n: int, h: int, w: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, h, w, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def plain(n: int, flags: int = 0) -> torch.Tensor:
    return records([[]] * n, flags=flags)


def assert_rounded(result: torch.Tensor, exact: np.ndarray) -> None:
    """Half a unit in the last place of the result's type, and 1e-6 for float32 on the way."""
    ulp = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-14))) - MANTISSA_BITS[result.dtype])
    assert (np.abs(result.double().numpy() - exact) <= ulp / 2 + 1e-6).all()


def normalized(x: torch.Tensor) -> np.ndarray:
    return ((x.numpy() / 255.0 - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)


@needs_native
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_native_equals_the_reference_bit_for_bit_on_random_records(seed):
    r = random.Random(seed)
    n, h, w = r.randint(1, 4), r.randint(1, 24), r.randint(1, 24)
    chains = r.choice([1, 1, 2, 3, 4])
    params = random_records(seed, n, h, w, chains=chains)
    x, dtype, channels_last = random_batch(n, h, w, seed), r.choice(DTYPES), r.random() < 0.5
    native = ops.augment(x, params, MEAN, STD, dtype=dtype, channels_last=channels_last, chains=chains)
    expected = reference_augment.augment(x, params, MEAN, STD, dtype, channels_last, chains)
    assert torch.equal(native, expected)
    assert native.stride() == expected.stride()


def unmixed(params: torch.Tensor) -> torch.Tensor:
    params = params.clone()
    params[:, Word.FLAGS] &= ~(Flag.MIXUP | Flag.CUTMIX)
    return params


def test_a_sample_does_not_depend_on_its_batch():
    params = unmixed(random_records(3, 40, 17, 21, chains=3))
    x = random_batch(40, 17, 21)
    whole = ops.augment(x, params, MEAN, STD, chains=3)
    alone = [ops.augment(x[i : i + 1], params[i : i + 1], MEAN, STD, chains=3) for i in range(40)]
    assert torch.equal(whole, torch.cat(alone))


def test_permuting_the_batch_permutes_the_result():
    params = random_records(5, 30, 9, 14, chains=3)
    x = random_batch(30, 9, 14)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    position = torch.empty_like(order)
    position[order] = torch.arange(30)
    moved = params[order].clone()
    moved[:, Word.PARTNER] = position[moved[:, Word.PARTNER].long()].int()
    result = ops.augment(x, params, MEAN, STD, chains=3)
    assert torch.equal(ops.augment(x[order], moved, MEAN, STD, chains=3), result[order])


def test_thread_count_does_not_change_the_result():
    params, x = random_records(7, 20, 30, 31), random_batch(20, 30, 31)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_anything_it_is_normalize(dtype, channels_last):
    for shape in ((3, 4, 5), (2, 1, 9), (2, 9, 1), (1, 8, 16)):
        x = random_batch(*shape)
        for chains in (0, 1, 3):
            ours = ops.augment(x, plain(shape[0]), MEAN, STD, dtype=dtype, channels_last=channels_last, chains=chains)
            expected = ops.normalize(x, MEAN, STD, dtype=dtype, channels_last=channels_last)
            assert torch.equal(ours, expected)
            assert ours.stride() == expected.stride()


@pytest.mark.parametrize("program", [[], [Op(Opcode.INVERT)]])
def test_flips(program):
    x = random_batch(4, 5, 7)
    params = records([program] * 4)
    params[:, Word.FLAGS] = torch.arange(4, dtype=torch.int32)
    result = ops.augment(x, params, dtype=torch.uint8).permute(0, 2, 3, 1)
    for i, axes in enumerate(((), (1,), (0,), (0, 1))):
        expected = x[i].flip(axes)
        assert torch.equal(result[i], 255 - expected if program else expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_erasing_with_a_constant(dtype):
    x = random_batch(2, 9, 11)
    params = plain(2, Flag.ERASE_CONSTANT)
    params[0, Word.ERASE : Word.ERASE + 4] = torch.tensor([2, 3, 4, 5])
    for i in range(2):
        set_floats(params, i, Word.ERASE_VALUE, [0.0, 1.5, -0.25])
    result = ops.augment(x, params, MEAN, STD, dtype=dtype)
    expected = ops.normalize(x, MEAN, STD, dtype=dtype)
    value = torch.tensor([0.0, 1.5, -0.25], dtype=torch.float64)
    if dtype == torch.uint8:
        value = ((value * torch.tensor(STD) + torch.tensor(MEAN)) * 255).round()
    expected[0, :, 2:6, 3:8] = value.to(dtype)[:, None, None]
    assert torch.equal(result, expected)


def test_noise_is_standard_normal_and_keyed_by_sample_and_pixel():
    n, h, w = 8, 100, 100
    params = plain(n, Flag.ERASE_NOISE)
    params[:, Word.ERASE : Word.ERASE + 4] = torch.tensor([0, 0, h, w])
    params[:, Word.SEED], params[:, Word.EPOCH] = 5, 2
    params[:, Word.INDEX] = torch.arange(n, dtype=torch.int32)
    noise = ops.augment(torch.zeros(n, h, w, 3, dtype=torch.uint8), params).double()
    count = noise.numel()
    assert abs(float(noise.mean())) < 4 / count**0.5
    assert abs(float(noise.var()) - 1) < 4 * (2 / count) ** 0.5
    assert abs(float((noise**4).mean()) - 3) < 4 * (96 / count) ** 0.5
    assert 3.9 < float(noise.abs().max()) < 6
    levels = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    shares = torch.special.ndtr(levels)
    for level, share in zip(levels, shares, strict=True):
        assert abs(float((noise < level).double().mean() - share)) < 4 * (0.25 / count) ** 0.5
    flat = noise.flatten(1)
    correlation = torch.corrcoef(torch.cat([flat, flat.roll(1, 1), flat.roll(w, 1)]))
    assert float((correlation - torch.eye(3 * n)).abs().max()) < 5 / flat.shape[1] ** 0.5
    again = params.clone()
    again[:, Word.ERASE : Word.ERASE + 4] = torch.tensor([10, 20, 30, 40])
    part = ops.augment(torch.zeros(n, h, w, 3, dtype=torch.uint8), again).double()
    assert torch.equal(part[:, :, 10:40, 20:60], noise[:, :, 10:40, 20:60])
    for word in (Word.SEED, Word.EPOCH, Word.INDEX, Word.INDEX + 1):
        other = params.clone()
        other[:, word] += 100
        assert not torch.equal(ops.augment(torch.zeros(n, h, w, 3, dtype=torch.uint8), other).double(), noise)


def test_noise_comes_from_the_philox_of_the_draws():
    params = plain(1, Flag.ERASE_NOISE)
    params[0, Word.ERASE : Word.ERASE + 4] = torch.tensor([0, 0, 1, 2])
    params[0, Word.SEED], params[0, Word.EPOCH], params[0, Word.INDEX], params[0, Word.INDEX + 1] = -7, 3, -1, 9
    noise = ops.augment(torch.zeros(1, 1, 2, 3, dtype=torch.uint8), params).double()[0, :, 0]
    counter = np.array([[0xFFFFFFFF, 9, rec.NOISE_SLOT, pixel] for pixel in (0, 1)], dtype=np.uint32)
    words = philox4x32((2**32 - 7, 3), counter)[:, :3] >> 8
    uniform = torch.from_numpy((words.astype(np.float64) + 0.5) / 2**24)
    assert torch.allclose(noise.T, torch.special.ndtri(uniform), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_mixup(dtype):
    x = random_batch(5, 6, 7)
    params = plain(5, Flag.MIXUP)
    shares = [0.0, 0.25, 0.7, 1.0, 0.5]
    for i, share in enumerate(shares):
        params[i, Word.PARTNER] = 4 - i
        set_floats(params, i, Word.LAMBDA, [share])
    exact = normalized(x)
    own = np.array(shares, dtype=np.float32).astype(np.float64)[:, None, None, None]
    assert_rounded(ops.augment(x, params, MEAN, STD, dtype=dtype), own * exact + (1 - own) * exact[::-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cutmix_takes_the_partners_pixels(dtype):
    x = random_batch(4, 6, 7)
    params = plain(4, Flag.CUTMIX)
    boxes = [(0, 0, 6, 7), (1, 2, 3, 4), (5, 6, 1, 1), (2, 2, 0, 3)]
    expected = ops.normalize(x, MEAN, STD, dtype=dtype)
    unmixed_images = expected.clone()
    for i, (top, left, h, w) in enumerate(boxes):
        params[i, Word.PARTNER] = 3 - i
        params[i, Word.CUT : Word.CUT + 4] = torch.tensor(boxes[i])
        where = (i, slice(None), slice(top, top + h), slice(left, left + w))
        expected[where] = unmixed_images[(3 - i, *where[1:])]
    assert torch.equal(ops.augment(x, params, MEAN, STD, dtype=dtype), expected)


def test_mixing_sees_the_partner_flipped_programmed_and_erased():
    x = random_batch(2, 8, 9)
    params = records([[], [Op(Opcode.INVERT)]])
    params[0, Word.FLAGS] = Flag.MIXUP
    params[0, Word.PARTNER] = 1
    set_floats(params, 0, Word.LAMBDA, [0.25])
    params[1, Word.FLAGS] = Flag.FLIP_HORIZONTAL | Flag.ERASE_CONSTANT
    params[1, Word.ERASE : Word.ERASE + 4] = torch.tensor([1, 1, 3, 3])
    partner = normalized((255 - x[1:]).flip(2))
    partner[0, :, 1:4, 1:4] = 0
    result = ops.augment(x, params, MEAN, STD)
    assert_rounded(result[:1], 0.25 * normalized(x[:1]) + 0.75 * partner)
    assert_rounded(result[1:], partner)


def test_augmix_is_the_truncated_weighted_sum():
    x = random_batch(1, 8, 9)
    chains = [
        [Op(Opcode.INVERT)],
        [Op(Opcode.EQUALIZE), Op(Opcode.TRANSLATE, (3.0, 0.0))],
        [Op(Opcode.POSTERIZE, (2,))],
    ]
    ended = [op._replace(flags=rec.CHAIN_END if op is chain[-1] else 0) for chain in chains for op in chain]
    params = records([ended])
    params[0, Word.CHAINS] = 3
    weights = [0.4, 0.3, 0.2, 0.1]
    set_floats(params, 0, Word.ORIGINAL_WEIGHT, weights)
    images = [x, *(ops.augment(x, records([c]), dtype=torch.uint8).permute(0, 2, 3, 1) for c in chains)]
    exact = sum(w * image.double() for w, image in zip(weights, images, strict=True))
    result = ops.augment(x, params, dtype=torch.uint8, chains=3).permute(0, 2, 3, 1)
    difference = exact - result
    assert float(difference.min()) > -1e-3
    assert float(difference.max()) < 1 + 1e-3


def test_inputs_of_any_strides_and_offset():
    base = random_batch(4, 12, 20)
    views = {
        "cropped": base[:, 3:9, 5:18],
        "every other": base[::2, ::3, ::2],
        "transposed": base.transpose(1, 2),
        "planar": random_batch(4, 12, 20).permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
        "offset": base.flatten()[7 : 7 + 2 * 5 * 9 * 3].view(2, 5, 9, 3),
        "expanded": base[:1].expand(4, -1, -1, -1),
    }
    for name, view in views.items():
        n, h, w, _ = view.shape
        params = random_records(11, n, h, w)
        strided = torch.zeros(n, 2 * rec.WORDS, dtype=torch.int32)[:, ::2].copy_(params)
        dense = ops.augment(view.clone(memory_format=torch.contiguous_format), params, MEAN, STD)
        assert torch.equal(ops.augment(view, strided, MEAN, STD), dense), name


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
def test_empty_batches(shape):
    n, h, w = shape
    params = records([[Op(Opcode.EQUALIZE)]] * n)
    assert ops.augment(random_batch(*shape), params, MEAN, STD).shape == (n, 3, h, w)


def test_the_input_is_left_alone():
    x, params = random_batch(3, 5, 6), random_records(2, 3, 5, 6)
    before = x.clone(), params.clone()
    ops.augment(x, params, dtype=torch.uint8).fill_(7)
    assert torch.equal(x, before[0])
    assert torch.equal(params, before[1])


@needs_native
def test_records_of_noise_stay_inside_the_images():
    """Directly into the kernel, which must survive whatever the records hold."""
    generator = torch.Generator().manual_seed(0)
    for chains in (0, 1, 2, 3):
        for h, w in ((1, 1), (5, 8), (16, 3)):
            params = torch.randint(-(2**31), 2**31 - 1, (64, rec.WORDS), generator=generator).int()
            params[::2, Word.VERSION] = rec.VERSION
            params[::4, Word.PROGRAM :: 3] &= 0x0003431F  # heads that are often valid
            x = random_batch(64, h, w)
            native = torch.ops.lightning_gpuaug.augment(x, params, MEAN, STD, torch.uint8, True, chains)
            assert native.shape == (64, 3, h, w)
            expected = ops.normalize(x, dtype=torch.uint8)
            ignored = params[:, Word.VERSION] != rec.VERSION
            assert torch.equal(native[ignored], expected[ignored])


def changed(word: int, value: int, *, program: tuple[Op, ...] = (), flags: int = 0) -> torch.Tensor:
    params = records([[], program], flags=flags)
    params[1, word] = value
    return params


GOOD = random_batch(2, 3, 4)
NAN = rec.float_word(float("nan"))
BAD_INPUTS = {
    "a float batch": ({"x": GOOD.float()}, "x must be torch.uint8, got torch.float32"),
    "planar images": ({"x": GOOD.permute(0, 3, 1, 2)}, r"x must have shape \(N, H, W, 3\), got \(2, 3, 3, 4\)"),
    "float records": ({"params": plain(2).float()}, "params must be torch.int32, got torch.float32"),
    "too few records": ({"params": plain(1)}, r"params must have shape \(2, 64\), a record a sample, got \(1, 64\)"),
    "short records": ({"params": plain(2)[:, :63]}, r"params must have shape \(2, 64\).*, got \(2, 63\)"),
    "two means": ({"mean": (0.5, 0.5)}, "mean must have 3 numbers, got 2"),
    "a zero std": ({"std": (1.0, 0.0, 1.0)}, r"std must be .*above 0, got std\[1\] = 0"),
    "a float64 result": ({"dtype": torch.float64}, "dtype must be torch.float32, .*, got torch.float64"),
    "five chains": ({"chains": 5}, r"chains must be 0\.\.4, got 5"),
}


@pytest.mark.parametrize("through", ["wrapper", "op"])
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_line_that_names_the_argument(case, through):
    changes, message = BAD_INPUTS[case]
    arguments = {"x": GOOD, "params": plain(2), "mean": MEAN, "std": STD, "dtype": torch.float32, "chains": 1} | changes
    call = ops.augment if through == "wrapper" else torch.ops.lightning_gpuaug.augment
    x, params, mean, std = (arguments.pop(name) for name in ("x", "params", "mean", "std"))
    with pytest.raises(ValueError if through == "wrapper" else (ValueError, RuntimeError), match=message) as error:
        call(x, params, mean, std, **arguments)
    assert str(error.value).splitlines()[0].startswith("augment: ")


BAD_RECORDS = {
    "another version": (changed(Word.VERSION, 3), 1, "record version of sample 1 must be 1195442177, got 3"),
    "an unknown opcode": (changed(Word.PROGRAM, 22), 1, r"opcode of sample 1 must be 1\.\.21, got 22"),
    "an op that leaves the record": (
        changed(63, int(Opcode.ROTATE)),
        1,
        "program of sample 1 must end within its record",
    ),
    "a NaN parameter": (
        changed(Word.PROGRAM + 1, NAN, program=(Op(Opcode.HUE, (0.1,)),)),
        1,
        "program of sample 1 must be finite",
    ),
    "a program that was not announced": (
        changed(0, rec.VERSION, program=(Op(Opcode.INVERT),)),
        0,
        r"program of sample 1 must be empty \(chains=0\)",
    ),
    "nine bits": (
        changed(0, rec.VERSION, program=(Op(Opcode.POSTERIZE, (9,)),)),
        1,
        r"posterize of sample 1 must keep 0\.\.8 bits, got 9",
    ),
    "an even kernel": (
        changed(0, rec.VERSION, program=(Op(Opcode.BLUR, (1.0, 4)),)),
        1,
        "blur kernel of sample 1 must be odd and at most 63, got 4",
    ),
    "a sigma of 0": (
        changed(0, rec.VERSION, program=(Op(Opcode.BLUR, (0.0, 3)),)),
        1,
        "blur sigma of sample 1 must be above 0",
    ),
    "more chains than announced": (
        changed(Word.CHAINS, 3),
        2,
        r"AugMix chains of sample 1 must be 0\.\.2 \(chains=2\), got 3",
    ),
    "a rectangle outside": (
        changed(Word.ERASE + 3, 5, flags=Flag.ERASE_NOISE),
        1,
        r"erased rectangle of sample 1 must lie in 3 x 4 pixels \(top, left, height, width\), got \[0, 0, 0, 5\]",
    ),
    "a box that starts outside": (
        changed(Word.CUT, -1, flags=Flag.CUTMIX),
        1,
        "CutMix box of sample 1 must lie in 3 x 4 pixels",
    ),
    "a partner outside": (
        changed(Word.PARTNER, 2, flags=Flag.MIXUP),
        1,
        r"mix partner of sample 1 must be a row of the batch, 0\.\.1, got 2",
    ),
    "a share above 1": (
        changed(Word.LAMBDA, rec.float_word(1.5), flags=Flag.MIXUP),
        1,
        r"mix share of sample 1 must be in 0\.\.1, got 1.5",
    ),
    "an infinite weight": (
        changed(Word.CHAIN_WEIGHT, rec.float_word(float("inf"))),
        1,
        "AugMix weight of sample 1 must be finite",
    ),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_bad_records_are_one_line_that_names_the_sample(case):
    params, chains, message = BAD_RECORDS[case]
    with pytest.raises(ValueError, match=message) as error:
        ops.augment(GOOD, params, chains=chains)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).startswith("augment: ")


def test_random_records_pass_the_check():
    for seed in range(20):
        ops.check_records(random_records(seed, 16, 20, 30, chains=3), 20, 30, chains=3)


@pytest.mark.parametrize("channels_last", [True, False])
def test_opcheck(channels_last):
    params = random_records(1, 2, 3, 4, chains=2)
    arguments = (GOOD, params, MEAN, STD, torch.bfloat16, channels_last, 2)
    result = torch.library.opcheck(torch.ops.lightning_gpuaug.augment.default, arguments)
    assert set(result.values()) == {"SUCCESS"}


def test_torch_compile_without_graph_breaks_and_with_changing_shapes():
    def step(x: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
        return ops.augment(x, params, MEAN, STD, dtype=torch.bfloat16) * 2

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, h, w in ((2, 3, 4), (5, 8, 7)):
        x, params = random_batch(n, h, w), random_records(n, n, h, w)
        result, expected = compiled(x, params), step(x, params)
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()


def test_meta_tensors_give_shapes():
    x, params = (
        torch.empty(8, 5, 7, 3, dtype=torch.uint8, device="meta"),
        torch.empty(8, 64, dtype=torch.int32, device="meta"),
    )
    result = ops.augment(x, params, dtype=torch.float16)
    assert (result.shape, result.dtype, result.device.type) == ((8, 3, 5, 7), torch.float16, "meta")
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_a_parameter_that_looks_like_an_op_is_none():
    """Only what follows an op's last parameter is the next op."""
    params = records([[Op(Opcode.AFFINE, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)), Op(Opcode.INVERT)]] * 2)
    params[:, Word.PROGRAM + 2 : Word.PROGRAM + 7] = (
        int(Opcode.BLUR) | 0x300
    )  # tiny numbers; as ops, they would be wrong
    ops.check_records(params, 20, 30)
    params[1, Word.PROGRAM + 8] = 0xFF
    with pytest.raises(ValueError, match=r"opcode of sample 1 must be 1\.\.21, got 255"):
        ops.check_records(params, 20, 30)
