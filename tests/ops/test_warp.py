"""warp on the CPU: a float64 oracle, Pillow, grid_sample, exact cases, gradients, layouts, and bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from lightning_gpuaug import ops
from lightning_gpuaug.ops import _warp_reference as reference
from lightning_gpuaug.ops import matrices

INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
BORDERS = ("constant", "replicate", "reflect", "reflect101", "pil")
COLOUR = (9.0, 100.0, 200.0)


def images(n: int, c: int, h: int, w: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, c, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def two_matrices() -> torch.Tensor:
    """An enlarging rotation and a slanting move, both partly outside a 21 x 30 picture."""
    first = matrices.compose(matrices.rotation(20, (15, 10)), matrices.scaling(0.7, 1.2))
    second = matrices.compose(matrices.shear(10, 5), matrices.translation(3, -2))
    return torch.stack([first, second])


def perspective() -> torch.Tensor:
    m = two_matrices()
    m[:, 2, 0], m[:, 2, 1] = 0.01, -0.004
    return m


def outside(i: int, n: int, border: str) -> int | None:
    """The pixel that stands for pixel i of n, by walking; None is the fill colour."""
    if 0 <= i < n:
        return i
    if border == "constant":
        return None
    if border in ("replicate", "pil"):
        return 0 if i < 0 else n - 1
    if border == "reflect101" and n == 1:
        return 0
    step = 0 if border == "reflect" else 1
    while not 0 <= i < n:
        i = -i - 1 + step if i < 0 else 2 * n - 1 - i - step
    return i


def cubic_weight(d: float, a: float) -> float:
    d = abs(d)
    if d < 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def oracle(
    image: np.ndarray, m: np.ndarray, out: tuple[int, int], kind: str, border: str, colour: float, half: bool
) -> np.ndarray:
    """One (H, W) plane, pixel by pixel in float64, before rounding."""
    h, w = image.shape
    result = np.full(out, colour)
    shift = 0.5 if half else 0.0
    for row, column in itertools.product(range(out[0]), range(out[1])):
        x, y, z = m @ [column + shift, row + shift, 1.0]
        x, y = x / z - shift, y / z - shift
        if border == "pil" and not (-0.5 <= x < w - 0.5 and -0.5 <= y < h - 0.5):
            continue
        if kind == "nearest":
            pairs = [(math.floor(y + 0.5), math.floor(x + 0.5), 1.0)]
        else:
            reach = 1 if kind == "bilinear" else 2
            a = -1.0 if border == "pil" else -0.75

            def weight(d: float, kind: str = kind, a: float = a) -> float:
                return 1 - abs(d) if kind == "bilinear" else cubic_weight(d, a)

            pairs = [
                (i, j, weight(y - i) * weight(x - j))
                for i in range(math.floor(y) - reach + 1, math.floor(y) + reach + 1)
                for j in range(math.floor(x) - reach + 1, math.floor(x) + reach + 1)
            ]
        total = 0.0
        for i, j, weight_ij in pairs:
            i, j = outside(i, h, border), outside(j, w, border)
            total += weight_ij * (colour if i is None or j is None else float(image[i, j]))
        result[row, column] = total
    return result


@pytest.mark.parametrize("kind", INTERPOLATIONS)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("centre", ["half", "integer"])
def test_equals_the_oracle_in_float_and_within_a_level_at_ties_in_uint8(kind, border, centre):
    x = images(2, 3, 7, 9)
    for m in (matrices.rotation(33, (4.6, 3.1))[None].repeat(2, 1, 1), perspective()):
        got = ops.warp(x.float(), m, (8, 6), interpolation=kind, border=border, fill=COLOUR, centre=centre)
        rounded = ops.warp(x, m, (8, 6), interpolation=kind, border=border, fill=COLOUR, centre=centre)
        for n, c in itertools.product(range(2), range(3)):
            expected = oracle(x[n, c].numpy(), m[n].double().numpy(), (8, 6), kind, border, COLOUR[c], centre == "half")
            np.testing.assert_allclose(got[n, c].numpy(), expected, atol=0.01)
            clipped = expected.clip(0, 255)
            if border == "pil":
                assert (np.abs(rounded[n, c].numpy() - (clipped - 0.5)) <= 0.51).all()
            else:
                assert (np.abs(rounded[n, c].numpy() - clipped) <= 0.51).all()


def near(m, out_h, out_w, limit):
    """Which result pixels come from source points with coordinates below `limit`, (out_h, out_w)."""
    v, u = torch.meshgrid(torch.arange(out_h) + 0.5, torch.arange(out_w) + 0.5, indexing="ij")
    points = torch.stack([u, v, torch.ones_like(u)]).double().flatten(1)
    x, y, w = m @ points
    return ((x / w).abs().maximum((y / w).abs()) < limit).view(out_h, out_w)


SIDES = st.integers(1, 9)


@settings(max_examples=100, deadline=None)
@given(
    size=st.tuples(SIDES, SIDES),
    out=st.tuples(SIDES, SIDES),
    kind=st.sampled_from(INTERPOLATIONS),
    border=st.sampled_from(BORDERS),
    half=st.booleans(),
    numbers=st.lists(st.floats(-20, 20, width=32), min_size=9, max_size=9),
)
@example((1, 1), (1, 1), "nearest", "constant", True, [0, 0, 0, 0, 0, -(2.0**-93), 0, 0, 20])  # y = -2**-93
def test_native_and_reference_agree(size, out, kind, border, half, numbers):
    (h, w), (out_h, out_w) = size, out
    m = torch.tensor(numbers, dtype=torch.float32).view(1, 3, 3) / torch.tensor(
        [[4.0, 4, 1], [4, 4, 1], [200, 200, 20]]
    )
    x = images(1, 2, h, w).double()
    choices = (INTERPOLATIONS.index(kind), BORDERS.index(border))
    got = ops.warp(
        x, m, (out_h, out_w), interpolation=kind, border=border, fill=7, centre="half" if half else "integer"
    )
    expected = reference.warp(x, m, out_h, out_w, *choices, [7.0], half)
    # A denominator near 0 or a point next to an edge may land elsewhere in float32 than in float64: with its numerators
    # moved by a 2**-18 part of themselves, its denominator by the rounding of its terms and the point by 2**-22 of a
    # pixel (taking off half a pixel rounds too), the oracle says where that can matter. Beyond 2**17 pixels such a move
    # is whole pixels, which reflection may undo: there nothing is asked.
    terms = m[0, 2].abs() @ torch.tensor([out_w, out_h, 1.0])
    moved = []
    for s, t in itertools.product((-1, 1), (-1, 1)):
        other = m * (1 + s * 2.0**-18 * torch.tensor([[1.0], [1], [0]]))
        other[0, 2, 2] += t * 2.0**-21 * terms
        moved += [other, m + 2.0**-22 * torch.tensor([[s], [t], [0.0]]) * m[:, 2:]]
    stable = near(m[0].double(), out_h, out_w, 2.0**17)
    for other in moved:
        elsewhere = reference.warp(x, other, out_h, out_w, *choices, [7.0], half)
        stable = stable & ((elsewhere - expected).abs() < 1)
    assert ((got - expected).abs()[stable] < 1).all()


@pytest.mark.parametrize(("kind", "resample"), [("nearest", 0), ("bilinear", 2), ("bicubic", 3)])
def test_the_pil_border_is_pillow(kind, resample):
    x = images(2, 3, 41, 57)
    m = two_matrices()
    got = ops.warp(x, m, (37, 45), interpolation=kind, border="pil", fill=COLOUR)
    for n in range(2):
        picture = Image.fromarray(x[n].permute(1, 2, 0).numpy())
        expected = picture.transform(
            (45, 37), Image.Transform.AFFINE, m[n, :2].flatten().tolist(), resample, fillcolor=(9, 100, 200)
        )
        difference = np.abs(np.asarray(expected).astype(int) - got[n].permute(1, 2, 0).numpy())
        if kind == "nearest":
            assert (difference > 0).mean() <= 0.005
        else:
            assert difference.max() <= 1
            assert (difference > 0).mean() < 0.01


@pytest.mark.parametrize(
    ("border", "padding"), [("constant", "zeros"), ("replicate", "border"), ("reflect", "reflection")]
)
@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_equals_grid_sample(border, padding, kind):
    x, m = images(2, 3, 21, 30).float(), two_matrices()
    got = ops.warp(x, m, (17, 25), interpolation=kind, border=border)
    v, u = torch.meshgrid(torch.arange(17.0) + 0.5, torch.arange(25.0) + 0.5, indexing="ij")
    points = torch.stack([u, v, torch.ones_like(u)], -1) @ m[:, None, :2].mT
    grid = points / torch.tensor([30.0, 21.0]) * 2 - 1
    expected = F.grid_sample(x, grid, kind, padding, align_corners=False)
    torch.testing.assert_close(got, expected, atol=0.05, rtol=0)


def test_a_ramp_at_45_degrees():
    """4 x 4, turned about its middle: the corner blends with the fill colour, or with the edge (kornia#220)."""
    x, m = torch.arange(16.0).view(1, 1, 4, 4), matrices.rotation(45, (2, 2))
    assert ops.warp(x, m)[0, 0, 0, 0].item() == pytest.approx(0.568, abs=1e-3)
    assert ops.warp(x, m, border="replicate")[0, 0, 0, 0].item() == pytest.approx(1.5, abs=1e-5)
    assert ops.warp(x, m, fill=100.0)[0, 0, 0, 0].item() > 50


@pytest.mark.parametrize("channels", [1, 3, 4, 40])
def test_fill_is_one_number_or_one_a_channel(channels):
    x, away = images(1, channels, 3, 3), matrices.translation(50, 0)
    assert (ops.warp(x, away, fill=77) == 77).all()
    if channels <= 32:
        colour = list(range(5, 5 + channels))
        assert ops.warp(x, away, fill=colour)[0, :, 1, 1].tolist() == colour
    with pytest.raises(
        ValueError, match=rf"fill must be one number or one a channel \({channels}, at most 32\), got 2"
    ):
        ops.warp(x, away, fill=(1, 2))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (4, 4), (5, 5), (6, 9), (224, 33)])
@pytest.mark.parametrize("kind", INTERPOLATIONS)
@pytest.mark.parametrize("border", BORDERS)
def test_exact_moves_are_exact(shape, kind, border):
    h, w = shape
    x = images(2, 3, h, w)
    choices = {"interpolation": kind, "border": border}
    assert torch.equal(ops.warp(x, torch.eye(3), **choices), x)
    assert torch.equal(ops.warp(x, matrices.horizontal_flip(w), **choices), x.flip(3))
    assert torch.equal(ops.warp(x, matrices.vertical_flip(h), **choices), x.flip(2))
    turn = torch.tensor([[0.0, -1, w], [1, 0, 0]])  # 90 degrees counter-clockwise
    assert torch.equal(ops.warp(x, turn, (w, h), **choices), torch.rot90(x, 1, (2, 3)))
    half = torch.tensor([[-1.0, 0, w], [0, -1, h], [0, 0, 1]])
    assert torch.equal(ops.warp(x, half, **choices), torch.rot90(x, 2, (2, 3)))
    if h > 2 and w > 2:
        crop = matrices.crop_resize(1, 2, h - 2, w - 2, (h - 2, w - 2))
        assert torch.equal(ops.warp(x, crop, (h - 2, w - 2), **choices), x[:, :, 1 : h - 1, 2:])


@pytest.mark.parametrize("side", [4, 5])
def test_built_rotations_of_a_quarter(side):
    x = images(1, 3, side, side)
    m = matrices.rotation(90, (side / 2, side / 2))
    assert torch.equal(ops.warp(x, m, border="replicate"), torch.rot90(x, 1, (2, 3)))
    integer = matrices.rotation(-90, ((side - 1) / 2, (side - 1) / 2))
    assert torch.equal(ops.warp(x, integer, border="replicate", centre="integer"), torch.rot90(x, -1, (2, 3)))


def test_corner_impulses_land_on_the_corners():
    x = torch.zeros(1, 4, 6, 9)
    for c, (i, j) in enumerate(itertools.product((0, 5), (0, 8))):
        x[0, c, i, j] = 1
    big = ops.warp(x, matrices.scaling(2, 2), (12, 18), interpolation="nearest")
    assert torch.equal(big, x.repeat_interleave(2, 2).repeat_interleave(2, 3))
    # 1x1 image blown up without a border colour is that colour everywhere
    assert (
        ops.warp(torch.full((1, 1, 1, 1), 3.5), matrices.scaling(50, 50), (50, 50), border="reflect101") == 3.5
    ).all()


def test_each_sample_has_its_own_matrix_and_none_depends_on_its_batch():
    x = images(9, 3, 12, 15)
    m = torch.stack([matrices.rotation(40.0 * i, (7, 6)) for i in range(9)])
    whole = ops.warp(x, m, border="reflect")
    assert torch.equal(whole, torch.cat([ops.warp(x[i : i + 1], m[i], border="reflect") for i in range(9)]))


def test_far_and_infinite_points_are_filled():
    x = images(1, 1, 5, 5)
    for border in BORDERS:
        for value in (1e30, float("inf"), float("nan")):
            m = torch.tensor([[1.0, 0, value], [0, 1, 0]])
            assert (ops.warp(x, m, border=border, fill=3) == 3).all()
        horizon = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, -2.5]])  # the third row divides by zero
        assert (ops.warp(x, horizon, border=border, fill=3)[0, 0, 2] == 3).all()
    assert ops.warp(x, torch.tensor([[1.0, 0, 1e6], [0, 1, 0]]), border="reflect").sum() > 0


def test_layouts_and_strides():
    base, m = images(2, 4, 21, 30), two_matrices()
    expected = ops.warp(base, m)
    last = ops.warp(base.to(memory_format=torch.channels_last), m)
    assert torch.equal(last, expected)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert expected.is_contiguous()
    views = (base[:, ::2], base[:, :, 2:19:2, ::3], base.transpose(2, 3), base[:1].expand(2, -1, -1, -1), base.flip(0))
    for view in views:
        before = view.clone()
        assert torch.equal(ops.warp(view, m), ops.warp(view.clone(memory_format=torch.contiguous_format), m))
        assert torch.equal(view, before)
    assert torch.equal(ops.warp(base, m.mT.contiguous().mT), expected)
    assert ops.warp(base[:0], m[:0], (3, 4)).shape == (0, 4, 3, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_round_the_float32_result_once(dtype):
    x, m = (images(2, 3, 21, 30) / 255).to(dtype), two_matrices()
    got = ops.warp(x, m, interpolation="bicubic", border="reflect")
    assert torch.equal(got, ops.warp(x.float(), m, interpolation="bicubic", border="reflect").to(dtype))


@pytest.mark.parametrize("kind", INTERPOLATIONS)
@pytest.mark.parametrize("border", BORDERS)
def test_gradients_of_first_and_second_order(kind, border):
    x = torch.randn(2, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    m = torch.stack([matrices.rotation(25, (2, 2)), matrices.scaling(0.6, 1.7)])
    m[1, 2, 0] = 0.05
    for layout in (torch.contiguous_format, torch.channels_last):
        leaf = x.to(memory_format=layout).requires_grad_()

        def move(x: torch.Tensor) -> torch.Tensor:
            return ops.warp(x, m, (5, 3), interpolation=kind, border=border, fill=2.0)

        assert torch.autograd.gradcheck(move, (leaf,))
        assert torch.autograd.gradgradcheck(move, (leaf,))
    upstream = torch.randn(2, 2, 5, 3, dtype=torch.float64)
    (got,) = torch.autograd.grad(move(leaf), leaf, upstream)
    choices = (INTERPOLATIONS.index(kind), BORDERS.index(border))
    expected = reference.warp_backward(upstream, m, 4, 5, *choices, True, True)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_gradient_keeps_type_and_layout():
    m = two_matrices()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = images(2, 3, 21, 30).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
        ops.warp(x, m).sum().backward()
        assert x.grad.dtype == dtype
        assert x.grad.is_contiguous(memory_format=torch.channels_last)


def test_thread_count_does_not_change_result_or_gradient():
    x, m = images(2, 20, 40, 41).float().requires_grad_(), two_matrices()
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            result = ops.warp(x, m)
            results.append((result, torch.autograd.grad(result.square().sum(), x)[0]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


GOOD = {"x": images(2, 3, 4, 5), "matrix": torch.eye(3)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": GOOD["x"].int()}, "x must be torch.uint8, torch.float32, .*, got torch.int32"),
        ({"x": GOOD["x"][0]}, r"x must have shape \(N, C, H, W\), got \(3, 4, 5\)"),
        ({"x": GOOD["x"][:, :, :0]}, r"x must have a height and a width, got \(2, 3, 0, 5\)"),
        ({"x": GOOD["x"].numpy()}, "x must be a tensor, got ndarray"),
        ({"matrix": torch.eye(3, dtype=torch.int64)}, "matrix must be a floating tensor, got torch.int64"),
        ({"matrix": torch.zeros(3, 3, 3)}, r"matrix must have shape \(2, 3\), .* or \(2, 3, 3\), got \(3, 3, 3\)"),
        ({"matrix": torch.zeros(2, 2)}, r"matrix must have shape .*, got \(2, 2, 2\)"),
        ({"matrix": torch.eye(3, device="meta")}, r"matrix must be on the device of x \(cpu\), got meta"),
        ({"matrix": torch.eye(3, requires_grad=True)}, "matrix must not require a gradient"),
        ({"output_size": (0, 4)}, r"output_size must be 1 or more, got \(0, 4\)"),
        ({"output_size": 5}, "output_size must be two whole numbers .*, got 5"),
        ({"output_size": (2.5, 4)}, r"output_size must be two whole numbers .*, got \(2.5, 4\)"),
        ({"fill": "red"}, "fill must be one number or one a channel, got 'red'"),
        ({"fill": ("a", 0, 0)}, r"fill must be one number or one a channel, got \('a', 0, 0\)"),
        ({"interpolation": "cubic"}, "interpolation must be one of nearest, bilinear, bicubic, got 'cubic'"),
        ({"border": "wrap"}, "border must be one of constant, .*, pil, got 'wrap'"),
        ({"centre": "corner"}, "centre must be one of half, integer, got 'corner'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_argument(changes, message):
    with pytest.raises(ValueError, match=f"^warp: {message}"):
        ops.warp(**(GOOD | changes))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_opcheck(layout):
    m = two_matrices()
    x = images(2, 3, 8, 9).float().to(memory_format=layout).requires_grad_()
    arguments = (x, m, 4, 5, 1, 2, [0.0, 1.0, 2.0], True)
    assert set(torch.library.opcheck(torch.ops.lightning_gpuaug.warp.default, arguments).values()) == {"SUCCESS"}
    grad = images(2, 3, 4, 5).float().to(memory_format=layout).requires_grad_()
    arguments = (grad, m, 8, 9, 1, 2, True, layout == torch.channels_last)
    op = torch.ops.lightning_gpuaug.warp_backward.default
    assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


def test_torch_compile_without_graph_breaks_and_with_changing_shapes():
    def step(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return ops.warp(x, m, border="reflect").float() * 2

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, h, w in ((2, 6, 7), (3, 11, 5)):
        x, m = images(n, 3, h, w), matrices.rotation(torch.arange(n) * 30.0, (w / 2, h / 2))
        assert torch.equal(compiled(x, m), step(x, m))
