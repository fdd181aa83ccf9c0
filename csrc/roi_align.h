// roi_align: what the CPU and the CUDA op share on the host: checks, layouts, outputs.
#pragma once

#include <cmath>
#include <cstdint>

#include "layout.h"
#include "roi.h"

namespace gpuaug {

inline ScalarType roi_type(ScalarType type) {
  return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

inline void check_floating(const char* op, const char* argument, const Tensor& t) {
  const ScalarType type = t.scalar_type();
  if (type != ScalarType::Float && type != ScalarType::Half && type != ScalarType::BFloat16 &&
      type != ScalarType::Double) {
    fail(op, ": ", argument, " must be a floating tensor, got ", dtype_name(type));
  }
}

inline RoiOptions checked_roi_options(const Tensor& x, const char* name, const Tensor& rois, int64_t out_h, int64_t out_w,
                                      double scale, int64_t sampling_ratio, bool aligned) {
  constexpr const char* op = "roi_align";
  check_strided(op, name, x);
  check_strided(op, "rois", rois);
  check_floating(op, name, x);
  check_floating(op, "rois", rois);
  if (x.dim() != 4) fail(op, ": ", name, " must have shape (N, C, H, W), got ", shape_name(x));
  if (rois.dim() != 2 || rois.size(1) != 5) fail(op, ": rois must have shape (K, 5), got ", shape_name(rois));
  check_same_device(op, "rois", rois, x);
  if (out_h < 1 || out_w < 1 || out_h > 32768 || out_w > 32768) {
    fail(op, ": output_size must be in 1..32768, got (", out_h, ", ", out_w, ")");
  }
  if (!(scale > 0) || !std::isfinite(scale)) fail(op, ": spatial_scale must be finite and above 0, got ", scale);
  if (sampling_ratio > 4096) fail(op, ": sampling_ratio must be at most 4096, got ", sampling_ratio);
  return {static_cast<int32_t>(out_h), static_cast<int32_t>(out_w), scale,
          static_cast<int32_t>(sampling_ratio > 0 ? sampling_ratio : 0), aligned};
}

struct RoiAlignCall {
  Tensor x;     // contiguous or channels_last
  Tensor rois;  // (K, 5), contiguous, float (double for a double x)
  Tensor out;   // (K, C, out_h, out_w), in the format of x
  int64_t count, images, channels;
  int32_t height, width;
  bool channels_last;
  RoiOptions options;
};

inline int32_t checked_side(const char* argument, int64_t side) {
  if (side < 1 || side > (1 << 24)) fail("roi_align: ", argument, " must have H and W in 1..2**24, got ", side);
  return static_cast<int32_t>(side);
}

inline RoiAlignCall prepare_roi_align(const Tensor& x, const Tensor& rois, int64_t out_h, int64_t out_w, double scale,
                                      int64_t sampling_ratio, bool aligned) {
  const RoiOptions options = checked_roi_options(x, "x", rois, out_h, out_w, scale, sampling_ratio, aligned);
  const bool channels_last = is_channels_last(x);
  return {in_format(x, channels_last),
          torch::stable::contiguous(torch::stable::to(rois, roi_type(x.scalar_type()))),
          empty_images(rois.size(0), x.size(1), out_h, out_w, x.scalar_type(), x, channels_last),
          rois.size(0),
          x.size(0),
          x.size(1),
          checked_side("x", x.size(2)),
          checked_side("x", x.size(3)),
          channels_last,
          options};
}

struct RoiAlignBackwardCall {
  Tensor grad;    // (K, C, out_h, out_w), contiguous or channels_last
  Tensor rois;    // as above
  Tensor summed;  // (N, C, H, W) of zeros, in the type of sums
  int64_t count, images, channels;
  int32_t height, width;
  bool channels_last;
  RoiOptions options;

  Tensor result() const {
    return summed.scalar_type() == grad.scalar_type() ? summed : torch::stable::to(summed, grad.scalar_type());
  }
};

inline RoiAlignBackwardCall prepare_roi_align_backward(const Tensor& grad, const Tensor& rois, int64_t images,
                                                       int64_t height, int64_t width, double scale,
                                                       int64_t sampling_ratio, bool aligned, bool channels_last) {
  const RoiOptions options = checked_roi_options(grad, "grad", rois, grad.dim() == 4 ? grad.size(2) : 1,
                                                 grad.dim() == 4 ? grad.size(3) : 1, scale, sampling_ratio, aligned);
  if (grad.size(0) != rois.size(0)) {
    fail("roi_align: grad must have ", rois.size(0), " regions, got ", grad.size(0));
  }
  Tensor summed =
      empty_images(images, grad.size(1), height, width, roi_type(grad.scalar_type()), grad, channels_last);
  torch::stable::zero_(summed);
  return {in_format(grad, channels_last),
          torch::stable::contiguous(torch::stable::to(rois, roi_type(grad.scalar_type()))),
          summed,
          rois.size(0),
          images,
          grad.size(1),
          checked_side("the input", height),
          checked_side("the input", width),
          channels_last,
          options};
}

}  // namespace gpuaug
