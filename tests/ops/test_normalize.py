"""The normalize op on the CPU: values, layouts, bad input, and how it behaves as a torch op."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuaug import ops
from lightning_gpuaug.ops import reference

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
MANTISSA_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
SMALLEST_EXPONENT = {torch.float32: -126, torch.float16: -14, torch.bfloat16: -126}

needs_native = pytest.mark.skipif(
    ops.backend("cpu") != "native-cpu", reason="the native CPU library is not built: nothing to compare"
)


def random_batch(n: int, h: int, w: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, h, w, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def oracle(
    x: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...], flip: torch.Tensor | None, dtype: torch.dtype
) -> np.ndarray:
    """The (N, 3, H, W) result in float64, by numpy alone."""
    pixels = x.numpy().copy()
    for i in np.flatnonzero(flip.numpy()) if flip is not None else ():
        pixels[i] = pixels[i][:, ::-1]
    values = pixels.astype(np.float64)
    if dtype != torch.uint8:
        values = (values / 255 - np.array(mean)) / np.array(std)
    return values.transpose(0, 3, 1, 2)


def half_ulp(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 2.0 ** SMALLEST_EXPONENT[dtype])))
    return 2.0 ** (exponent - MANTISSA_BITS[dtype] - 1)


def assert_matches_oracle(result: torch.Tensor, expected: np.ndarray) -> None:
    got = result.double().numpy()
    if result.dtype == torch.uint8:
        np.testing.assert_array_equal(got, expected)
    else:
        assert (np.abs(got - expected) <= half_ulp(expected, result.dtype) + 1e-6).all()


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("implementation", [ops.normalize, reference.normalize])
def test_equals_float64_for_every_pixel_value_and_width(implementation, dtype, channels_last):
    for width in (*range(1, 18), 256):
        x = random_batch(3, 2, width, seed=width)
        x[0, 0] = (torch.arange(width)[:, None] + torch.tensor([0, 85, 170])).to(torch.uint8)  # 256: every value
        for flip in (None, torch.tensor([True, False, True])):
            result = implementation(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)
            assert result.shape == (3, 3, 2, width)
            assert result.dtype == dtype
            assert_matches_oracle(result, oracle(x, MEAN, STD, flip, dtype))


@pytest.mark.parametrize("shape", [(4, 1, 9), (4, 9, 1), (1, 1, 1), (2, 7, 5)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_memory_format(shape, channels_last):
    result = ops.normalize(random_batch(*shape), dtype=torch.bfloat16, channels_last=channels_last)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    n, h, w = shape
    assert result.stride() == torch.empty((n, 3, h, w), memory_format=memory_format).stride()


def test_without_mean_and_std_scales_to_the_unit_range():
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert torch.allclose(ops.normalize(x).flatten(), torch.tensor([0.0, 0.2, 1.0]), atol=1e-7, rtol=0)


def test_uint8_keeps_the_pixels():
    x = random_batch(2, 3, 5)
    assert torch.equal(ops.normalize(x, MEAN, STD, dtype=torch.uint8), x.permute(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels_last", [True, False])
def test_a_sample_does_not_depend_on_its_batch(dtype, channels_last):
    x = random_batch(9, 6, 11)
    flip = torch.arange(9) % 3 == 1
    whole = ops.normalize(x, MEAN, STD, flip=flip, dtype=dtype, channels_last=channels_last)
    alone = [
        ops.normalize(x[i : i + 1], MEAN, STD, flip=flip[i : i + 1], dtype=dtype, channels_last=channels_last)
        for i in range(9)
    ]
    assert torch.equal(whole, torch.cat(alone))


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
@pytest.mark.parametrize("channels_last", [True, False])
def test_empty_batches(shape, channels_last):
    n, h, w = shape
    flip = torch.zeros(n, dtype=torch.bool)
    result = ops.normalize(random_batch(*shape), MEAN, STD, flip=flip, channels_last=channels_last)
    assert result.shape == (n, 3, h, w)


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
        flip = (torch.arange(2 * view.shape[0]) % 3 == 0)[::2]
        assert not flip.is_contiguous() or len(flip) == 1
        result = ops.normalize(view, MEAN, STD, flip=flip, dtype=torch.float16)
        dense = ops.normalize(view.clone(memory_format=torch.contiguous_format), MEAN, STD, flip=flip.clone(),
                              dtype=torch.float16)  # fmt: skip
        assert torch.equal(result, dense), name
        assert_matches_oracle(result, oracle(view.clone(), MEAN, STD, flip, torch.float16))


def test_the_input_is_left_alone():
    x = random_batch(2, 3, 4)
    before = x.clone()
    result = ops.normalize(x, dtype=torch.uint8)
    result.fill_(7)
    assert torch.equal(x, before)


@needs_native
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_native_equals_the_reference_bit_for_bit(data):
    n, h, w = (data.draw(st.integers(low, high)) for low, high in ((0, 4), (1, 5), (1, 40)))
    mean = tuple(data.draw(st.floats(-4, 4)) for _ in range(3))
    std = tuple(data.draw(st.floats(1e-6, 1e6)) for _ in range(3))
    dtype = data.draw(st.sampled_from(DTYPES))
    channels_last = data.draw(st.booleans())
    flip = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=torch.bool)
    x = random_batch(n, h, w, seed=data.draw(st.integers(0, 2**31)))
    native = ops.normalize(x, mean, std, flip=flip, dtype=dtype, channels_last=channels_last)
    expected = reference.normalize(x, mean, std, flip, dtype, channels_last)
    assert torch.equal(native, expected)
    assert native.stride() == expected.stride()


@needs_native
def test_the_reference_rounds_once_where_float64_would_round_twice():
    """A bias far below the product: the float64 sum is inexact, and only rounding to odd keeps ties right."""
    every_value = torch.arange(256, dtype=torch.uint8)[:, None].expand(-1, 3).reshape(1, 1, 256, 3)
    for exponent in range(0, 140, 3):
        for sign in (1, -1):
            mean = (sign * 1.1 * 2.0**-exponent, sign * 2.0**-exponent, -sign * 2.0**-exponent)
            native = ops.normalize(every_value, mean, STD)
            assert torch.equal(native, reference.normalize(every_value, mean, STD)), (exponent, sign)


@needs_native
def test_thread_count_does_not_change_the_result():
    x, flip = random_batch(8, 64, 65), torch.arange(8) % 2 == 0
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(ops.normalize(x, MEAN, STD, flip=flip, dtype=torch.bfloat16))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


GOOD = random_batch(2, 3, 4)
BAD_INPUTS = {
    "a float batch": ({"x": GOOD.float()}, "x must be torch.uint8, got torch.float32"),
    "planar images": ({"x": GOOD.permute(0, 3, 1, 2)}, r"x must have shape \(N, H, W, 3\), got \(2, 3, 3, 4\)"),
    "one image": ({"x": GOOD[0]}, r"x must have shape \(N, H, W, 3\), got \(3, 4, 3\)"),
    "grey images": ({"x": GOOD[..., :1]}, r"x must have shape \(N, H, W, 3\), got \(2, 3, 4, 1\)"),
    "a sparse batch": ({"x": GOOD.to_sparse()}, "x must be a dense tensor"),
    "two means": ({"mean": (0.5, 0.5)}, "mean must have 3 numbers, got 2"),
    "four stds": ({"std": (1.0,) * 4}, "std must have 3 numbers, got 4"),
    "a zero std": ({"std": (1.0, 0.0, 1.0)}, r"std must be .*above 0, got std\[1\] = 0"),
    "a negative std": ({"std": (1.0, 1.0, -2.0)}, r"std must be .*above 0, got std\[2\] = -2"),
    "a NaN std": ({"std": (float("nan"), 1.0, 1.0)}, r"std must be finite.*, got std\[0\] = nan"),
    "a NaN mean": ({"mean": (0.0, float("nan"), 0.0)}, r"mean must be finite, got mean\[1\] = nan"),
    "an infinite mean": ({"mean": (0.0, 0.0, float("inf"))}, r"mean must be finite, got mean\[2\] = inf"),
    "a std beyond float32": ({"std": (1e-45, 1.0, 1.0)}, r"must fit float32, got mean\[0\] = 0.*, std\[0\] = 1e-45"),
    "a byte flip": ({"flip": torch.zeros(2, dtype=torch.uint8)}, "flip must be torch.bool, got torch.uint8"),
    "a short flip": ({"flip": torch.zeros(1, dtype=torch.bool)}, r"flip must have shape \(2,\).*, got \(1,\)"),
    "a flip matrix": ({"flip": torch.zeros(2, 1, dtype=torch.bool)}, r"flip must have shape \(2,\).*, got \(2, 1\)"),
    "a float64 result": ({"dtype": torch.float64}, "dtype must be torch.float32, .*, got torch.float64"),
}


# torch's dispatcher never sends a sparse tensor to the op's kernel.
@pytest.mark.parametrize(
    ("case", "through"), [(c, t) for c in BAD_INPUTS for t in ("wrapper", "op") if (c, t) != ("a sparse batch", "op")]
)
def test_bad_input_is_one_line_that_names_the_argument(case, through):
    changes, message = BAD_INPUTS[case]
    arguments = {"x": GOOD, "mean": MEAN, "std": STD, "flip": None, "dtype": torch.float32} | changes
    call = ops.normalize if through == "wrapper" else torch.ops.lightning_gpuaug.normalize
    x, mean, std = (arguments.pop(name) for name in ("x", "mean", "std"))
    with pytest.raises(ValueError if through == "wrapper" else (ValueError, RuntimeError), match=message) as error:
        call(x, mean, std, **arguments)
    first_line, *rest = str(error.value).splitlines()
    assert first_line.startswith("normalize: ")
    assert not rest or through == "op"


def test_flip_on_another_device():
    with pytest.raises(ValueError, match=r"flip must be on the device of x \(cpu\), got meta"):
        ops.normalize(GOOD, flip=torch.zeros(2, dtype=torch.bool, device="meta"))


def test_not_a_tensor():
    with pytest.raises(ValueError, match="normalize: x must be a tensor, got ndarray"):
        ops.normalize(GOOD.numpy())


@pytest.mark.parametrize("flip", [None, torch.tensor([True, False])])
@pytest.mark.parametrize("channels_last", [True, False])
def test_opcheck(flip, channels_last):
    arguments = (GOOD, MEAN, STD, flip, torch.bfloat16, channels_last)
    result = torch.library.opcheck(torch.ops.lightning_gpuaug.normalize.default, arguments)
    assert set(result.values()) == {"SUCCESS"}


def test_torch_compile_without_graph_breaks_and_with_changing_shapes():
    def step(x: torch.Tensor, flip: torch.Tensor) -> torch.Tensor:
        return ops.normalize(x, MEAN, STD, flip=flip, dtype=torch.bfloat16) * 2

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, h, w in ((2, 3, 4), (5, 8, 7)):
        x, flip = random_batch(n, h, w), torch.arange(n) % 2 == 0
        result, expected = compiled(x, flip), step(x, flip)
        assert torch.equal(result, expected)
        assert result.stride() == expected.stride()


def test_meta_tensors_give_shapes():
    result = ops.normalize(torch.empty(8, 5, 7, 3, dtype=torch.uint8, device="meta"), dtype=torch.float16)
    assert (result.shape, result.dtype, result.device.type) == ((8, 3, 5, 7), torch.float16, "meta")
    assert result.is_contiguous(memory_format=torch.channels_last)
