"""Complete the detection ops for torch: fallback kernels, fakes for torch.compile, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_gpuaug.ops import _nms_reference, _roi_align_reference, _warp_reference
from lightning_gpuaug.ops._box_checks import check_boxes_and_scores, check_classes
from lightning_gpuaug.ops._load import NATIVE, require_ops
from lightning_gpuaug.ops._nms import nms_of_dynamic_size
from lightning_gpuaug.ops._register import NAMESPACE, note_fallback
from lightning_gpuaug.ops._roi_align import check_roi_align, is_channels_last
from lightning_gpuaug.ops._warp import check_images

# The schemas of csrc/library.cpp, for when that library is not there. A test keeps the two equal.
SCHEMAS = {
    "nms_padded": "nms_padded(Tensor boxes, Tensor scores, Tensor? classes, float iou_threshold, int max_out) "
    "-> (Tensor, Tensor)",
    "soft_nms_padded": "soft_nms_padded(Tensor boxes, Tensor scores, float iou_threshold, int method, float sigma, "
    "float min_score) -> (Tensor, Tensor, Tensor)",
    "roi_align": "roi_align(Tensor x, Tensor rois, SymInt out_h, SymInt out_w, float spatial_scale, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_align_backward": "roi_align_backward(Tensor grad, Tensor rois, SymInt images, SymInt height, SymInt width, "
    "float spatial_scale, int sampling_ratio, bool aligned, bool channels_last) -> Tensor",
    "warp": "warp(Tensor x, Tensor matrix, SymInt out_h, SymInt out_w, int interpolation, int border, float[] fill, "
    "bool half_pixel) -> Tensor",
    "warp_backward": "warp_backward(Tensor grad, Tensor matrix, SymInt height, SymInt width, int interpolation, "
    "int border, bool half_pixel, bool channels_last) -> Tensor",
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


def _roi_align_fake(
    x: torch.Tensor, rois: torch.Tensor, out_h: int, out_w: int, scale: float, sampling_ratio: int, aligned: bool
) -> torch.Tensor:
    check_roi_align(x, rois, scale)
    return _roi_align_reference.new_regions(x, rois, out_h, out_w)


def _roi_align_backward_fake(
    grad: torch.Tensor,
    rois: torch.Tensor,
    images: int,
    height: int,
    width: int,
    scale: float,
    sampling_ratio: int,
    aligned: bool,
    channels_last: bool,
) -> torch.Tensor:
    check_roi_align(grad, rois, scale, "grad")
    return _roi_align_reference.new_features(grad, images, height, width, channels_last, grad.dtype)


def _roi_align_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, rois, _, _, ctx.scale, ctx.sampling_ratio, ctx.aligned = inputs
    ctx.images, _, ctx.height, ctx.width = x.shape
    ctx.channels_last = is_channels_last(x)
    ctx.save_for_backward(rois)


def _roi_align_grad(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (rois,) = ctx.saved_tensors
    if grad.device.type == "cuda" and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(
            "roi_align: the CUDA gradient has no deterministic implementation, and "
            "torch.use_deterministic_algorithms(True) is set"
        )
    grad_x = torch.ops.lightning_gpuaug.roi_align_backward(
        grad, rois, ctx.images, ctx.height, ctx.width, ctx.scale, ctx.sampling_ratio, ctx.aligned, ctx.channels_last
    )
    return grad_x, None, None, None, None, None, None


def _roi_align_backward_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    grad, rois, _, _, _, ctx.scale, ctx.sampling_ratio, ctx.aligned, _ = inputs
    ctx.out_h, ctx.out_w = grad.shape[2:]
    ctx.save_for_backward(rois)


def _roi_align_backward_grad(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The gradient is linear in what comes in: its own gradient is the forward op."""
    (rois,) = ctx.saved_tensors
    pooled = torch.ops.lightning_gpuaug.roi_align(
        grad, rois, ctx.out_h, ctx.out_w, ctx.scale, ctx.sampling_ratio, ctx.aligned
    )
    return pooled, None, None, None, None, None, None, None, None


def _warp_fake(
    x: torch.Tensor,
    matrix: torch.Tensor,
    out_h: int,
    out_w: int,
    interpolation: int,
    border: int,
    fill: list[float],
    half_pixel: bool,
) -> torch.Tensor:
    check_images("warp", "x", x)
    return _warp_reference.new_images(x, out_h, out_w)


def _warp_backward_fake(
    grad: torch.Tensor,
    matrix: torch.Tensor,
    height: int,
    width: int,
    interpolation: int,
    border: int,
    half_pixel: bool,
    channels_last: bool,
) -> torch.Tensor:
    check_images("warp", "grad", grad)
    return _warp_reference.new_sources(grad, height, width, channels_last)


def _warp_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, matrix, _, _, ctx.interpolation, ctx.border, _, ctx.half_pixel = inputs
    ctx.height, ctx.width = x.shape[2:]
    ctx.channels_last = is_channels_last(x)
    ctx.save_for_backward(matrix)


def _warp_grad(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    (matrix,) = ctx.saved_tensors
    if grad.device.type == "cuda" and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(
            "warp: the CUDA gradient has no deterministic implementation, and "
            "torch.use_deterministic_algorithms(True) is set"
        )
    grad_x = torch.ops.lightning_gpuaug.warp_backward(
        grad, matrix, ctx.height, ctx.width, ctx.interpolation, ctx.border, ctx.half_pixel, ctx.channels_last
    )
    return grad_x, None, None, None, None, None, None, None


def _warp_backward_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    grad, matrix, _, _, ctx.interpolation, ctx.border, ctx.half_pixel, _ = inputs
    ctx.out_h, ctx.out_w = grad.shape[2:]
    ctx.save_for_backward(matrix)


def _warp_backward_grad(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The gradient is linear in what comes in: its own gradient is the forward op without a fill colour."""
    (matrix,) = ctx.saved_tensors
    warped = torch.ops.lightning_gpuaug.warp(
        grad, matrix, ctx.out_h, ctx.out_w, ctx.interpolation, ctx.border, [0.0], ctx.half_pixel
    )
    return warped, None, None, None, None, None, None, None


def _fallback(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def with_note(first: torch.Tensor, *rest: object) -> object:
        note_fallback(first.device)
        return kernel(first, *rest)

    return with_note


def _register() -> torch.library.Library:
    require_ops(NATIVE, SCHEMAS)
    library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
    fallbacks: dict[str, Callable[..., Any]] = {
        "nms_padded": _nms_reference.nms_padded,
        "soft_nms_padded": _nms_reference.soft_nms_padded,
        "roi_align": _roi_align_reference.roi_align,
        "roi_align_backward": _roi_align_reference.roi_align_backward,
        "warp": _warp_reference.warp,
        "warp_backward": _warp_reference.warp_backward,
    }
    fakes: dict[str, Callable[..., Any]] = {
        "nms_padded": _nms_padded_fake,
        "soft_nms_padded": _soft_nms_padded_fake,
        "roi_align": _roi_align_fake,
        "roi_align_backward": _roi_align_backward_fake,
        "warp": _warp_fake,
        "warp_backward": _warp_backward_fake,
    }
    gradients: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "roi_align": (_roi_align_grad, _roi_align_context),
        "roi_align_backward": (_roi_align_backward_grad, _roi_align_backward_context),
        "warp": (_warp_grad, _warp_context),
        "warp_backward": (_warp_backward_grad, _warp_backward_context),
    }
    for name, schema in SCHEMAS.items():
        if NATIVE.cpu is None:
            library.define(schema)  # type: ignore[no-untyped-call]
        # Serves every device without a kernel of its own: the native ones are registered for CPU and CUDA themselves.
        library.impl(name, _fallback(fallbacks[name]), "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{NAMESPACE}::{name}", fakes[name], lib=library)
    for name, (gradient, context) in gradients.items():
        torch.library.register_autograd(f"{NAMESPACE}::{name}", gradient, setup_context=context, lib=library)
    library.define(NMS_SCHEMA)  # type: ignore[no-untyped-call]
    library.impl("nms", nms_of_dynamic_size, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{NAMESPACE}::nms", _nms_fake, lib=library)
    return library


LIBRARY = _register()  # kept: the registrations end with this object
