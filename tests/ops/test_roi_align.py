"""RoIAlign on the CPU: torchvision, the definition, gradients of first and second order, layouts, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torchvision

from lightning_gpuaug import ops
from lightning_gpuaug.ops import _roi_align_reference as reference
from tests.ops.regions import features, pyramid, random_regions

LAYOUTS = (torch.contiguous_format, torch.channels_last)
NAN, INF = float("nan"), float("inf")


def numpy_roi_align(
    image: np.ndarray, roi: list[float], out: tuple[int, int], scale: float, ratio: int, aligned: bool
) -> np.ndarray:
    """One region (x1, y1, x2, y2) of one (H, W) image, sample by sample in float64."""
    shift = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (v * scale - shift for v in roi)
    size = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
    bins = [s / o for s, o in zip(size, out, strict=True)]
    grid = [ratio if ratio > 0 else max(math.ceil(b), 0) for b in bins]
    result = np.zeros(out)

    def pixel(y: float, x: float) -> float:
        if not (-1 <= y <= image.shape[0] and -1 <= x <= image.shape[1]):
            return 0.0
        total = 0.0
        y, x = min(max(y, 0), image.shape[0] - 1), min(max(x, 0), image.shape[1] - 1)
        for i in {math.floor(y), math.ceil(y)}:
            for j in {math.floor(x), math.ceil(x)}:
                total += (1 - abs(y - i)) * (1 - abs(x - j)) * image[i, j]
        return total

    for row in range(out[0]):
        for column in range(out[1]):
            samples = [
                pixel(y1 + bins[0] * (row + (i + 0.5) / grid[0]), x1 + bins[1] * (column + (j + 0.5) / grid[1]))
                for i in range(grid[0])
                for j in range(grid[1])
            ]
            result[row, column] = sum(samples) / max(len(samples), 1)
    return result


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("out", [(7, 7), (3, 5), (1, 1)])
@pytest.mark.parametrize("channels", [1, 8, 13])
def test_equals_torchvision(aligned, ratio, out, channels):
    x, rois = features(2, channels, 19, 25), random_regions(20, 2)
    expected = torchvision.ops.roi_align(x, rois, out, 0.125, ratio, aligned)
    for layout in LAYOUTS:
        got = ops.roi_align(x.to(memory_format=layout), rois, out, 0.125, ratio, aligned)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(reference.roi_align(x, rois, *out, 0.125, ratio, aligned), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
def test_equals_the_definition(aligned, ratio):
    x = features(1, 2, 9, 11, dtype=torch.float64)
    regions = [[0.3, 1.7, 5.2, 6.6], [-4.0, -3.0, 2.0, 3.0], [8, 5, 30, 40], [3, 3, 3, 3], [5, 5, 2, 1], [0, 0, 11, 9]]
    rois = torch.tensor([[0.0, *r] for r in regions], dtype=torch.float64)
    got = ops.roi_align(x, rois, (3, 2), 0.75, ratio, aligned)
    for k, roi in enumerate(regions):
        for c in range(2):
            expected = numpy_roi_align(x[0, c].numpy(), roi, (3, 2), 0.75, ratio, aligned)
            np.testing.assert_allclose(got[k, c].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_narrow_types_round_the_float32_result_once(dtype, layout):
    x, rois = features(2, 12, 16, 18).to(dtype), random_regions(15, 2)
    got = ops.roi_align(x.to(memory_format=layout), rois, 5, 0.1, 2, True)
    assert got.dtype == dtype
    exact = ops.roi_align(x.double(), rois.double(), 5, 0.1, 2, True)
    epsilon = torch.finfo(dtype).eps
    assert ((got.double() - exact).abs() <= exact.abs() * epsilon * 0.51 + 1e-5).all()


def test_the_result_has_the_memory_format_of_the_input():
    x, rois = features(2, 8, 16, 18), random_regions(5, 2)
    assert ops.roi_align(x, rois, 3, 0.1).is_contiguous()
    last = ops.roi_align(x.to(memory_format=torch.channels_last), rois, 3, 0.1)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert not last.is_contiguous()
    for odd in (x[:, ::2], x.transpose(2, 3), x[:, :, 1:9, 2:10], x[:1].expand(2, -1, -1, -1)):
        torch.testing.assert_close(
            ops.roi_align(odd, rois, 3, 0.1),
            ops.roi_align(odd.clone(memory_format=torch.contiguous_format), rois, 3, 0.1),
        )


def test_a_list_of_boxes_an_image():
    x, rois = features(3, 4, 16, 18), random_regions(30, 3)
    rois = rois[rois[:, 0].argsort(stable=True)]
    lists = [rois[rois[:, 0] == i, 1:] for i in range(3)]
    assert torch.equal(ops.roi_align(x, lists, 3, 0.1, 2), ops.roi_align(x, rois, 3, 0.1, 2))
    with pytest.raises(ValueError, match=r"rois must be one tensor an image \(3\), got 2"):
        ops.roi_align(x, lists[:2], 3)


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8), (2, 3, 8, 8)])
def test_no_regions_or_no_channels(shape):
    x = features(*shape).requires_grad_()
    k = 4 if shape[1] == 0 else 0
    result = ops.roi_align(x, torch.zeros(k, 5), (2, 3))
    assert result.shape == (k, shape[1], 2, 3)
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == shape
    assert not x.grad.any()


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_first_and_second_order(aligned, ratio, layout):
    x = features(2, 3, 5, 6, dtype=torch.float64).to(memory_format=layout).requires_grad_()
    rois = random_regions(4, 2, width=6, height=5, largest=5).double()

    def pool(x: torch.Tensor) -> torch.Tensor:
        return ops.roi_align(x, rois, (2, 3), 1.0, ratio, aligned)

    assert torch.autograd.gradcheck(pool, (x,))
    assert torch.autograd.gradgradcheck(pool, (x,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_equals_torchvision(dtype, layout):
    rois = random_regions(25, 2)
    x = features(2, 9, 19, 25).to(dtype).to(memory_format=layout).requires_grad_()
    exact = x.detach().double().contiguous().requires_grad_()
    result = ops.roi_align(x, rois, 4, 0.125, 2, True)
    upstream = features(*result.shape, seed=1).to(dtype)
    result.backward(upstream)
    torchvision.ops.roi_align(exact, rois.double(), 4, 0.125, 2, True).backward(upstream.double())
    assert x.grad.dtype == dtype
    assert x.grad.is_contiguous(memory_format=layout)
    tolerance = torch.finfo(dtype).eps
    torch.testing.assert_close(x.grad.double(), exact.grad, atol=1e-4 if tolerance > 1e-4 else 1e-5, rtol=tolerance)
    expected = reference.roi_align_backward(upstream, rois, 2, 19, 25, 0.125, 2, True, False)
    torch.testing.assert_close(x.grad, expected, atol=1e-4, rtol=2 * tolerance)


def test_gradient_takes_any_layout_of_what_comes_in():
    x = features(1, 6, 9, 9).requires_grad_()
    rois = random_regions(3, 1, width=9, height=9, largest=6)
    grads = []
    for upstream in (torch.ones(3, 6, 2, 2), torch.ones(1).expand(3, 6, 2, 2),
                     torch.ones(3, 6, 2, 2).to(memory_format=torch.channels_last)):  # fmt: skip
        (grad,) = torch.autograd.grad(ops.roi_align(x, rois, 2), x, upstream)
        grads.append(grad)
    assert torch.equal(grads[0], grads[1])
    assert torch.equal(grads[0], grads[2])


def test_a_feature_pyramid_of_real_size():
    for x, rois, scale in pyramid(channels=16):
        expected = torchvision.ops.roi_align(x, rois, 7, scale, 2, True)
        torch.testing.assert_close(ops.roi_align(x, rois, 7, scale, 2, True), expected, atol=1e-5, rtol=0)


def test_a_region_far_larger_than_the_image_is_quick():
    """Adaptive sampling of 10**9 pixels: only the samples over the image are visited."""
    x = torch.ones(1, 1, 6, 6)
    result = ops.roi_align(x, torch.tensor([[0.0, -5e8, -5e8, 5e8, 5e8]]), 1)
    assert 0 <= result.item() < 1e-12


def test_thread_count_does_not_change_result_or_gradient():
    x, rois = features(2, 40, 19, 25).requires_grad_(), random_regions(30, 2)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            result = ops.roi_align(x, rois, 3, 0.125)
            results.append((result, torch.autograd.grad(result.square().sum(), x)[0]))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize(
    "values", [(2, 0, 0, 1, 1), (-1, 0, 0, 1, 1), (0, NAN, 0, 1, 1), (1, 0, 0, INF, 1), (NAN,) * 5]
)
def test_a_bad_region_raises(values):
    rois = torch.tensor([[0.0, 0, 0, 1, 1], [float(v) for v in values]])
    with pytest.raises(ValueError, match=r"roi_align: rois must be finite and name an image in 0..1, got rois\[1\] = "):
        ops.roi_align(features(2, 3, 4, 4), rois, 2)
    with pytest.raises(RuntimeError, match=r"roi_align: rois must be finite and name an image in 0..1, got rois\[1\]"):
        torch.ops.lightning_gpuaug.roi_align(features(2, 3, 4, 4), rois, 2, 2, 1.0, 0, True)
    with pytest.raises((ValueError, RuntimeError), match=r"rois must be finite and name an image in 0..1"):
        torch.ops.lightning_gpuaug.roi_align_backward(features(2, 3, 2, 2), rois, 2, 4, 4, 1.0, 0, True, False)


X, ROIS = features(2, 3, 4, 4), torch.zeros(1, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": X[0]}, r"x must have shape \(N, C, H, W\), got \(3, 4, 4\)"),
        ({"x": X.int()}, "x must be a floating tensor, got torch.int32"),
        ({"rois": torch.zeros(1, 4)}, r"rois must have shape \(K, 5\), got \(1, 4\)"),
        ({"rois": torch.zeros(1, 5, dtype=torch.int64)}, "rois must be a floating tensor, got torch.int64"),
        ({"rois": torch.zeros(1, 5, device="meta")}, r"rois must be on the device of x \(cpu\), got meta"),
        ({"output_size": (0, 3)}, r"output_size must be 1 or more, got \(0, 3\)"),
        ({"output_size": 2.5}, "output_size must be two whole numbers .*, got 2.5"),
        ({"output_size": (2, 3, 4)}, r"output_size must be two whole numbers .*, got \(2, 3, 4\)"),
        ({"sampling_ratio": 0.5}, "sampling_ratio must be a whole number, got 0.5"),
        ({"x": X[:, :, :0]}, r"x must have a height and a width, got \(2, 3, 0, 4\)"),
        ({"spatial_scale": "1"}, "spatial_scale must be finite and above 0, got '1'"),
        ({"spatial_scale": 0.0}, "spatial_scale must be finite and above 0, got 0"),
        ({"spatial_scale": NAN}, "spatial_scale must be finite and above 0, got nan"),
    ],
)
def test_bad_input_is_one_line_that_names_the_argument(changes, message):
    with pytest.raises(ValueError, match=f"^roi_align: {message}"):
        ops.roi_align(**({"x": X, "rois": ROIS, "output_size": 2} | changes))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck(layout):
    x = features(2, 3, 6, 7).to(memory_format=layout).requires_grad_()
    rois = random_regions(3, 2, width=7, height=6, largest=5)
    arguments = (x, rois, 2, 3, 1.0, 2, True)
    assert set(torch.library.opcheck(torch.ops.lightning_gpuaug.roi_align.default, arguments).values()) == {"SUCCESS"}
    grad = features(3, 3, 2, 3).to(memory_format=layout).requires_grad_()
    arguments = (grad, rois, 2, 6, 7, 1.0, 2, True, layout == torch.channels_last)
    op = torch.ops.lightning_gpuaug.roi_align_backward.default
    assert set(torch.library.opcheck(op, arguments).values()) == {"SUCCESS"}


def test_torch_compile_with_gradients_and_changing_shapes():
    def step(x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        return ops.roi_align(x * 2, rois, 3, 0.5, 2, True).relu()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n, size, k in ((1, 8, 3), (2, 12, 9)):
        x = features(n, 4, size, size + 3).requires_grad_()
        rois = random_regions(k, n, width=20, height=20, largest=15)
        assert torch.equal(compiled(x, rois), step(x, rois))
        got = torch.autograd.grad(compiled(x, rois).sum(), x)[0]
        torch.testing.assert_close(got, torch.autograd.grad(step(x, rois).sum(), x)[0])
