// warp: what the CPU and the CUDA op share on the host: checks, strides, outputs.
#pragma once

#include <array>
#include <vector>

#include "layout.h"
#include "warp_shape.h"

namespace gpuaug {

inline Strides strides_of(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)}; }

inline void check_warp(const char* name, const Tensor& x, const Tensor& matrix, int64_t out_h, int64_t out_w,
                       int64_t interpolation, int64_t border) {
  constexpr const char* op = "warp";
  check_strided(op, name, x);
  check_strided(op, "matrix", matrix);
  if (x.dim() != 4) fail(op, ": ", name, " must have shape (N, C, H, W), got ", shape_name(x));
  check_dtype(op, "matrix", matrix, ScalarType::Float);
  if (matrix.dim() != 3 || matrix.size(0) != x.size(0) || (matrix.size(1) != 2 && matrix.size(1) != 3) ||
      matrix.size(2) != 3) {
    fail(op, ": matrix must have shape (", x.size(0), ", 2, 3) or (", x.size(0), ", 3, 3), got ", shape_name(matrix));
  }
  check_same_device(op, "matrix", matrix, x);
  constexpr int64_t kLargest = int64_t{1} << 24;  // beyond it float does not tell pixels apart
  for (const int64_t side : {out_h, out_w, x.size(2), x.size(3)}) {
    if (side < 1 || side > kLargest) fail(op, ": sizes must be in 1..2**24, got ", side);
  }
  if (interpolation < 0 || interpolation > 2) fail(op, ": interpolation must be 0, 1 or 2, got ", interpolation);
  if (border < 0 || border > 4) fail(op, ": border must be in 0..4, got ", border);
}

struct WarpCall {
  Tensor x, matrix, out;
  WarpShape shape;
  Interpolation interpolation;
};

inline WarpCall prepare_warp(const Tensor& x, const Tensor& matrix, int64_t out_h, int64_t out_w, int64_t interpolation,
                             int64_t border, const std::vector<double>& fill, bool half_pixel) {
  check_warp("x", x, matrix, out_h, out_w, interpolation, border);
  const int64_t fills = static_cast<int64_t>(fill.size());
  if (fills != 1 && (fills != x.size(1) || fills > kMostFills)) {
    fail("warp: fill must have 1 number or one a channel (", x.size(1), ", at most ", kMostFills, "), got ", fills);
  }
  WarpCall call{x,
                torch::stable::contiguous(matrix),
                empty_images(x.size(0), x.size(1), out_h, out_w, x.scalar_type(), x, is_channels_last(x)),
                {},
                static_cast<Interpolation>(interpolation)};
  call.shape = {x.size(0),
                x.size(1),
                static_cast<int32_t>(out_h),
                static_cast<int32_t>(out_w),
                {static_cast<int32_t>(x.size(2)), static_cast<int32_t>(x.size(3)), static_cast<Border>(border), half_pixel},
                static_cast<int32_t>(3 * matrix.size(1)),
                strides_of(x),
                strides_of(call.out),
                {},
                fills == 1};
  for (int64_t i = 0; i < fills; ++i) call.shape.fill[i] = static_cast<float>(fill[i]);
  return call;
}

struct WarpBackwardCall {
  Tensor grad, matrix, summed;
  WarpShape shape;
  Interpolation interpolation;

  Tensor result() const {
    return summed.scalar_type() == grad.scalar_type() ? summed : torch::stable::to(summed, grad.scalar_type());
  }
};

inline WarpBackwardCall prepare_warp_backward(const Tensor& grad, const Tensor& matrix, int64_t height, int64_t width,
                                              int64_t interpolation, int64_t border, bool half_pixel,
                                              bool channels_last) {
  check_warp("grad", grad, matrix, height, width, interpolation, border);
  const ScalarType sum_type = grad.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  WarpBackwardCall call{grad,
                        torch::stable::contiguous(matrix),
                        empty_images(grad.size(0), grad.size(1), height, width, sum_type, grad, channels_last),
                        {},
                        static_cast<Interpolation>(interpolation)};
  torch::stable::zero_(call.summed);
  call.shape = {grad.size(0),
                grad.size(1),
                static_cast<int32_t>(grad.size(2)),
                static_cast<int32_t>(grad.size(3)),
                {static_cast<int32_t>(height), static_cast<int32_t>(width), static_cast<Border>(border), half_pixel},
                static_cast<int32_t>(3 * matrix.size(1)),
                strides_of(call.summed),
                strides_of(grad),
                {},
                true};
  return call;
}

}  // namespace gpuaug
