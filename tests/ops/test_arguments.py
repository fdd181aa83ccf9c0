"""What no op takes: every argument of every public image op, given something else, is one line that names it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from lightning_gpuaug import ops
from tests.ops.programs import records

N, H, W = 2, 6, 7
X = torch.arange(N * H * W * 3, dtype=torch.uint8).view(N, H, W, 3)
SIZES = torch.tensor([[H, W]] * N, dtype=torch.int32)
BOXES = torch.tensor([[0, 0, 3, 3]] * N, dtype=torch.int32)
HALF = (0.5, 0.5, 0.5)
PACKED = {"data": X.flatten(), "offsets": torch.tensor([0, H * W * 3]), "sizes": SIZES}
RECORDS = {"params": records([[]] * N)}
OUTPUT = {"mean": HALF, "std": HALF, "dtype": torch.float16, "channels_last": False}
RAGGED = RECORDS | {"size": (4, 5)} | OUTPUT | {"chains": 1, "mix": False}
PIXELS = {"x": X}

# Each op with arguments that it takes.
GOOD: dict[str, dict[str, object]] = {
    "augment": PIXELS | RECORDS | OUTPUT | {"chains": 1},
    "augment_packed": PACKED | RAGGED,
    "augment_list": {"images": [*X]} | RAGGED,
    "augment_matrix": RECORDS | {"output_size": (4, 5), "sizes": SIZES},
    "check_records": RECORDS | {"height": H, "width": W, "chains": 1},
    "resize_packed": PACKED | {"size": (4, 5), "flip": torch.ones(N, dtype=torch.bool), "interpolation": "bicubic"}
    | OUTPUT | {"antialias": False},
    "normalize": PIXELS | OUTPUT | {"flip": torch.ones(N, dtype=torch.bool)},
    "resized_crop": PIXELS | {"boxes": BOXES, "size": (4, 5), "interpolation": "nearest", "antialias": False}
    | {"flip": torch.tensor([True, False])},
    "brightness": PIXELS | {"factor": 0.5},
    "contrast": PIXELS | {"factor": 0.5, "pil": True},
    "saturation": PIXELS | {"factor": 0.5, "pil": True},
    "hue": PIXELS | {"turn": 0.25},
    "posterize": PIXELS | {"bits": 4},
    "solarize": PIXELS | {"threshold": 99.5},
    "solarize_add": PIXELS | {"added": 30.0, "threshold": 99.5},
    "invert": PIXELS,
    "gamma": PIXELS | {"exponent": 2.0, "gain": 1.5},
    "equalize": PIXELS,
    "autocontrast": PIXELS,
    "sharpness": PIXELS | {"factor": 1.5},
    "grayscale": PIXELS | {"pil": True},
    "gaussian_blur": PIXELS | {"sigma": 1.5, "kernel_size": 5},
    "color_matrix": PIXELS | {"matrix": torch.eye(3, 4)},
    "lut": PIXELS | {"table": torch.arange(256, dtype=torch.uint8)},
    "erase": PIXELS | {"boxes": BOXES, "value": (0.0, 255.0, 7.0)},
    "mix": PIXELS | {"partner": torch.tensor([1, 0]), "share": 0.5, "boxes": BOXES} | OUTPUT,
    "image_stats": PIXELS,
    "warp": {"x": X.permute(0, 3, 1, 2), "matrix": torch.eye(3), "output_size": (4, 5), "interpolation": "nearest",
             "border": "pil", "fill": 3.0, "centre": "half"},
}  # fmt: skip

NUMBERS = ["factor", "turn", "threshold", "added", "exponent", "gain", "sigma", "share"]
# What no argument of a name takes, beside what nothing takes.
BAD: dict[str, list[object]] = {
    "x": [X.int(), X[..., :1].long(), X[0].int(), X.to_sparse(), X.numpy(), X.tolist(), 3],
    "data": [X, X.flatten().int(), X.flatten().numpy(), X.flatten().to_sparse()],
    "offsets": [torch.zeros(N), torch.zeros(N, 1).long(), np.zeros(N, np.int64), [0, 1],
                torch.zeros(N).long().to("meta")],
    "sizes": [SIZES.float(), SIZES[:1], SIZES.numpy(), SIZES.tolist(), SIZES.to("meta"),
              0 * SIZES, -SIZES, 2**20 * SIZES],
    "params": [torch.zeros(N, 64), torch.zeros(N, 63).int(), torch.zeros(N, 64).int(), RECORDS["params"].long(),
               RECORDS["params"].numpy(), RECORDS["params"].to_sparse()],
    "images": [X, X.numpy(), [X.numpy()[0]] * 2, [X[0], None], [X[0], X[1].float()], [X[0], X[1].to("meta")],
               [X[0], X[1][:0]], [X[0], X[1].to_sparse()], "ab", 7],
    "size": [4, (4,), (4, 5, 6), (0, 4), (4, -5), (4, 2**40), (4.0, 5.0), ("4", "5"), (True, 5), (4, math.nan)],
    "mean": [0.5, (0.5, 0.5), ("a", "b", "c"), (None, 0, 0), (True, 0, 0), (math.nan, 0, 0), (0, math.inf, 0), 10**400,
             (0, 0, 10**400), {0.1, 0.2, 0.3}, np.zeros((3, 1)), torch.zeros(3, 1), b"abc",
             torch.zeros(3, device="meta")],
    "std": [0.5, (0.0, 1.0, 1.0), (1.0, 1.0, -1.0), ("a", "b", "c"), (math.nan, 1, 1), np.ones(4)],
    "dtype": [torch.float64, torch.int8, "float16", np.float32, 0, torch.zeros(3, 4), None],
    "channels_last": [0, 1, None, "yes", torch.tensor(True), np.ones(2)],
    "chains": [5, -1, True, 1.0, None, "1", 10**400, np.ones(2), torch.ones(2)],
    "output_size": [4, (4,), (0, 4), (4.0, 5.0), (True, 5), np.ones(2)],
    "height": [-1, True, 6.0, "6", None, 10**400],
    "interpolation": ["cubic", "", 1, None, ["nearest"], np.ones(2)],
    "flip": [torch.zeros(N), torch.zeros(N + 1, dtype=torch.bool), [True, False], True, np.ones(N, bool)],
    "boxes": [BOXES.long(), BOXES[:1], BOXES.numpy(), BOXES.tolist(), BOXES.to("meta"), BOXES - 9 * BOXES],
    "bits": [9, -1, True, 4.0, None, "4", torch.ones(N)],
    "kernel_size": [4, 0, -1, 65, True, 5.0, None, "5"],
    "matrix": [torch.eye(4), np.eye(3, 4), torch.eye(3, 4, dtype=torch.complex64), [[1.0]]],
    "table": [torch.zeros(255, dtype=torch.uint8), torch.zeros(256), np.zeros(256, np.uint8), list(range(256))],
    "value": [0.0, (0.0, 0.0), (0, 0, 256), (-1, 0, 0), (math.nan, 0, 0), ("a", 0, 0), (None, 0, 0), b"abc"],
    "partner": [torch.zeros(N), torch.zeros(N, dtype=torch.bool), torch.zeros(N, dtype=torch.complex64), [1, 0],
                np.zeros(N, np.int64), torch.zeros(N + 1).long(), torch.zeros(N).long().to("meta")],
    "border": ["wrap", 0, None, np.ones(2)],
    "fill": ["black", None, ("a",), np.ones((2, 2)), (1.0, 2.0), {1.0}],
}  # fmt: skip
BAD |= {"std": [*BAD["mean"], *BAD["std"]], "width": BAD["height"], "centre": BAD["border"]}
BAD |= dict.fromkeys(("mix", "antialias", "pil"), BAD["channels_last"])
for _name in NUMBERS:
    BAD[_name] = [math.nan, math.inf, -math.inf, 1e39, 10**400, True, None, "1", b"1", 1j, (1.0,),
                  np.ones(N), np.array(True),
                  torch.ones(N + 1), torch.ones(N, dtype=torch.bool), torch.ones(N, dtype=torch.complex64),
                  torch.tensor([0.25, math.nan]), torch.tensor([0.25, 1e39], dtype=torch.float64),
                  torch.ones(N, device="meta"), torch.ones(N).to_sparse()]  # fmt: skip

OUT_OF_RANGE: list[tuple[str, str, object]] = [
    *((op, "factor", -0.1) for op in ("brightness", "contrast", "saturation", "sharpness")),
    *((op, "factor", torch.tensor([1, -1])) for op in ("brightness", "contrast", "saturation", "sharpness")),
    *(("hue", "turn", t) for t in (0.51, -0.51, torch.tensor([0.0, 0.6]))),
    *(("gamma", name, v) for name in ("exponent", "gain") for v in (-0.1, torch.tensor([1.0, -1.0]))),
    *(("gaussian_blur", "sigma", s) for s in (0, -1.0, 1001.0, torch.tensor([1.0, 0.0]))),
    *(("mix", "share", s) for s in (-0.01, 1.01, torch.tensor([0.5, 1.5]))),
    ("color_matrix", "matrix", torch.full((3, 4), math.nan)),
    ("warp", "matrix", torch.eye(3).int()),
]  # fmt: skip


def assert_refused(op: str, name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{op}: ") as error:
        getattr(ops, op)(**GOOD[op] | {name: value})
    message = str(error.value)
    said = "crop window|record version" if name == "params" else "sizes" if name == "offsets" else name
    assert any(word in message for word in (name, *said.split("|"))), message
    assert len(message.splitlines()) == 1, message
    assert len(message) < 300, message


@pytest.mark.parametrize("op", GOOD)
def test_what_an_argument_does_not_take_is_one_line_that_names_it(op: str) -> None:
    getattr(ops, op)(**GOOD[op])
    for name in GOOD[op]:
        for value in BAD[name]:
            assert_refused(op, name, value)


@pytest.mark.parametrize(("op", "name", "value"), OUT_OF_RANGE)
def test_a_number_out_of_its_range_is_refused(op: str, name: str, value: object) -> None:
    assert_refused(op, name, value)


# Arguments that tell of samples, without any.
NO_SAMPLES = {
    "images": [], "data": X.flatten()[:0], **{name: GOOD["mix"][name][:0] for name in ("x", "partner", "boxes")},
    "offsets": PACKED["offsets"][:0], "sizes": SIZES[:0], "params": RECORDS["params"][:0],
    "flip": torch.ones(0, dtype=torch.bool),
}  # fmt: skip


@pytest.mark.parametrize("op", [op for op in GOOD if op != "check_records"])
def test_an_empty_batch_gives_an_empty_result(op: str) -> None:
    arguments = GOOD[op] | {name: value for name, value in NO_SAMPLES.items() if name in GOOD[op]}
    if op == "warp":
        arguments["x"] = GOOD["warp"]["x"][:0]
    expected, result = getattr(ops, op)(**GOOD[op]), getattr(ops, op)(**arguments)
    for some, none in zip(*((r if isinstance(r, tuple) else (r,)) for r in (expected, result)), strict=True):
        assert none.shape == (0, *some.shape[1:])
        assert none.dtype == some.dtype


@pytest.mark.parametrize("op", [op for op in GOOD if "x" in GOOD[op]])
def test_inputs_of_any_strides(op: str) -> None:
    arguments = GOOD[op]
    wide = torch.stack([arguments["x"], arguments["x"]], -1).flatten(-2)[..., ::2]
    assert not wide.is_contiguous()
    expected, result = getattr(ops, op)(**arguments), getattr(ops, op)(**arguments | {"x": wide})
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (expected, result)), strict=True):
        assert torch.equal(one, other)


def test_every_public_op_on_images_is_here() -> None:
    """Whoever adds an op adds it here, or to the tests of its kind."""
    elsewhere = (
        "affine_from_points backend batched_nms build_info crc32c file_states image_sizes image_sizes_packed "
        "matrices nms nms_padded random_crops read_ranges roi_align soft_nms transform_boxes transform_masks "
        "transform_points uniforms"
    )
    assert set(GOOD) == set(ops.__all__) - set(elsewhere.split())
    assert {name for arguments in GOOD.values() for name in arguments} <= set(BAD)


def test_numbers_come_as_numpy_and_torch_have_them() -> None:
    for mean, std in itertools.product((np.full(3, 0.5, np.float32), torch.full((3,), 0.5), [0.5] * 3), repeat=2):
        assert torch.equal(ops.normalize(X, mean, std), ops.normalize(X, HALF, HALF))
        assert torch.equal(ops.resize_packed(**PACKED, size=(4, 4), mean=mean, std=std),
                           ops.resize_packed(**PACKED, size=(4, 4), mean=HALF, std=HALF))  # fmt: skip
    assert torch.equal(ops.brightness(X, np.float32(0.5)), ops.brightness(X, 0.5))
    assert torch.equal(ops.posterize(X, np.int64(3)), ops.posterize(X, 3))
    whole = X.permute(0, 3, 1, 2)
    assert torch.equal(ops.warp(whole, torch.eye(3), fill=np.int64(3)), ops.warp(whole, torch.eye(3), fill=3.0))


def test_rectangles_are_clipped_not_moved() -> None:
    box = torch.tensor([[-2, -1, 4, 3], [4, 5, 100, 2**31 - 1]], dtype=torch.int32)
    erased = X.clone()
    erased[0, :2, :2], erased[1, 4:, 5:] = 200, 200
    assert torch.equal(ops.erase(X, box, (200, 200, 200)), erased)
    cut = X.clone()
    cut[0, :2, :2], cut[1, 4:, 5:] = X[1, :2, :2], X[0, 4:, 5:]
    mixed = ops.mix(X, torch.tensor([1, 0]), 0.5, box, dtype=torch.uint8)
    assert torch.equal(mixed.permute(0, 2, 3, 1), cut)


def test_a_partner_beyond_32_bits_is_none() -> None:
    partner = torch.tensor([2**32 + 1, -(2**32)])
    assert torch.equal(ops.mix(X, partner, 0.5, dtype=torch.uint8).permute(0, 2, 3, 1), X)
