"""The single ops: that each is its op of a program, with a parameter for all or one a sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as F

from lightning_gpuaug import ops
from tests.ops.test_augment_ops import picture

X = torch.stack([picture(20, 26, seed) for seed in range(3)])
CHANNELS_FIRST = X.permute(0, 3, 1, 2)
FACTORS = torch.tensor([0.4, 1.0, 1.7])


def each(function: object, values: torch.Tensor) -> torch.Tensor:
    """torchvision's function on each image with its value, as NHWC."""
    assert callable(function)
    return torch.stack([function(image, float(v)) for image, v in zip(CHANNELS_FIRST, values, strict=True)]).permute(
        0, 2, 3, 1
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "values"),
    [
        (ops.brightness, F.adjust_brightness, FACTORS),
        (ops.contrast, F.adjust_contrast, FACTORS),
        (ops.saturation, F.adjust_saturation, FACTORS),
        (ops.sharpness, F.adjust_sharpness, FACTORS),
        (ops.hue, F.adjust_hue, torch.tensor([-0.3, 0.0, 0.2])),
        (ops.gamma, F.adjust_gamma, FACTORS),
        (ops.solarize, F.solarize, torch.tensor([0.0, 100.0, 255.0])),
    ],
)
def test_a_value_a_sample_and_one_for_all(ours, theirs, values):
    result = ours(X, values)
    assert int((result.int() - each(theirs, values).int()).abs().max()) <= 1
    for i, value in enumerate(values.tolist()):
        assert torch.equal(ours(X, value)[i], result[i])
    with pytest.raises(
        ValueError, match=rf"{ours.__name__}: \w+ must be a number or have shape \(3,\) on cpu, got shape \(2,\)"
    ):
        ours(X, values[:2])


def test_ops_without_a_value_a_sample():
    for ours, theirs in (
        (ops.invert(X), F.invert(CHANNELS_FIRST)),
        (ops.equalize(X), F.equalize(CHANNELS_FIRST)),
        (ops.autocontrast(X), F.autocontrast(CHANNELS_FIRST)),
        (ops.grayscale(X), F.rgb_to_grayscale(CHANNELS_FIRST, 3)),
        (ops.posterize(X, 3), F.posterize(CHANNELS_FIRST, 3)),
        (ops.gaussian_blur(X, 1.2, 7), F.gaussian_blur(CHANNELS_FIRST, [7, 7], [1.2, 1.2])),
    ):
        assert int((ours.int() - theirs.permute(0, 2, 3, 1).int()).abs().max()) <= 1
        assert ours.is_contiguous()
    raised = X.int() + 40 * (X < 100)
    assert torch.equal(ops.solarize_add(X, 40.0, 100.0), raised.to(torch.uint8))


def test_color_matrix_and_lut():
    swap = torch.tensor([[0.0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    assert torch.equal(ops.color_matrix(X, swap), X.flip(3))
    one_each = swap.expand(3, 3, 4).clone()
    one_each[1] = torch.eye(3, 4)
    assert torch.equal(ops.color_matrix(X, one_each)[1], X[1])
    table = torch.arange(255, -1, -1).to(torch.uint8)
    for shape in ((256,), (3, 256), (3, 3, 256)):
        assert torch.equal(ops.lut(X, table.expand(shape)), 255 - X)
    tables = torch.stack([torch.full((3, 256), i, dtype=torch.uint8) for i in range(3)])
    assert [int(image.unique()) for image in ops.lut(X, tables)] == [0, 1, 2]


def test_erase():
    boxes = torch.tensor([[0, 0, 20, 26], [3, 4, 5, 6], [19, 25, 10, 10]], dtype=torch.int32)
    expected = X.clone()
    color = torch.tensor([7, 255, 128], dtype=torch.uint8)
    expected[0], expected[1, 3:8, 4:10], expected[2, 19:, 25:] = color, color, color
    assert torch.equal(ops.erase(X, boxes, (7, 255, 128)), expected)


def test_mix():
    partner = torch.tensor([2, 1, 0])
    normal = ops.normalize(X)
    shares = torch.tensor([0.25, 0.5, 1.0])
    blend = shares[:, None, None, None] * normal + (1 - shares[:, None, None, None]) * normal.flip(0)
    assert torch.allclose(ops.mix(X, partner, shares), blend, atol=1e-6)
    boxes = torch.tensor([[2, 3, 4, 5]] * 3, dtype=torch.int32)
    cut = normal.clone()
    cut[:, :, 2:6, 3:8] = normal.flip(0)[:, :, 2:6, 3:8]
    assert torch.equal(ops.mix(X, partner, 0.5, boxes), cut)


def test_image_stats():
    histogram, gray = ops.image_stats(X)
    for i in range(3):
        for c in range(3):
            assert torch.equal(histogram[i, c], torch.bincount(X[i, ..., c].flatten(), minlength=256))
        weights = np.array([2989, 5870, 1140])
        assert gray[i] == pytest.approx(float(((X[i].numpy() * weights).sum(-1) // 10000).mean()), rel=1e-6)


def test_bad_values():
    box = torch.zeros(3, 4)
    for call, message in (
        (lambda: ops.posterize(X, 9), r"posterize: bits must be 0\.\.8, got 9"),
        (lambda: ops.gaussian_blur(X, 1.0, 4), r"gaussian_blur: kernel_size must be odd and in 1\.\.63, got 4"),
        (lambda: ops.invert(X.float()), "invert: x must be torch.uint8, got torch.float32"),
        (lambda: ops.color_matrix(X, torch.eye(3)), r"color_matrix: matrix must have shape \(3, 4\) or \(3, 3, 4\)"),
        (lambda: ops.lut(X, torch.zeros(255, dtype=torch.uint8)), r"lut: table must be uint8 of shape \(256,\)"),
        (lambda: ops.erase(X, box), r"erase: boxes must be int32 of shape \(3, 4\), got torch.float32"),
        (lambda: ops.mix(X, torch.zeros(3), 0.5), r"mix: partner must have integers of shape \(3,\) on cpu"),
        (lambda: ops.mix(X, torch.zeros(3, dtype=torch.int64), 0.5, box), "mix: boxes must be int32"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_torch_compile():
    compiled = torch.compile(lambda x, f: ops.sharpness(ops.contrast(x, f), 1.5), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(X, FACTORS), ops.sharpness(ops.contrast(X, FACTORS), 1.5))
