"""The NMS family on CUDA: the same results as on the CPU, no waits, CUDA graphs, large inputs in bounded memory."""

from __future__ import annotations

import pytest
import torch
import torchvision

from lightning_gpuaug import ops
from tests.ops.boxes import coco_like, random_boxes

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")]


def tied_boxes(n: int, seed: int, grid: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes and scores from few integers: ties, equal boxes, boxes without area, inverted boxes."""
    g = torch.Generator().manual_seed(seed)
    boxes = torch.randint(0, grid, (n, 4), generator=g).float()
    return boxes, torch.randint(-3, 4, (n,), generator=g).float() / 4


def test_the_native_kernels_serve():
    assert ops.backend("cuda") == "native-cuda"


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 511, 512, 513, 1025, 4000, 20_000])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_equals_the_cpu(n, threshold):
    for boxes, scores in (random_boxes(n, seed=n), tied_boxes(n, n, 8), tied_boxes(n, n + 1, 40)):
        expected = ops.nms(boxes, scores, threshold)
        assert torch.equal(ops.nms(boxes.cuda(), scores.cuda(), threshold).cpu(), expected)
        classes = torch.arange(n) % 7 - 3
        got = ops.batched_nms(boxes.cuda(), scores.cuda(), classes.cuda(), threshold)
        assert torch.equal(got.cpu(), ops.batched_nms(boxes, scores, classes, threshold))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_equal_the_cpu(dtype):
    boxes, scores = random_boxes(3000, seed=2)
    boxes, scores = (4 * boxes).to(dtype), scores.to(dtype)
    assert torch.equal(ops.nms(boxes.cuda(), scores.cuda(), 0.4).cpu(), ops.nms(boxes, scores, 0.4))


@pytest.mark.parametrize("n", [1000, 10_000, 50_000])
def test_equals_torchvision(n):
    boxes, scores = random_boxes(n, seed=n, image=(n / 1000) ** 0.5 * 600)
    boxes, scores = boxes.cuda(), scores.cuda()
    assert torch.equal(ops.nms(boxes, scores, 0.5), torchvision.ops.nms(boxes, scores, 0.5))


def test_a_batch_of_proposals_of_real_size():
    boxes, scores, images = coco_like()
    got = ops.batched_nms(boxes.cuda(), scores.cuda(), images.cuda(), 0.7)
    assert torch.equal(got.cpu(), ops.batched_nms(boxes, scores, images, 0.7))


def test_a_chain_needs_as_many_rounds_as_a_block_has_boxes():
    n = 3000
    x = torch.arange(n).float()
    boxes = torch.stack([x * 6, x * 0, x * 6 + 10, x * 0 + 10], 1)
    assert ops.nms(boxes.cuda(), -x.cuda(), 0.2).tolist() == list(range(0, n, 2))


def test_a_million_boxes_in_bounded_memory():
    n = 1_000_000
    boxes, scores = random_boxes(n, seed=7, image=20.0, largest=300.0)
    boxes[:, 2:] = boxes[:, :2] + 200 + boxes[:, 2:] * 0.1
    boxes, scores = boxes.cuda(), scores.cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = ops.nms(boxes, scores, 0.3)
    assert torch.cuda.max_memory_allocated() - before < 300e6  # a mask of pairs would take 125 GB
    assert torch.equal(kept.cpu(), ops.nms(boxes.cpu(), scores.cpu(), 0.3))


def test_many_boxes_that_nearly_all_stay():
    boxes, scores = random_boxes(300_000, seed=8, image=30_000.0)
    kept = ops.nms(boxes.cuda(), scores.cuda(), 0.5)
    assert torch.equal(kept.cpu(), ops.nms(boxes, scores, 0.5))


def test_nan_is_an_error_and_the_padded_form_says_so_without_a_wait():
    boxes, scores = random_boxes(1000)
    bad_scores, bad_boxes = scores.clone(), boxes.clone()
    bad_scores[700] = bad_boxes[900, 3] = float("nan")
    for b, s, name in ((boxes, bad_scores, "scores"), (bad_boxes, scores, "boxes")):
        with pytest.raises(ValueError, match=f"^nms: {name} must not be NaN"):
            ops.nms(b.cuda(), s.cuda(), 0.5)
        with pytest.raises(ValueError, match=f"^soft_nms: {name} must not be NaN"):
            ops.soft_nms(b.cuda(), s.cuda())
        indices, count = ops.nms_padded(b.cuda(), s.cuda(), 0.5, 20)
        assert count.item() == -1
        assert (indices == -1).all()


def test_the_padded_form_never_waits():
    boxes, scores = (t.cuda() for t in random_boxes(5000))
    classes = (torch.arange(5000) % 80).cuda()
    ops.nms_padded(boxes, scores, 0.5, 100, classes=classes)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        indices, count = ops.nms_padded(boxes, scores, 0.5, 100)
        of_classes, _ = ops.nms_padded(boxes, scores, 0.5, 5000, classes=classes)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(indices, ops.nms(boxes, scores, 0.5)[:100])
    assert count.item() == 100
    expected = ops.batched_nms(boxes, scores, classes, 0.5)
    assert torch.equal(of_classes[: len(expected)], expected)


def test_cuda_graph_replays_on_new_boxes():
    boxes, scores = (t.cuda() for t in random_boxes(2000))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        ops.nms_padded(boxes, scores, 0.5, 500)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        indices, count = ops.nms_padded(boxes, scores, 0.5, 500)
    for seed in (11, 12):
        new_boxes, new_scores = random_boxes(2000, seed=seed)
        boxes.copy_(new_boxes)
        scores.copy_(new_scores)
        graph.replay()
        expected = ops.nms(new_boxes, new_scores, 0.5)[:500]
        assert count.item() == len(expected)
        assert torch.equal(indices[: len(expected)].cpu(), expected)


@pytest.mark.filterwarnings("default")  # what the compiler says is not ours
def test_torch_compile_with_cuda_graphs():
    boxes, scores = (t.cuda() for t in random_boxes(700))
    compiled = torch.compile(lambda b, s: ops.nms_padded(b, s, 0.5, 64), fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        indices, count = compiled(boxes, scores)
    assert torch.equal(indices.clone(), ops.nms_padded(boxes, scores, 0.5, 64)[0])
    assert count.item() <= 64


def test_work_is_queued_on_the_current_stream():
    boxes, scores = (t.cuda() for t in random_boxes(3000))
    expected = ops.nms(boxes, scores, 0.5)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        later = torch.zeros_like(boxes)
        torch.cuda._sleep(50_000_000)
        later.copy_(boxes)
        indices, count = ops.nms_padded(later, scores, 0.5, 3000)
        got = indices[: int(count)]
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(got, expected)


def test_results_repeat():
    boxes, scores = (t.cuda() for t in random_boxes(20_000, image=900.0))
    first = ops.nms(boxes, scores, 0.4)
    for _ in range(20):
        assert torch.equal(ops.nms(boxes, scores, 0.4), first)


@pytest.mark.parametrize("method", ["linear", "gaussian"])
@pytest.mark.parametrize("n", [0, 1, 33, 1024, 3000])
def test_soft_nms_equals_the_cpu_bit_for_bit(method, n):
    for boxes, scores in (random_boxes(n, seed=n), tied_boxes(n, n, 12)):
        expected = ops.soft_nms(boxes, scores, 0.3, method=method, min_score=0.02)
        got = ops.soft_nms(boxes.cuda(), scores.cuda(), 0.3, method=method, min_score=0.02)
        assert torch.equal(got[0].cpu(), expected[0])
        assert torch.equal(got[1].cpu(), expected[1])


def test_opcheck():
    boxes, scores = (t.cuda() for t in random_boxes(20))
    for op, arguments in (
        (torch.ops.lightning_gpuaug.nms_padded, (boxes, scores, None, 0.5, 5)),
        (torch.ops.lightning_gpuaug.soft_nms_padded, (boxes, scores, 0.5, 1, 0.5, 0.1)),
    ):
        assert set(torch.library.opcheck(op.default, arguments).values()) == {"SUCCESS"}
