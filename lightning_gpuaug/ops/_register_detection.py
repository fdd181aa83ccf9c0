"""Complete the detection ops for torch: fallback kernels, fakes for torch.compile, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_gpuaug.ops import _nms_reference
from lightning_gpuaug.ops._box_checks import check_boxes_and_scores, check_classes
from lightning_gpuaug.ops._load import NATIVE
from lightning_gpuaug.ops._nms import nms_of_dynamic_size
from lightning_gpuaug.ops._register import NAMESPACE, note_fallback

# The schemas of csrc/library.cpp, for when that library is not there. A test keeps the two equal.
SCHEMAS = {
    "nms_padded": "nms_padded(Tensor boxes, Tensor scores, Tensor? classes, float iou_threshold, int max_out) "
    "-> (Tensor, Tensor)",
    "soft_nms_padded": "soft_nms_padded(Tensor boxes, Tensor scores, float iou_threshold, int method, float sigma, "
    "float min_score) -> (Tensor, Tensor, Tensor)",
}
# Has no native kernel: it is nms_padded and a wait for the count.
NMS_SCHEMA = "nms(Tensor boxes, Tensor scores, Tensor? classes, float iou_threshold) -> Tensor"


def _nms_padded_fake(
    boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor | None, iou_threshold: float, max_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    check_boxes_and_scores("nms_padded", boxes, scores)
    if classes is not None:
        check_classes("nms_padded", classes, boxes)
    return boxes.new_empty((max_out,), dtype=torch.int64), boxes.new_empty((), dtype=torch.int64)


def _soft_nms_padded_fake(
    boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float, method: int, sigma: float, min_score: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    check_boxes_and_scores("soft_nms", boxes, scores)
    n = boxes.shape[0]
    return (
        boxes.new_empty((n,), dtype=torch.int64),
        boxes.new_empty((n,), dtype=torch.float32),
        boxes.new_empty((), dtype=torch.int64),
    )


def _nms_fake(
    boxes: torch.Tensor, scores: torch.Tensor, classes: torch.Tensor | None, iou_threshold: float
) -> torch.Tensor:
    check_boxes_and_scores("nms", boxes, scores)
    if classes is not None:
        check_classes("nms", classes, boxes)
    kept = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty((kept,), dtype=torch.int64)


def _fallback(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def with_note(first: torch.Tensor, *rest: object) -> object:
        note_fallback(first.device)
        return kernel(first, *rest)

    return with_note


def _register() -> torch.library.Library:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    fallbacks = {
        "nms_padded": _nms_reference.nms_padded,
        "soft_nms_padded": _nms_reference.soft_nms_padded,
    }
    fakes: dict[str, Callable[..., Any]] = {
        "nms_padded": _nms_padded_fake,
        "soft_nms_padded": _soft_nms_padded_fake,
    }
    for name, schema in SCHEMAS.items():
        if NATIVE.cpu is None:
            library.define(schema)  # type: ignore[no-untyped-call]
        # Serves every device without a kernel of its own: the native ones are registered for CPU and CUDA themselves.
        library.impl(name, _fallback(fallbacks[name]), "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{NAMESPACE}::{name}", fakes[name], lib=library)
    library.define(NMS_SCHEMA)  # type: ignore[no-untyped-call]
    library.impl("nms", nms_of_dynamic_size, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::nms", _nms_fake, lib=library)
    return library


LIBRARY = _register()  # kept: the registrations end with this object
