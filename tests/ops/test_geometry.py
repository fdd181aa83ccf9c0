"""Matrices, and annotations under a warp: points, boxes and masks follow the pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops import matrices

BUILT = {
    "identity": torch.eye(3),
    "translation": matrices.translation(4, -3),
    "scaling": matrices.scaling(1.5, 0.75, (10, 7)),
    "rotation": matrices.rotation(30, (15, 10)),
    "quarter": matrices.rotation(90, (15, 10)),
    "shear": matrices.shear(15, -8, (15, 10)),
    "horizontal flip": matrices.horizontal_flip(30),
    "vertical flip": matrices.vertical_flip(20),
    "crop": matrices.crop_resize(3, 5, 12, 18, (20, 30)),
    "perspective": torch.tensor([[1.1, 0.2, -2], [0.1, 0.9, 1], [0.004, -0.002, 1]]),
}


@pytest.mark.parametrize("name", BUILT)
def test_points_follow_the_pixels(name):
    """A bright blob in the picture is found, after the warp, where transform_points says."""
    m = BUILT[name]
    v, u = torch.meshgrid(torch.arange(20.0) + 0.5, torch.arange(30.0) + 0.5, indexing="ij")
    for point in ((15.0, 10.0), (13.2, 8.7), (17.5, 11.5)):
        blob = torch.exp(-((u - point[0]) ** 2 + (v - point[1]) ** 2) / 2)[None, None]
        moved = ops.warp(blob, m)[0, 0]
        x, y = ops.transform_points(torch.tensor([point]), m)[0].tolist()
        assert 2 < x < 28
        assert 2 < y < 18
        assert math.hypot((moved * u).sum() / moved.sum() - x, (moved * v).sum() / moved.sum() - y) < 0.12


def test_the_names_say_what_happens_to_the_picture():
    point = torch.tensor([[3.0, 5.0]])
    cases = (
        (matrices.translation(2, 1), (5, 6)),
        (matrices.scaling(2, 3), (6, 15)),
        (matrices.scaling(2, 2, (3, 4)), (3, 6)),
        (matrices.rotation(90), (5, -3)),  # counter-clockwise, y down
        (matrices.rotation(180, (3, 3)), (3, 1)),
        (matrices.shear(45, 0), (8, 5)),
        (matrices.shear(0, 45), (3, 8)),
        (matrices.horizontal_flip(10), (7, 5)),
        (matrices.vertical_flip(20), (3, 15)),
        (matrices.crop_resize(1, 2, 8, 4, (16, 8)), (2, 8)),
    )
    for matrix, expected in cases:
        torch.testing.assert_close(ops.transform_points(point, matrix)[0], torch.tensor(expected).float())


def test_composition_runs_from_left_to_right():
    first, second = matrices.scaling(2, 2), matrices.translation(10, 0)
    both = matrices.compose(first, second)
    assert ops.transform_points(torch.tensor([[1.0, 1.0]]), both).tolist() == [[12.0, 2.0]]
    x = torch.rand(1, 1, 8, 8)
    steps = ops.warp(ops.warp(x, first, (16, 16), interpolation="nearest"), second, (16, 30), interpolation="nearest")
    assert torch.equal(ops.warp(x, both, (16, 30), interpolation="nearest"), steps)
    many = matrices.compose(first, matrices.rotation(torch.tensor([0.0, 90.0])), second[:2])
    assert many.shape == (2, 3, 3)


def test_inversion():
    for matrix in BUILT.values():
        product = matrix.double() @ matrices.invert(matrix.double())
        torch.testing.assert_close(product, torch.eye(3, dtype=torch.float64), atol=1e-6, rtol=0)
    assert matrices.invert(torch.eye(3)[None, :2]).shape == (1, 3, 3)
    assert not matrices.invert(torch.zeros(3, 3)).isfinite().any()


def test_builders_take_one_number_a_sample():
    degrees = torch.tensor([0.0, 30.0, -77.0])
    many = matrices.rotation(degrees, (4.0, 5.0))
    assert many.shape == (3, 3, 3)
    assert many.dtype == torch.float32
    for i, d in enumerate(degrees.tolist()):
        assert torch.equal(many[i], matrices.rotation(d, (4.0, 5.0)))
    assert matrices.crop_resize(torch.zeros(4), 0, torch.ones(4) * 8, 8, (4, 4)).shape == (4, 3, 3)


def test_affine_from_three_points():
    """A face: the eyes and the mouth at fixed places of a 112 x 112 crop."""
    src = torch.tensor([[262.0, 324.0], [325.0, 323.0], [295.0, 349.0]])
    dst = torch.tensor([[38.29, 51.69], [73.53, 51.69], [56.02, 71.73]])
    m = ops.affine_from_points(src, dst)
    assert (m.shape, m.dtype) == ((2, 3), torch.float32)
    torch.testing.assert_close(ops.transform_points(src, m), dst, atol=1e-3, rtol=0)
    batch = ops.affine_from_points(torch.stack([src, dst]), torch.stack([dst, src]))
    torch.testing.assert_close(batch[0], m)
    product = matrices.compose(batch[0], batch[1])
    torch.testing.assert_close(product, torch.eye(3), atol=1e-3, rtol=0)


def test_affine_of_more_points_is_the_least_squares_fit():
    rng = np.random.default_rng(0)
    dst, src = rng.normal(size=(9, 2)) * 30, rng.normal(size=(9, 2)) * 30
    expected = np.linalg.lstsq(np.c_[dst, np.ones(9)], src, rcond=None)[0].T
    got = ops.affine_from_points(torch.from_numpy(src), torch.from_numpy(dst))
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-4)


def test_affine_bad_input():
    line = torch.tensor([[0.0, 0], [1, 1], [2, 2]])
    with pytest.raises(ValueError, match="affine_from_points: dst must not lie on one line"):
        ops.affine_from_points(torch.rand(3, 2), line)
    assert ops.affine_from_points(line, torch.tensor([[0.0, 0], [1, 0], [0, 1]])).isfinite().all()
    with pytest.raises(ValueError, match=r"one shape \(P, 2\) or \(N, P, 2\) with P >= 3, got \(2, 2\) and \(2, 2\)"):
        ops.affine_from_points(line[:2], line[:2])
    with pytest.raises(ValueError, match=r"src must be a floating tensor, got torch.int64"):
        ops.affine_from_points(line.long(), line)


def rectangle_mask(box: tuple[int, int, int, int]) -> torch.Tensor:
    mask = torch.zeros(1, 1, 20, 30)
    mask[..., box[1] : box[3], box[0] : box[2]] = 1
    return mask


@pytest.mark.parametrize("name", BUILT)
def test_boxes_hold_the_pixels_of_their_objects(name):
    box = (9, 6, 21, 14)
    pixels = ops.transform_masks(rectangle_mask(box), BUILT[name], (20, 30))[0, 0]
    (moved,), (keep,) = ops.transform_boxes(torch.tensor([box]).float(), BUILT[name], (20, 30))
    rows, columns = torch.nonzero(pixels.any(1)).flatten(), torch.nonzero(pixels.any(0)).flatten()
    found = torch.tensor([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()
    assert keep
    torch.testing.assert_close(
        moved, found, atol=1.0 if name not in ("rotation", "shear", "perspective") else 2.0, rtol=0
    )


def test_boxes_under_exact_moves():
    box = torch.tensor([[2.0, 3.0, 12.0, 8.0]])
    for matrix, size, expected in (
        (matrices.horizontal_flip(30), (20, 30), [18.0, 3, 28, 8]),
        (matrices.vertical_flip(20), (20, 30), [2.0, 12, 12, 17]),
        (torch.tensor([[0.0, -1, 30], [1, 0, 0]]), (30, 20), [3.0, 18, 8, 28]),
        (matrices.crop_resize(4, 6, 10, 15, (20, 30)), (20, 30), [0.0, 0, 12, 8]),
        (matrices.translation(-5, 0), (20, 30), [0.0, 3, 7, 8]),
    ):
        moved, keep = ops.transform_boxes(box, matrix, size)
        torch.testing.assert_close(moved, torch.tensor([expected]), atol=1e-5, rtol=0)
        assert keep.tolist() == [True]


def test_visibility_is_the_share_that_is_left():
    boxes = torch.tensor([[0.0, 0, 10, 10], [10, 0, 20, 10], [40, 0, 50, 10], [3, 3, 3, 9]])
    for min_visibility, visible in ((0.0, (0, 1)), (0.5, (0, 1)), (0.51, (1,)), (1.0, (1,))):
        moved, keep = ops.transform_boxes(boxes, matrices.translation(-5, 0), (20, 20), min_visibility=min_visibility)
        assert tuple(torch.nonzero(keep).flatten().tolist()) == visible
        assert moved.shape == boxes.shape
    unclipped, keep = ops.transform_boxes(boxes, matrices.translation(-5, 0))
    assert unclipped[0].tolist() == [-5, 0, 5, 10]
    assert keep.tolist() == [True, True, True, False]


def test_boxes_behind_a_perspective_camera_are_not_kept():
    horizon = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, -0.1, 1]])  # its inverse sends y = -10 to infinity
    boxes = torch.tensor([[0.0, 0, 5, 5], [0, -20, 5, 5], [0, -30, 5, -20]])
    _, keep = ops.transform_boxes(boxes, horizon)
    assert keep.tolist() == [True, False, True]
    _, keep = ops.transform_boxes(boxes, torch.zeros(3, 3), (10, 10))
    assert not keep.any()


def test_a_matrix_for_each_sample():
    boxes = torch.rand(3, 5, 2).repeat(1, 1, 2) * 10 + torch.tensor([0.0, 0, 4, 4])
    many = matrices.rotation(torch.tensor([0.0, 40.0, 90.0]), (8, 8))
    moved, keep = ops.transform_boxes(boxes, many, (16, 16), min_visibility=0.3)
    points = ops.transform_points(boxes[..., :2], many[:, :2])
    for i in range(3):
        one, one_keep = ops.transform_boxes(boxes[i], many[i], (16, 16), min_visibility=0.3)
        assert torch.equal(moved[i], one)
        assert torch.equal(keep[i], one_keep)
        assert torch.equal(points[i], ops.transform_points(boxes[i, :, :2], many[i]))
    assert ops.transform_boxes(boxes[0].half(), many[0])[0].dtype == torch.float16
    assert ops.transform_boxes(torch.empty(0, 4), many[0])[0].shape == (0, 4)


DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [None, 1, 3])
def test_masks_of_every_type_keep_their_labels(dtype, channels):
    shape = (2, 20, 30) if channels is None else (2, channels, 20, 30)
    labels = torch.tensor([0, 5]) if dtype != torch.int64 else torch.tensor([0, 5 * 2**40 + 7])
    masks = labels[torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0))].to(dtype)
    m = torch.stack([BUILT["rotation"], BUILT["perspective"]])
    moved = ops.transform_masks(masks, m, (17, 23))
    assert (moved.dtype, moved.shape) == (dtype, (*shape[:-2], 17, 23))
    assert set(moved.unique().tolist()) == set(labels.to(dtype).unique().tolist())
    # The same pixels as a nearest warp of a float picture of the labels
    planes = (masks != 0).float().reshape(2, -1, 20, 30)
    expected = ops.warp(planes, m, (17, 23), interpolation="nearest").reshape(moved.shape)
    assert torch.equal((moved != 0).float(), expected)
    assert torch.equal(ops.transform_masks(masks, matrices.horizontal_flip(30)), masks.flip(-1))


def test_masks_are_filled_with_the_ignored_label():
    masks = torch.zeros(1, 4, 4, dtype=torch.int64)
    away = matrices.translation(9, 0)
    assert (ops.transform_masks(masks, away, fill=255) == 255).all()
    assert (ops.transform_masks(masks, away, fill=-100) == -100).all()
    assert (ops.transform_masks(masks, away, fill=255, border="replicate") == 0).all()
    assert ops.transform_masks(masks[:, None].float(), away, fill=0.25).unique().tolist() == [0.25]


MASKS = torch.zeros(1, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.transform_points(torch.zeros(3, 2).long(), torch.eye(3)), "points must be a floating tensor"),
        (
            lambda: ops.transform_points(torch.zeros(3, 3), torch.eye(3)),
            r"points must have shape \(K, 2\) with a matrix",
        ),
        (lambda: ops.transform_points(torch.zeros(3, 2), torch.eye(3)[None]), r"points must have shape \(1, K, 2\)"),
        (lambda: ops.transform_points(torch.zeros(3, 2), torch.eye(2)), r"matrix must have shape \(2, 3\), \(3, 3\)"),
        (lambda: ops.transform_boxes(torch.zeros(3, 5), torch.eye(3)), r"boxes must have shape \(K, 4\)"),
        (
            lambda: ops.transform_boxes(torch.zeros(3, 4), torch.eye(3), min_visibility=2.0),
            "min_visibility must be in 0",
        ),
        (lambda: ops.transform_masks(torch.zeros(3, 4), torch.eye(3)), r"masks must be real and have shape"),
        (lambda: ops.transform_masks(torch.zeros(1, 3, 4), torch.eye(3), border="no"), "border must be one of"),
        (lambda: ops.transform_masks(MASKS, torch.eye(3), (0, 4)), r"output_size must be 1 or more, got \(0, 4\)"),
        (lambda: ops.transform_masks(MASKS[:, :0], torch.eye(3)), r"masks must have a height and a width"),
        (lambda: ops.transform_masks(MASKS, torch.eye(3), fill=300), "fill must be a value of torch.uint8, got 300"),
        (lambda: ops.transform_masks(MASKS, torch.eye(3), fill=-1), "fill must be a value of torch.uint8, got -1"),
        (lambda: ops.transform_masks(MASKS, torch.eye(3), fill=2.5), "fill must be a value of torch.uint8, got 2.5"),
        (lambda: ops.transform_masks(MASKS, torch.eye(3), fill="a"), "fill must be a number, got 'a'"),
        (lambda: ops.transform_boxes(torch.zeros(3, 4), torch.eye(3), 4), "output_size must be two whole .*, got 4"),
        (lambda: ops.transform_boxes(torch.zeros(3, 4), torch.eye(3), (0, 4)), "output_size must be 1 or more"),
        (lambda: ops.transform_boxes(torch.zeros(3, 4), torch.eye(3), min_visibility="1"), "min_visibility must be in"),
        (lambda: matrices.compose(), "compose: matrices must be at least one"),
        (lambda: matrices.invert([1, 2, 3]), "invert: matrix must be a floating tensor, got list"),
    ],
)
def test_bad_input_is_one_line_that_names_the_argument(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
