// nms_padded and soft_nms_padded: what the CPU and the CUDA ops share on the host: checks, score order, outputs.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "box.h"
#include "check.h"

namespace gpuaug {

inline bool is_narrow_float(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::Half || type == ScalarType::BFloat16;
}

inline void check_boxes_and_scores(const char* op, const Tensor& boxes, const Tensor& scores) {
  check_strided(op, "boxes", boxes);
  check_strided(op, "scores", scores);
  for (const auto& [name, t] : {std::pair<const char*, const Tensor&>{"boxes", boxes}, {"scores", scores}}) {
    if (!is_narrow_float(t.scalar_type())) {
      fail(op, ": ", name, " must be torch.float32, torch.float16 or torch.bfloat16, got ", dtype_name(t.scalar_type()));
    }
  }
  if (boxes.dim() != 2 || boxes.size(1) != 4) fail(op, ": boxes must have shape (N, 4), got ", shape_name(boxes));
  if (scores.dim() != 1 || scores.size(0) != boxes.size(0)) {
    fail(op, ": scores must have shape (", boxes.size(0), ",), one value a box, got ", shape_name(scores));
  }
  check_same_device(op, "scores", scores, boxes);
  if (boxes.size(0) > INT32_MAX - 1024) fail(op, ": boxes must be fewer than 2**31 - 1024, got ", boxes.size(0));
}

inline Tensor as_dense_float(const Tensor& t) {
  return torch::stable::contiguous(t.scalar_type() == ScalarType::Float ? t : torch::stable::to(t, ScalarType::Float));
}

// Descending scores and where they were; equal scores keep their order.
inline std::array<Tensor, 2> sort_scores(const Tensor& scores) {
  std::array<StableIValue, 4> stack{torch::stable::detail::from(scores),
                                    torch::stable::detail::from(std::optional<bool>(true)),
                                    torch::stable::detail::from(int64_t{0}), torch::stable::detail::from(true)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::sort", "stable", stack.data(), TORCH_ABI_VERSION));
  return {torch::stable::detail::to<Tensor>(stack[0]), torch::stable::detail::to<Tensor>(stack[1])};
}

struct NmsCall {
  Tensor boxes;                  // float (N, 4), contiguous
  Tensor scores;                 // float (N,), descending
  Tensor order;                  // int64 (N,): the box of each score
  std::optional<Tensor> classes; // int64 (N,), contiguous, in the order of boxes
  int64_t count, max_out;
  IouThreshold threshold;
  Tensor indices;                // int64 (max_out,): out
  Tensor kept;                   // int64 (): out, -1 where a box or a score is NaN
};

inline NmsCall prepare_nms(const Tensor& boxes, const Tensor& scores, const std::optional<Tensor>& classes,
                           double iou_threshold, int64_t max_out) {
  constexpr const char* op = "nms";
  check_boxes_and_scores(op, boxes, scores);
  if (classes) {
    check_strided(op, "classes", *classes);
    check_dtype(op, "classes", *classes, ScalarType::Long);
    if (classes->dim() != 1 || classes->size(0) != boxes.size(0)) {
      fail(op, ": classes must have shape (", boxes.size(0), ",), one value a box, got ", shape_name(*classes));
    }
    check_same_device(op, "classes", *classes, boxes);
  }
  if (!(iou_threshold >= 0 && iou_threshold <= 1)) fail(op, ": iou_threshold must be in 0..1, got ", iou_threshold);
  if (max_out < 0) fail(op, ": max_out must be 0 or more, got ", max_out);
  const auto [sorted, order] = sort_scores(as_dense_float(scores));
  std::optional<Tensor> dense_classes;
  if (classes) dense_classes = torch::stable::contiguous(*classes);
  const std::array<int64_t, 1> length{max_out};
  const torch::headeronly::IntHeaderOnlyArrayRef scalar;
  return {as_dense_float(boxes),
          sorted,
          order,
          dense_classes,
          boxes.size(0),
          max_out,
          IouThreshold(iou_threshold),
          torch::stable::empty({length.data(), 1}, ScalarType::Long, std::nullopt, boxes.device()),
          torch::stable::empty(scalar, ScalarType::Long, std::nullopt, boxes.device())};
}

struct SoftNmsCall {
  Tensor boxes;    // float (N, 4), contiguous
  Tensor scores;   // float (N,), a copy that the op may change
  int64_t count;
  SoftRule rule;
  Tensor indices;         // int64 (N,): out
  Tensor decayed_scores;  // float (N,): out
  Tensor kept;            // int64 (): out, -1 where a box or a score is NaN
};

inline SoftNmsCall prepare_soft_nms(const Tensor& boxes, const Tensor& scores, double iou_threshold, int64_t method,
                                    double sigma, double min_score) {
  constexpr const char* op = "soft_nms";
  check_boxes_and_scores(op, boxes, scores);
  if (!(iou_threshold >= 0 && iou_threshold <= 1)) fail(op, ": iou_threshold must be in 0..1, got ", iou_threshold);
  if (method != 0 && method != 1) fail(op, ": method must be 0 (linear) or 1 (gaussian), got ", method);
  if (!(sigma > 0) || !std::isfinite(sigma)) fail(op, ": sigma must be finite and above 0, got ", sigma);
  if (std::isnan(min_score)) fail(op, ": min_score must not be NaN");
  const std::array<int64_t, 1> length{boxes.size(0)};
  const torch::headeronly::IntHeaderOnlyArrayRef scalar;
  const Tensor dense_scores = as_dense_float(scores);
  return {as_dense_float(boxes),
          torch::stable::clone(dense_scores),
          boxes.size(0),
          {static_cast<SoftMethod>(method), static_cast<float>(iou_threshold), static_cast<float>(sigma),
           static_cast<float>(min_score)},
          torch::stable::empty({length.data(), 1}, ScalarType::Long, std::nullopt, boxes.device()),
          torch::stable::empty({length.data(), 1}, ScalarType::Float, std::nullopt, boxes.device()),
          torch::stable::empty(scalar, ScalarType::Long, std::nullopt, boxes.device())};
}

}  // namespace gpuaug
