"""RoIAlign on CUDA: the same results as on the CPU in each type and layout, gradients, bad regions, large inputs."""

from __future__ import annotations

import pytest
import torch
import torchvision

from lightning_gpuaug import ops
from tests.ops.regions import features, pyramid, random_regions

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")]
LAYOUTS = (torch.contiguous_format, torch.channels_last)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("channels", [1, 3, 8, 12, 32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_equals_the_cpu(aligned, ratio, channels, layout):
    x, rois = features(2, channels, 19, 25).to(memory_format=layout), random_regions(40, 2)
    for dtype in DTYPES:
        for out in ((7, 7), (3, 5), (1, 1)):
            expected = ops.roi_align(x.to(dtype), rois, out, 0.125, ratio, aligned)
            got = ops.roi_align(x.to(dtype).cuda(), rois.cuda(), out, 0.125, ratio, aligned)
            assert got.dtype == dtype
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got.cpu(), expected, atol=1e-5, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [3, 16, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_equals_the_cpu(layout, channels, dtype):
    rois = random_regions(40, 2)
    grads = []
    for device in ("cpu", "cuda"):
        x = features(2, channels, 19, 25).to(device, dtype).to(memory_format=layout).requires_grad_()
        result = ops.roi_align(x, rois.to(device), 5, 0.125, 2, True)
        result.backward(features(*result.shape, seed=1).to(device, dtype))
        assert x.grad.is_contiguous(memory_format=layout)
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], atol=1e-4, rtol=torch.finfo(dtype).eps)


def test_second_order_gradient_equals_the_cpu():
    rois = random_regions(9, 2)
    results = []
    for device in ("cpu", "cuda"):
        x = features(2, 4, 9, 9).to(device).requires_grad_()
        upstream = features(9, 4, 3, 3, seed=1).to(device).requires_grad_()
        (grad,) = torch.autograd.grad(ops.roi_align(x, rois.to(device), 3, 0.05), x, upstream, create_graph=True)
        results.append(torch.autograd.grad(grad.square().sum(), upstream)[0].cpu())
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("aligned", [False, True])
def test_a_feature_pyramid_of_real_size_is_as_exact_as_torchvision(layout, aligned):
    """On large maps float32 coordinates alone are worth more than 1e-5, in torchvision too: float64 is the judge."""
    for x, rois, scale in pyramid(channels=256):
        x, rois = x.cuda().to(memory_format=layout), rois.cuda()
        for ratio in (0, 2):
            exact = torchvision.ops.roi_align(x.double(), rois.double(), 7, scale, ratio, aligned)
            theirs = torchvision.ops.roi_align(x, rois, 7, scale, ratio, aligned)
            ours = ops.roi_align(x, rois, 7, scale, ratio, aligned)
            error, theirs_error = ((value.double() - exact).abs() for value in (ours, theirs))
            assert error.max() <= 1.05 * theirs_error.max() + 2e-6
            assert error.mean() <= 1.05 * theirs_error.mean() + 1e-7
            torch.testing.assert_close(ours, theirs, atol=2 * float(theirs_error.max()) + 1e-6, rtol=0)


def test_inputs_of_any_strides_and_offset():
    base, rois = features(2, 16, 20, 22).cuda(), random_regions(12, 2).cuda()
    last = base.to(memory_format=torch.channels_last)
    views = (base[:, ::2], base[:, :, 1:9, 2:10], base.transpose(2, 3), last[:, 1:9], last[:, :, 3:], last[1:])
    for view in views:
        regions = rois[rois[:, 0] < view.shape[0]]
        dense = view.clone(memory_format=torch.contiguous_format)
        torch.testing.assert_close(ops.roi_align(view, regions, 3, 0.1, 2), ops.roi_align(dense, regions, 3, 0.1, 2))
    shifted = torch.cat([last.permute(0, 2, 3, 1).flatten().new_zeros(1), last.permute(0, 2, 3, 1).flatten()])[1:]
    shifted = shifted.view(2, 20, 22, 16).permute(0, 3, 1, 2)  # channels_last at an address that is no multiple of 16
    torch.testing.assert_close(ops.roi_align(shifted, rois, 3, 0.1, 2), ops.roi_align(last, rois, 3, 0.1, 2))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bad_regions_give_nan_and_no_gradient_or_raise_when_asked(layout):
    nan = float("nan")
    rois = torch.tensor(
        [[0.0, 0, 0, 4, 4], [2, 0, 0, 4, 4], [-1, 0, 0, 4, 4], [0, nan, 0, 4, 4], [1, 0, 0, 4, 4]]
    ).cuda()
    x = features(2, 8, 6, 6).cuda().to(memory_format=layout).requires_grad_()
    result = ops.roi_align(x, rois, 2)
    assert result.isnan().all(1).all(1).all(1).tolist() == [False, True, True, True, False]
    result.backward(torch.ones_like(result))
    assert x.grad.isfinite().all()
    with pytest.raises(ValueError, match=r"name an image in 0..1, got rois\[1\]"):
        ops.roi_align(x, rois, 2, validate=True)


def test_float64_is_refused():
    with pytest.raises(ValueError, match=r"on CUDA x must be torch\.float32, torch\.float16 or torch\.bfloat16"):
        ops.roi_align(features(1, 1, 4, 4).double().cuda(), torch.zeros(1, 5).cuda(), 2)


def test_deterministic_mode_refuses_the_gradient():
    x = features(1, 4, 6, 6).cuda().requires_grad_()
    result = ops.roi_align(x, torch.tensor([[0.0, 0, 0, 4, 4]]).cuda(), 2)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="no deterministic implementation"):
            result.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_more_than_2_to_the_31_values():
    """The last image starts beyond 2**32 bytes and 2**31 values."""
    x = torch.zeros(9, 256, 1024, 1024, dtype=torch.float16, device="cuda")
    x[8] = 3.0
    rois = torch.tensor([[8.0, 10, 10, 900, 1000], [0, 10, 10, 900, 1000]]).cuda()
    for view in (x, x.view(9, 1024, 1024, 256).permute(0, 3, 1, 2)):
        result = ops.roi_align(view, rois, 2, 1.0, 2, True)
        assert (result[0] == 3).all()
        assert (result[1] == 0).all()


def test_never_waits_and_runs_in_a_cuda_graph():
    x, rois = features(2, 16, 20, 20).cuda(), random_regions(30, 2).cuda()
    expected = ops.roi_align(x, rois, 7, 0.1, 2, True)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.roi_align(x, rois, 7, 0.1, 2, True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.roi_align(x, rois, 7, 0.1, 2, True)
    result.zero_()
    graph.replay()
    assert torch.equal(result, expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own
def test_opcheck():
    x = features(2, 8, 6, 7).cuda().requires_grad_()
    rois = random_regions(3, 2, width=7, height=6, largest=5).cuda()
    op = torch.ops.lightning_gpuaug.roi_align.default
    # The gradient adds in no fixed order, which is what the left-out comparison would trip over.
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    assert set(torch.library.opcheck(op, (x, rois, 2, 3, 1.0, 2, True), test_utils=tests).values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("default")  # what the compiler says is not ours
def test_torch_compile_trains():
    def loss(x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
        return ops.roi_align(x * 2, rois, 3, 0.5, 2, True).square().mean()

    x, rois = features(2, 8, 12, 12).cuda().requires_grad_(), random_regions(9, 2, width=20, height=20).cuda()
    compiled = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x, rois), x)[0]
    torch.testing.assert_close(compiled, torch.autograd.grad(loss(x, rois), x)[0], atol=1e-5, rtol=1e-4)
