"""warp on CUDA: uint8 as on the CPU bit for bit, floats to an ulp, gradients, layouts, large inputs, no waits."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import matrices
from tests.ops.test_warp import BORDERS, COLOUR, INTERPOLATIONS, images, perspective, two_matrices

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")]
LAYOUTS = (torch.contiguous_format, torch.channels_last)


@pytest.mark.parametrize("kind", INTERPOLATIONS)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("centre", ["half", "integer"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_equals_the_cpu(kind, border, centre, layout):
    choices = {"interpolation": kind, "border": border, "fill": COLOUR, "centre": centre}
    x = images(2, 3, 41, 57).to(memory_format=layout)
    for m in (two_matrices(), two_matrices()[:, :2], perspective()):
        for out in ((37, 45), (64, 128), (1, 2), (5, 1)):
            expected = ops.warp(x, m, out, **choices)
            got = ops.warp(x.cuda(), m.cuda(), out, **choices)
            assert got.stride() == expected.stride()
            assert torch.equal(got.cpu(), expected)
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                narrow = ops.warp(x.to(dtype).cuda(), m.cuda(), out, **choices).cpu()
                torch.testing.assert_close(narrow, ops.warp(x.to(dtype), m, out, **choices), atol=0, rtol=0)


@pytest.mark.parametrize("kind", INTERPOLATIONS)
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_equals_the_cpu(kind, border, layout):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        grads = []
        for device in ("cpu", "cuda"):
            x = (images(2, 5, 21, 30) / 255).to(device, dtype).to(memory_format=layout).requires_grad_()
            result = ops.warp(x, two_matrices().to(device), (17, 25), interpolation=kind, border=border)
            result.backward((images(2, 5, 17, 25, seed=1) / 255).to(device, dtype))
            assert x.grad.is_contiguous(memory_format=layout)
            grads.append(x.grad.cpu())
        torch.testing.assert_close(grads[1], grads[0], atol=1e-4, rtol=2 * torch.finfo(dtype).eps)


def test_a_training_batch_equals_the_cpu():
    x = images(64, 3, 224, 224)
    m = matrices.compose(
        matrices.rotation(torch.linspace(-30, 30, 64), (112, 112)), matrices.scaling(torch.linspace(0.7, 1.4, 64), 1.1)
    )
    for border in ("constant", "reflect101"):
        expected = ops.warp(x, m, border=border)
        assert torch.equal(ops.warp(x.cuda(), m.cuda(), border=border).cpu(), expected)
        last = x.cuda().to(memory_format=torch.channels_last)
        assert torch.equal(ops.warp(last, m.cuda(), border=border).cpu(), expected)


def test_inputs_of_any_strides_and_offset():
    base, m = images(2, 4, 21, 30).cuda(), two_matrices().cuda()
    last = base.to(memory_format=torch.channels_last)
    views = (base[:, ::2], base[:, :, 2:19:2, ::3], base.transpose(2, 3), base[:1].expand(2, -1, -1, -1), last[:, 1:4],
             base.flatten()[1 : 1 + 2 * 3 * 9 * 8].view(2, 3, 9, 8))  # fmt: skip
    for view in views:
        assert torch.equal(ops.warp(view, m), ops.warp(view.clone(memory_format=torch.contiguous_format), m))


def test_exact_moves_are_exact():
    for h, w in ((5, 5), (6, 9), (1, 7), (224, 224)):
        x = images(3, 3, h, w).cuda()
        for kind in INTERPOLATIONS:
            assert torch.equal(ops.warp(x, torch.eye(3).cuda(), interpolation=kind), x)
            flip = matrices.horizontal_flip(w).cuda()
            assert torch.equal(ops.warp(x, flip, interpolation=kind), x.flip(3))
            turn = torch.tensor([[0.0, -1, w], [1, 0, 0]]).cuda()
            assert torch.equal(ops.warp(x, turn, (w, h), interpolation=kind), torch.rot90(x, 1, (2, 3)))


def test_more_than_2_to_the_31_values():
    """The last image starts beyond 2**31 bytes."""
    x = torch.zeros(9, 4, 8192, 8192, dtype=torch.uint8, device="cuda")
    x[8, :, 4000:] = 7
    result = ops.warp(x, matrices.vertical_flip(8192).cuda())
    assert torch.equal(result[8], x[8].flip(1))
    assert not result[:8].any()


def test_masks_of_every_type():
    for dtype in (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float64):
        masks = (images(2, 1, 20, 30)[:, 0] % 5).to(dtype)
        expected = ops.transform_masks(masks, perspective(), (17, 23), fill=1)
        assert torch.equal(ops.transform_masks(masks.cuda(), perspective().cuda(), (17, 23), fill=1).cpu(), expected)


def test_annotations_on_the_device():
    boxes, m = torch.tensor([[[2.0, 3, 12, 8]], [[1, 1, 9, 9]]]), two_matrices()
    expected, keep = ops.transform_boxes(boxes, m, (20, 30), min_visibility=0.2)
    got, got_keep = ops.transform_boxes(boxes.cuda(), m.cuda(), (20, 30), min_visibility=0.2)
    torch.testing.assert_close(got.cpu(), expected)
    assert torch.equal(got_keep.cpu(), keep)
    torch.testing.assert_close(
        ops.transform_points(boxes[..., :2].cuda(), m.cuda()).cpu(), ops.transform_points(boxes[..., :2], m)
    )
    src = torch.tensor([[262.0, 324.0], [325.0, 323.0], [295.0, 349.0]])
    dst = torch.tensor([[38.29, 51.69], [73.53, 51.69], [56.02, 71.73]])
    torch.testing.assert_close(ops.affine_from_points(src.cuda(), dst.cuda()).cpu(), ops.affine_from_points(src, dst))


def test_never_waits_and_runs_in_a_cuda_graph():
    x, m = images(2, 3, 40, 44).cuda(), two_matrices().cuda()
    expected = ops.warp(x, m, fill=COLOUR)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.warp(x, m, fill=COLOUR)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.warp(x, m, fill=COLOUR)
    result.zero_()
    graph.replay()
    assert torch.equal(result, expected)


def test_deterministic_mode_refuses_the_gradient():
    x = torch.rand(1, 1, 6, 6, device="cuda", requires_grad=True)
    result = ops.warp(x, torch.eye(3, device="cuda"))
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="no deterministic implementation"):
            result.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_float64_is_refused():
    with pytest.raises(ValueError, match=r"x must be torch\.uint8, torch\.float32, .* got torch\.float64"):
        ops.warp(torch.zeros(1, 1, 2, 2, dtype=torch.float64, device="cuda"), torch.eye(3, device="cuda"))
