"""The call shapes of the orbbec extension, the results of its demo scripts, and the deliberate differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision

from lightning_gpuaug import ops
from lightning_gpuaug.compat import orbbec
from tests.ops.boxes import numpy_soft_nms, random_boxes
from tests.ops.regions import features, random_regions

DETS = np.array(
    [
        [49.1, 32.4, 51.0, 35.9, 0.9],
        [49.3, 32.9, 51.0, 35.3, 0.9],
        [49.2, 31.8, 51.0, 35.4, 0.5],
        [35.1, 11.5, 39.1, 15.7, 0.5],
        [35.6, 11.8, 39.3, 14.2, 0.5],
        [35.3, 11.5, 39.9, 14.5, 0.4],
        [35.2, 11.7, 39.7, 15.7, 0.3],
    ],
    dtype=np.float32,
)
SRC = np.array([[26.0, 32.0], [32.0, 33.0], [29.0, 35.0]], dtype=np.float32)
DST = np.array([[8.0, 10.0], [18.0, 9.0], [12.0, 18.0]], dtype=np.float32)


def sample_bilinear(plane: np.ndarray, x: float, y: float) -> float:
    """One float64 sample, 0 outside; the centre of pixel i is i."""
    total = 0.0
    for i in (int(np.floor(y)), int(np.floor(y)) + 1):
        for j in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= i < plane.shape[0] and 0 <= j < plane.shape[1]:
                total += (1 - abs(y - i)) * (1 - abs(x - j)) * plane[i, j]
    return total


def warp_of_points(plane: np.ndarray, src: np.ndarray, dst: np.ndarray, out: tuple[int, int]) -> np.ndarray:
    m = np.linalg.solve(np.c_[dst.astype(np.float64), np.ones(3)], src.astype(np.float64)).T
    return np.array([[sample_bilinear(plane, *(m @ [x, y, 1])) for x in range(out[1])] for y in range(out[0])])


def test_affine_torch_as_its_demo_calls_it():
    """The demo solves the normal equations for the matrix, then warps an image in 0..1."""
    image = features(1, 3, 50, 40).sigmoid()
    to = torch.cat([torch.from_numpy(DST), torch.ones(3, 1)], 1)[None].double()
    back = torch.from_numpy(SRC)[None].double()
    matrix = (torch.inverse(to.mT.bmm(to)).bmm(to.mT.bmm(back))).mT.float()
    got = orbbec.affine_torch(image, matrix, 30, 24)
    assert got.shape == (1, 3, 30, 24)
    for c in range(3):
        np.testing.assert_allclose(got[0, c], warp_of_points(image[0, c].numpy(), SRC, DST, (30, 24)), atol=1e-3)


def test_affine_torch_takes_each_samples_own_matrix_and_rounds_down():
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3).repeat(2, 1, 1, 1)
    shift = torch.tensor([[[1.0, 0, -0.5], [0, 1, 0]], [[1, 0, 1], [0, 1, 0]]])
    got = orbbec.affine_torch(image, shift, 3, 3)
    assert got[0, 0, 0].tolist() == [0.5, 1.5, 2.5]  # -0.5 lies between -1 and 0: half of pixel 0, not all of it
    assert got[1, 0, 0].tolist() == [2.0, 3.0, 0.0]


def test_affine_opencv_of_grey_and_colour():
    rng = np.random.default_rng(0)
    grey = rng.integers(0, 256, (50, 40), dtype=np.uint8)
    assert orbbec.affine_opencv(grey, SRC, DST).shape == (800, 600)
    got = orbbec.affine_opencv(grey, SRC, DST, 30, 24)
    expected = warp_of_points(grey, SRC, DST, (30, 24))
    assert got.dtype == np.uint8
    assert np.abs(got - expected).max() <= 0.51
    colour = np.stack([grey, 255 - grey, grey // 2], -1)
    assert np.array_equal(orbbec.affine_opencv(colour, SRC, DST, 30, 24)[..., 0], got)
    with pytest.raises(
        ValueError, match=r"affine_opencv: input must be a uint8 array \(H, W\) or \(H, W, C\), got float"
    ):
        orbbec.affine_opencv(grey.astype(np.float32), SRC, DST)


@pytest.mark.parametrize("kind", ["array", "double array", "tensor"])
def test_nms_as_its_demo_calls_it(kind):
    dets = {"array": DETS, "double array": DETS.astype(np.float64), "tensor": torch.from_numpy(DETS)}[kind]
    suppressed, inds = orbbec.nms(dets, 0.6)
    assert type(suppressed) is type(inds) is type(dets)
    assert list(map(int, inds)) == [0, 3, 4]
    assert suppressed.dtype == dets.dtype
    assert (np.asarray(suppressed) == np.asarray(dets)[np.asarray(inds)]).all()


def test_nms_of_nothing_and_of_wrong_things():
    dets, inds = orbbec.nms(np.zeros((0, 5), np.float32), 0.5)
    assert (dets.shape, inds.shape, inds.dtype) == ((0, 5), (0,), np.int64)
    with pytest.raises(TypeError, match="dets must be either a Tensor or numpy array"):
        orbbec.nms([[0, 0, 1, 1, 0.5]], 0.5)
    with pytest.raises(ValueError, match=r"dets must have shape \(N, 5\), got \(7, 4\)"):
        orbbec.nms(DETS[:, :4], 0.5)


def test_an_iou_at_the_threshold_stays():
    dets = np.array([[0, 0, 2, 1, 0.9], [0, 0, 1, 1, 0.8]], dtype=np.float32)
    assert orbbec.nms(dets, 0.5)[1].tolist() == [0, 1]


@pytest.mark.parametrize("method", ["linear", "gaussian"])
@pytest.mark.parametrize("as_array", [True, False])
def test_soft_nms(method, as_array):
    boxes, scores = random_boxes(60, image=60.0)
    dets = torch.cat([boxes, scores[:, None]], 1)
    new_dets, inds = orbbec.soft_nms(dets.numpy() if as_array else dets, 0.3, method=method, min_score=0.02)
    chosen, values = numpy_soft_nms(boxes, scores, 0.3, method, 0.5, 0.02)
    assert list(map(int, inds)) == chosen
    np.testing.assert_allclose(np.asarray(new_dets)[:, 4], values, rtol=2e-5)
    np.testing.assert_array_equal(np.asarray(new_dets)[:, :4], boxes.numpy()[chosen])


def test_batched_nms():
    boxes, scores = random_boxes(80, image=60.0)
    inds = torch.arange(80) % 4
    config = {"type": "nms", "iou_thr": 0.4}
    dets, keep = orbbec.batched_nms(boxes, scores, inds, config)
    assert torch.equal(keep, torchvision.ops.boxes._batched_nms_vanilla(boxes, scores, inds, 0.4))
    assert torch.equal(dets, torch.cat([boxes[keep], scores[keep, None]], 1))
    assert config == {"type": "nms", "iou_thr": 0.4}
    _, agnostic = orbbec.batched_nms(boxes, scores, inds, {"iou_thr": 0.4, "class_agnostic": True})
    assert torch.equal(agnostic, torchvision.ops.nms(boxes, scores, 0.4))
    far, far_keep = orbbec.batched_nms(boxes + 1e5, scores, inds * 10_000, config)
    assert len(far_keep) == len(ops.batched_nms(boxes + 1e5, scores, inds, 0.4)) == len(far)


def test_batched_soft_nms():
    boxes, scores = random_boxes(60, image=60.0)
    inds = torch.arange(60) % 3
    dets, keep = orbbec.batched_nms(boxes, scores, inds, {"type": "soft_nms", "iou_thr": 0.3, "min_score": 0.05})
    assert (dets[:, 4].diff() <= 0).all()
    for value in range(3):
        rows = torch.nonzero(inds == value).flatten()
        chosen, decayed = ops.soft_nms(boxes[rows], scores[rows], 0.3, min_score=0.05)
        mine = inds[keep] == value
        assert torch.equal(keep[mine], rows[chosen])
        assert torch.equal(dets[mine, 4], decayed)
    with pytest.raises(ValueError, match="nms_cfg type must be 'nms' or 'soft_nms', got 'print'"):
        orbbec.batched_nms(boxes, scores, inds, {"type": "print", "iou_thr": 0.3})
    with pytest.raises(ValueError, match="nms_cfg must hold iou_thr, got type, iou_threshold"):
        orbbec.batched_nms(boxes, scores, inds, {"type": "nms", "iou_threshold": 0.3})
    with pytest.raises(ValueError, match=r"nms_cfg for soft_nms must hold .*, got also score_thr"):
        orbbec.batched_nms(boxes, scores, inds, {"type": "soft_nms", "iou_thr": 0.3, "score_thr": 0.1})


def test_roi_align_aligned_and_legacy():
    x, rois = features(2, 4, 19, 25).requires_grad_(), random_regions(12, 2)
    aligned = orbbec.RoIAlign((7, 5), 1 / 8, sample_num=2)
    torch.testing.assert_close(aligned(x, rois), torchvision.ops.roi_align(x, rois, (7, 5), 1 / 8, 2, True))
    assert repr(aligned) == (
        "RoIAlign(out_size=(7, 5), spatial_scale=0.125, sample_num=2, use_torchvision=False, aligned=True)"
    )
    legacy = orbbec.RoIAlign(3, 1 / 8, aligned=False)(x, rois)
    inclusive = rois + torch.tensor([0.0, 0, 0, 1, 1])
    torch.testing.assert_close(legacy, torchvision.ops.roi_align(x, inclusive, 3, 1 / 8, 0, False))
    as_torchvision = orbbec.RoIAlign(3, 1 / 8, use_torchvision=True, aligned=False)(x, rois)
    torch.testing.assert_close(as_torchvision, torchvision.ops.roi_align(x, rois, 3, 1 / 8, 0, False))
    legacy.sum().backward()
    assert x.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="use_torchvision must go with aligned=False"):
        orbbec.RoIAlign(3, 1.0, use_torchvision=True)


def test_build_information():
    info = ops.build_info()
    assert orbbec.get_compiler_version() == (info["compiler"] or "not available")
    assert orbbec.get_compiling_cuda_version() == (info["cuda"] or "not available")
