"""The detection ops without native libraries: plain torch serves them all, with gradients and torch.compile."""

from __future__ import annotations

import pytest
import torch

from lightning_gpuaug import ops
from tests.ops.boxes import random_boxes
from tests.ops.regions import features, random_regions
from tests.ops.test_load import run_python

OPS = ("nms", "nms_padded", "soft_nms_padded", "roi_align", "roi_align_backward", "warp", "warp_backward")

CODE = """
import json, warnings, torch
from lightning_gpuaug import ops
from lightning_gpuaug.compat import orbbec
from lightning_gpuaug.ops import matrices
from tests.ops.boxes import random_boxes
from tests.ops.regions import features, random_regions
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    boxes, scores = random_boxes(90, image=60.0)
    classes = torch.arange(90) % 3
    soft, decayed = ops.soft_nms(boxes, scores, min_score=0.05)
    x = features(2, 3, 12, 14).requires_grad_()
    rois = random_regions(6, 2, width=100, height=90)
    pooled = ops.roi_align(x, rois, 3, 0.125, 2, True)
    warped = ops.warp(x, matrices.rotation(30, (6, 6)), border="reflect")
    (grad,) = torch.autograd.grad(pooled.square().sum() + warped.square().sum(), x)
    double = features(1, 2, 4, 4, dtype=torch.float64).requires_grad_()
    turn = matrices.rotation(30, (2, 2))
    checked = torch.autograd.gradgradcheck(lambda x: ops.warp(x, turn), (double,)) and torch.autograd.gradgradcheck(
        lambda x: ops.roi_align(x, torch.tensor([[0.0, 0, 0, 3, 3]]).double(), 2), (double,))
    compiled = torch.compile(lambda b, s: ops.nms_padded(b, s, 0.5, 9)[0], backend="aot_eager", fullgraph=True)
    same = torch.equal(compiled(boxes, scores), ops.nms_padded(boxes, scores, 0.5, 9)[0])
print(json.dumps({
    "warnings": len([w for w in caught if "plain torch" in str(w.message)]),
    "nms": ops.nms(boxes, scores, 0.5).tolist(), "batched": ops.batched_nms(boxes, scores, classes, 0.5).tolist(),
    "soft": soft.tolist(), "decayed": decayed.tolist(),
    "pooled": pooled.flatten().tolist(), "warped": warped.flatten().tolist(), "grad": grad.flatten().tolist(),
    "checked": checked, "same": same,
    "schemas": [str(getattr(torch.ops.lightning_gpuaug, name).default._schema) for name in OPS],
}))
"""


@pytest.fixture(scope="module")
def fallback(tmp_path_factory) -> dict[str, object]:
    return run_python(f"OPS = {OPS!r}\n{CODE}", tmp_path_factory.mktemp("empty"))


def test_results_are_those_of_the_native_ops(fallback):
    boxes, scores = random_boxes(90, image=60.0)
    assert fallback["nms"] == ops.nms(boxes, scores, 0.5).tolist()
    assert fallback["batched"] == ops.batched_nms(boxes, scores, torch.arange(90) % 3, 0.5).tolist()
    soft, decayed = ops.soft_nms(boxes, scores, min_score=0.05)
    assert fallback["soft"] == soft.tolist()
    assert fallback["decayed"] == pytest.approx(decayed.tolist(), rel=1e-5)
    x = features(2, 3, 12, 14).requires_grad_()
    pooled = ops.roi_align(x, random_regions(6, 2, width=100, height=90), 3, 0.125, 2, True)
    warped = ops.warp(x, ops.matrices.rotation(30, (6, 6)), border="reflect")
    (grad,) = torch.autograd.grad(pooled.square().sum() + warped.square().sum(), x)
    for name, native in (("pooled", pooled), ("warped", warped), ("grad", grad)):
        assert fallback[name] == pytest.approx(native.flatten().tolist(), abs=1e-4)


def test_it_says_so_once_and_keeps_gradients_and_compile(fallback):
    assert fallback["warnings"] == 1
    assert fallback["checked"] is True
    assert fallback["same"] is True


@pytest.mark.skipif(ops.backend("cpu") != "native-cpu", reason="the native CPU library is not built")
def test_schemas_are_those_of_the_library(fallback):
    """They are written twice: in csrc/library.cpp and, for this case, in Python."""
    assert fallback["schemas"] == [str(getattr(torch.ops.lightning_gpuaug, name).default._schema) for name in OPS]
