// What a warp does, without its tensors: sizes, strides, sampling rule, fill.
#pragma once

#include "sample.h"

namespace gpuaug {

constexpr int kMostFills = 32;

struct Strides {
  int64_t n, c, y, x;
};

struct WarpShape {
  int64_t samples, channels;
  int32_t out_h, out_w;
  SamplingRule rule;
  int32_t matrix_size;  // 6 or 9 numbers a sample
  Strides in, out;      // of the source and of the result, or of their gradients
  float fill[kMostFills];
  bool one_fill;

  GPUAUG_HOST_DEVICE float fill_of(int64_t channel) const { return fill[one_fill ? 0 : channel]; }
};

}  // namespace gpuaug
