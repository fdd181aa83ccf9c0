"""The NMS family on the CPU: against torchvision and the definition, ties, NaN, and how the ops behave in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_gpuaug import ops
from lightning_gpuaug.ops import _nms_reference
from tests.ops.boxes import coco_like, numpy_nms, numpy_soft_nms, random_boxes

THRESHOLDS = (0.0, 0.3, 0.5, 0.7, 1.0)
NAN = float("nan")


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 511, 513, 2000])
@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
def test_equals_torchvision(n, threshold):
    boxes, scores = random_boxes(n, seed=n)
    assert torch.equal(ops.nms(boxes, scores, threshold), torchvision.ops.nms(boxes, scores, threshold))
    classes = torch.arange(n) % 5 - 2
    expected = torchvision.ops.boxes._batched_nms_vanilla(boxes, scores, classes, threshold)
    assert torch.equal(ops.batched_nms(boxes, scores, classes, threshold), expected)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_equals_the_definition_on_small_integers_full_of_ties(data):
    """Coordinates 0..6 give equal scores, equal boxes, boxes without area, IoUs of exactly 1/2, and inverted boxes."""
    n = data.draw(st.integers(0, 24))
    boxes = torch.tensor(data.draw(st.lists(st.integers(0, 6), min_size=4 * n, max_size=4 * n))).view(n, 4).float()
    scores = torch.tensor(data.draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n))).float() / 2
    threshold = data.draw(st.sampled_from((*THRESHOLDS, 1 / 3, 0.25)))
    classes = torch.tensor(data.draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)), dtype=torch.int64)
    assert ops.nms(boxes, scores, threshold).tolist() == numpy_nms(boxes, scores, threshold)
    assert ops.batched_nms(boxes, scores, classes, threshold).tolist() == numpy_nms(boxes, scores, threshold, classes)
    indices, count = _nms_reference.nms_padded(boxes, scores, classes, threshold, n)
    assert indices[:count].tolist() == numpy_nms(boxes, scores, threshold, classes)


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 2), (3, 10), (7, 10), (1, 3), (9, 10), (1, 10)])
def test_an_iou_equal_to_the_threshold_is_not_above_it(numerator, denominator):
    boxes = torch.tensor([[0.0, 0, denominator, 1], [0, 0, numerator, 1]])
    scores = torch.tensor([0.9, 0.8])
    assert ops.nms(boxes, scores, numerator / denominator).tolist() == [0, 1]
    assert ops.nms(boxes, scores, numerator / denominator - 1e-4).tolist() == [0]


def test_empty():
    kept = ops.nms(torch.empty(0, 4), torch.empty(0), 0.5)
    assert (kept.shape, kept.dtype) == ((0,), torch.int64)
    assert ops.batched_nms(torch.empty(0, 4), torch.empty(0), torch.empty(0, dtype=torch.int64), 0.5).shape == (0,)
    indices, count = ops.nms_padded(torch.empty(0, 4), torch.empty(0), 0.5, 3)
    assert (indices.tolist(), count.item()) == ([-1, -1, -1], 0)
    assert [t.shape for t in ops.soft_nms(torch.empty(0, 4), torch.empty(0))] == [(0,), (0,)]


def test_boxes_without_area_are_kept():
    boxes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 5]])
    assert ops.nms(boxes, torch.tensor([0.1, 0.3, 0.2]), 0.0).tolist() == [1, 2, 0]


def test_infinite_boxes_and_scores():
    inf = float("inf")
    boxes = torch.tensor([[-inf, -inf, inf, inf], [0, 0, 1, 1], [inf, inf, inf, inf], [0, 0, 1, 0.9]])
    assert ops.nms(boxes, torch.tensor([inf, 1, -inf, 0.5]), 0.5).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        ([[0.0, 0, 1, 1], [0, 0, 1, 1], [5, 5, 6, 6]], [NAN, 0.9, 0.8], r"scores must not be NaN, got NaN at index 0"),
        ([[0.0, 0, 1, 1], [0, NAN, 1, 1]], [0.9, 0.8], r"boxes must not be NaN, got NaN at index 1 \(1 in all\)"),
    ],
)
def test_nan_is_an_error_and_not_a_result(boxes, scores, message):
    boxes, scores = torch.tensor(boxes), torch.tensor(scores)
    with pytest.raises(ValueError, match=f"^nms: {message}"):
        ops.nms(boxes, scores, 0.5)
    with pytest.raises(ValueError, match=f"^nms: {message}"):
        ops.batched_nms(boxes, scores, torch.zeros(len(scores), dtype=torch.int64), 0.5)
    with pytest.raises(ValueError, match=f"^soft_nms: {message}"):
        ops.soft_nms(boxes, scores)
    indices, count = ops.nms_padded(boxes, scores, 0.5, 2)
    assert (indices.tolist(), count.item()) == ([-1, -1], -1)


def test_ties_go_by_the_lowest_index():
    boxes = torch.tensor([[0.0, 0, 10, 10]]).repeat(300, 1)
    boxes[100:] += 100
    boxes[200:] += 100
    assert ops.nms(boxes, torch.full((300,), 0.25), 0.5).tolist() == [0, 100, 200]
    assert ops.nms(boxes.flip(0), torch.full((300,), 0.25), 0.5).tolist() == [0, 100, 200]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_computed_in_float32(dtype):
    """300 x 400 is 120,000: beyond float16, whose infinite areas would make every IoU 0."""
    boxes = torch.tensor([[0.0, 0, 300, 400], [0, 0, 300, 384], [8, 0, 300, 400], [600, 0, 900, 400]]).to(dtype)
    scores = torch.tensor([0.5, 0.75, 0.25, 0.125]).to(dtype)
    assert ops.nms(boxes, scores, 0.5).tolist() == [1, 3]
    big, many = random_boxes(500, seed=3)
    big, many = (4 * big).to(dtype), many.to(dtype)
    assert torch.equal(ops.nms(big, many, 0.4), ops.nms(big.float(), many.float(), 0.4))


def test_padded_and_limited():
    boxes, scores = random_boxes(400, seed=1)
    every = ops.nms(boxes, scores, 0.4)
    for max_out in (0, 1, len(every) - 1, len(every), len(every) + 7, 1000):
        indices, count = ops.nms_padded(boxes, scores, 0.4, max_out)
        expected = every[:max_out]
        assert (indices.shape, indices.dtype, count.shape, count.dtype) == ((max_out,), torch.int64, (), torch.int64)
        assert count.item() == len(expected)
        assert torch.equal(indices[: len(expected)], expected)
        assert (indices[len(expected) :] == -1).all()
    classes = torch.arange(400) % 3
    indices, count = ops.nms_padded(boxes, scores, 0.4, 400, classes=classes)
    assert torch.equal(indices[:count], ops.batched_nms(boxes, scores, classes, 0.4))


def test_a_chain_in_which_each_box_overlaps_the_next_alone():
    n = 1500
    x = torch.arange(n).float()
    boxes = torch.stack([x * 6, x * 0, x * 6 + 10, x * 0 + 10], 1)  # neighbours: IoU 1/4
    assert ops.nms(boxes, -x, 0.2).tolist() == list(range(0, n, 2))


def test_inputs_of_any_strides_are_left_alone():
    boxes, scores = random_boxes(200, seed=5)
    expected = ops.nms(boxes, scores, 0.5)
    wide = torch.zeros(200, 9)
    wide[:, 1:8:2] = boxes
    before = wide.clone()
    strided_scores = torch.stack([scores, scores], 1)[:, 1]
    assert torch.equal(ops.nms(wide[:, 1:8:2], strided_scores, 0.5), expected)
    assert torch.equal(ops.nms(boxes.t().contiguous().t(), scores, 0.5), expected)
    assert torch.equal(wide, before)


def test_thread_count_does_not_change_the_result():
    boxes, scores, images = coco_like(images=8, proposals=500)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append((ops.nms(boxes, scores, 0.6), ops.batched_nms(boxes, scores, images, 0.6)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_a_batch_of_proposals_of_real_size():
    """100 images of 1,000 proposals: each image as if it were alone, and all by descending score."""
    boxes, scores, images = coco_like()
    kept = ops.batched_nms(boxes, scores, images, 0.7)
    assert (scores[kept].diff() <= 0).all()
    for image in (0, 41, 99):
        rows = torch.nonzero(images == image).flatten()
        alone = rows[torchvision.ops.nms(boxes[rows], scores[rows], 0.7)]
        assert torch.equal(kept[images[kept] == image], alone)


def test_many_boxes_in_bounded_memory():
    """400,000 boxes, more than a mask of pairs could hold (20 GB): few stay, so it is quick."""
    boxes, scores = random_boxes(400_000, seed=7, image=20.0, largest=300.0)
    boxes[:, 2:] = boxes[:, :2] + 200 + boxes[:, 2:] * 0.1
    kept = ops.nms(boxes, scores, 0.3)
    assert torch.equal(kept, torchvision.ops.nms(boxes, scores, 0.3))


@pytest.mark.parametrize("method", ["linear", "gaussian"])
@pytest.mark.parametrize("n", [1, 7, 200])
def test_soft_nms_equals_the_definition(method, n):
    boxes, scores = random_boxes(n, seed=n, image=60.0)
    indices, decayed = ops.soft_nms(boxes, scores, 0.3, method=method, sigma=0.4, min_score=0.05)
    chosen, values = numpy_soft_nms(boxes, scores, 0.3, method, 0.4, 0.05)
    assert indices.tolist() == chosen
    np.testing.assert_allclose(decayed.numpy(), values, rtol=2e-5)
    assert decayed.dtype == torch.float32
    assert (decayed.diff() <= 0).all()
    ref_indices, ref_scores, count = _nms_reference.soft_nms_padded(
        boxes, scores, 0.3, ["linear", "gaussian"].index(method), 0.4, 0.05
    )
    assert ref_indices[:count].tolist() == chosen
    np.testing.assert_allclose(ref_scores[:count].numpy(), values, rtol=2e-5)


def test_soft_nms_keeps_everything_apart_and_breaks_ties_by_index():
    boxes = torch.tensor([[0.0, 0, 1, 1], [5, 5, 6, 6], [9, 9, 10, 10], [5, 5, 6, 6]])
    indices, decayed = ops.soft_nms(boxes, torch.full((4,), 0.5), 0.3, min_score=0.1)
    assert indices.tolist() == [0, 1, 2]
    assert decayed.tolist() == [0.5] * 3
    _, decayed = ops.soft_nms(boxes, torch.full((4,), 0.5), method="gaussian", sigma=0.5, min_score=0.0)
    assert decayed[3].item() == pytest.approx(0.5 * np.exp(-2.0), rel=1e-6)


def test_soft_nms_leaves_the_scores_alone():
    boxes, scores = random_boxes(50)
    before = scores.clone()
    ops.soft_nms(boxes, scores, method="gaussian")
    assert torch.equal(scores, before)


GOOD = dict(zip(("boxes", "scores"), random_boxes(3), strict=True))
BAD_INPUTS = {
    "a list": ({"boxes": [[0, 0, 1, 1]]}, "boxes must be a tensor, got list"),
    "integer boxes": (
        {"boxes": torch.zeros(3, 4, dtype=torch.int64)},
        "boxes must be torch.float32, .*got torch.int64",
    ),
    "double boxes": ({"boxes": torch.zeros(3, 4).double()}, "boxes must be torch.float32, .*, got torch.float64"),
    "five columns": ({"boxes": torch.zeros(3, 5)}, r"boxes must have shape \(N, 4\), got \(3, 5\)"),
    "few scores": ({"scores": torch.zeros(2)}, r"scores must have shape \(3,\), one value a box, got \(2,\)"),
    "score column": ({"scores": torch.zeros(3, 1)}, r"scores must have shape \(3,\), one value a box, got \(3, 1\)"),
    "device": ({"scores": torch.zeros(3, device="meta")}, r"scores must be on the device of boxes \(cpu\), got meta"),
    "threshold": ({"iou_threshold": 1.5}, "iou_threshold must be in 0..1, got 1.5"),
    "NaN threshold": ({"iou_threshold": NAN}, "iou_threshold must be in 0..1, got nan"),
    "text threshold": ({"iou_threshold": "0.5"}, "iou_threshold must be in 0..1, got '0.5'"),
    "no threshold": ({"iou_threshold": None}, "iou_threshold must be in 0..1, got None"),
    "max_out of 2.5": ({"max_out": 2.5}, "max_out must be 0 or more, got 2.5"),
    "class dtype": ({"classes": torch.zeros(3)}, "classes must be torch.int64, got torch.float32"),
    "class shape": ({"classes": torch.zeros(2, dtype=torch.int64)}, r"classes must have shape \(3,\), .* got \(2,\)"),
    "max_out": ({"max_out": -1}, "max_out must be 0 or more, got -1"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_is_one_line_that_names_the_argument(case):
    changes, message = BAD_INPUTS[case]
    arguments = {**GOOD, "iou_threshold": 0.5, "max_out": 3, "classes": None} | changes
    with pytest.raises(ValueError, match=f"^nms_padded: {message}"):
        ops.nms_padded(**arguments)
    if case not in ("a list", "device", "text threshold", "no threshold", "max_out of 2.5"):
        op = torch.ops.lightning_gpuaug.nms_padded
        with pytest.raises((ValueError, RuntimeError), match=message):
            op(*(arguments[name] for name in ("boxes", "scores", "classes", "iou_threshold", "max_out")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "cubic"}, "method must be one of linear, gaussian, got 'cubic'"),
        ({"sigma": 0.0}, "sigma must be finite and above 0, got 0"),
        ({"sigma": None}, "sigma must be finite and above 0, got None"),
        ({"min_score": NAN}, "min_score must be a number and not NaN, got nan"),
        ({"min_score": "0"}, "min_score must be a number and not NaN, got '0'"),
        ({"iou_threshold": -0.1}, "iou_threshold must be in 0..1, got -0.1"),
    ],
)
def test_bad_soft_nms_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"^soft_nms: {message}"):
        ops.soft_nms(**GOOD, **arguments)


@pytest.mark.parametrize("classes", [None, torch.tensor([0, 1, 0])])
def test_opcheck(classes):
    boxes, scores = GOOD["boxes"], GOOD["scores"]
    for op, arguments in (
        (torch.ops.lightning_gpuaug.nms_padded, (boxes, scores, classes, 0.5, 2)),
        (torch.ops.lightning_gpuaug.nms, (boxes, scores, classes, 0.5)),
        (torch.ops.lightning_gpuaug.soft_nms_padded, (boxes, scores, 0.5, 1, 0.5, 0.1)),
    ):
        assert set(torch.library.opcheck(op.default, arguments).values()) == {"SUCCESS"}


def test_torch_compile_of_the_padded_form_without_graph_breaks():
    def step(boxes: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        indices, count = ops.nms_padded(boxes * 2, scores, 0.5, 5)
        return torch.where(indices[:, None] >= 0, boxes[indices], 0), count

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (9, 30):
        boxes, scores = random_boxes(n, seed=n)
        for got, expected in zip(compiled(boxes, scores), step(boxes, scores), strict=True):
            assert torch.equal(got, expected)


def test_torch_compile_of_the_form_of_dynamic_size():
    compiled = torch.compile(lambda b, s: ops.nms(b, s, 0.5) + 1, backend="aot_eager", fullgraph=True)
    boxes, scores = random_boxes(40, image=50.0)
    assert torch.equal(compiled(boxes, scores), ops.nms(boxes, scores, 0.5) + 1)
