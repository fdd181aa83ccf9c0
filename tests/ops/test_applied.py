"""`augment_matrix`: where the pixels of `augment` come from."""

from __future__ import annotations

import math

import pytest
import torch

from lightning_gpuaug import ops
from lightning_gpuaug.ops.record import Flag, Op, Opcode, Word
from tests.ops.programs import records

H, W = 60, 80
BOTH = Flag.FLIP_HORIZONTAL | Flag.FLIP_VERTICAL
TURN = Op(Opcode.ROTATE, (math.cos(0.4), math.sin(0.4)), "bilinear", "constant")
PROGRAMS = {
    "nothing": (0, []),
    "flip": (Flag.FLIP_HORIZONTAL, []),
    "rotation": (0, [TURN]),
    "both flips, shear, rotation, translation": (
        BOTH,
        [
            Op(Opcode.SHEAR_X, (0.3,), "bilinear", "constant"),
            TURN,
            Op(Opcode.BRIGHTNESS, (1.0,)),
            Op(Opcode.TRANSLATE, (5.5, -3.25), "bilinear", "constant"),
            Op(Opcode.SHEAR_Y, (-0.2,), "bilinear", "constant"),
        ],
    ),
    "affine, perspective": (
        Flag.FLIP_VERTICAL,
        [
            Op(Opcode.AFFINE, (0.9, 0.1, 2.0, -0.2, 1.1, 1.0), "bilinear", "constant"),
            Op(Opcode.PERSPECTIVE, (1.0, 0.05, 1.0, 0.02, 0.95, 2.0, 0.001, 0.0005), "bilinear", "constant"),
        ],
    ),
}


def ramp(height: int, width: int) -> torch.Tensor:
    """(1, height, width, 3) uint8: red is twice the column, green three times the row, blue tells it from the fill."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([2 * x, 3 * y, 0 * x + 255], -1).to(torch.uint8)[None]


def assert_pixels_come_from(result: torch.Tensor, matrix: torch.Tensor, window: tuple[int, int, int, int]) -> None:
    """The place that each pixel of an augmented `ramp` names is the matrix's, as far as it is no fill."""
    top, left, height, width = window
    y, x = torch.meshgrid(*(torch.arange(side) + 0.5 for side in result.shape[2:]), indexing="ij")
    sx, sy, depth = torch.stack([x, y, torch.ones_like(x)], -1).double().matmul(matrix[0].double().T).unbind(-1)
    sx, sy = sx / depth, sy / depth
    seen = result[0, 2] == 255
    seen &= (sx > left + 1) & (sx < left + width - 1) & (sy > top + 1) & (sy < top + height - 1)
    assert seen.sum() > 800
    assert (result[0, 0] / 2 + 0.5 - sx)[seen].abs().max() < 1.3
    assert (result[0, 1] / 3 + 0.5 - sy)[seen].abs().max() < 1.0


@pytest.mark.parametrize("name", PROGRAMS)
def test_of_a_batch(name: str) -> None:
    flags, program = PROGRAMS[name]
    params = records([program], flags=flags)
    result = ops.augment(ramp(H, W), params, dtype=torch.uint8)
    assert_pixels_come_from(result, ops.augment_matrix(params, (H, W)), (0, 0, H, W))


@pytest.mark.parametrize("window", [(0, 0, 0, 0), (7, 11, 45, 62)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_cropped_images(name: str, window: tuple[int, int, int, int]) -> None:
    flags, program = PROGRAMS[name]
    params = records([program], flags=flags)
    params[0, Word.CROP : Word.CROP + 4] = torch.tensor(window, dtype=torch.int32)
    params[0, Word.FLAGS] |= 1 << 12  # bilinear
    image = ramp(H, W)[0]
    result = ops.augment_list([image], params, (70, 66), dtype=torch.uint8)
    matrix = ops.augment_matrix(params, (70, 66), torch.tensor([[H, W]]))
    assert_pixels_come_from(result, matrix, window if window[2] else (0, 0, H, W))


def test_boxes_follow_the_picture() -> None:
    picture = torch.zeros(1, H, W, 3, dtype=torch.uint8)
    picture[0, 10:20, 30:50] = 255
    params = records([[Op(Opcode.TRANSLATE, (4.0, -6.0))]], flags=Flag.FLIP_HORIZONTAL)
    seen = ops.augment(picture, params, dtype=torch.uint8)[0, 0].nonzero()
    (y1, x1), (y2, x2) = seen.amin(0).tolist(), (seen.amax(0) + 1).tolist()
    boxes, keep = ops.transform_boxes(torch.tensor([[[30.0, 10, 50, 20]]]), ops.augment_matrix(params, (H, W)), (H, W))
    assert keep.all()
    assert boxes.tolist() == [[[x1, y1, x2, y2]]]


def test_bad_input_is_one_line_that_names_the_argument() -> None:
    params = records([[TURN]])
    mixed = params.clone()
    mixed[0, Word.CHAINS] = 2
    for call, message in (
        (
            lambda: ops.augment_matrix(params.float(), (H, W)),
            r"params must be torch.int32 \(N, 64\), got torch.float32",
        ),
        (lambda: ops.augment_matrix(params, 5), "output_size must be two whole numbers"),
        (lambda: ops.augment_matrix(params, (H, W), torch.zeros(2, 2).int()), r"sizes must be integers \(1, 2\), got"),
        (lambda: ops.augment_matrix(mixed, (H, W)), "params must not have warps in AugMix chains.*got one in sample 0"),
    ):
        with pytest.raises(ValueError, match=f"^augment_matrix: {message}"):
            call()
    assert ops.augment_matrix(params[:0], (H, W)).shape == (0, 3, 3)
