// The geometry of a region: the only definition of it, compiled for the host and for the device.
//
// He et al., "Mask R-CNN" (2017): each bin is the mean of a grid of bilinear samples, with torchvision's rules.
#pragma once

#include <cmath>
#include <cstdint>

#include "pixel.h"

namespace gpuaug {

// One sample along one axis: two neighbours and their weights.
template <typename T>
struct AxisTap {
  int32_t low, high;
  T low_weight, high_weight;
};

// False where the sample is more than a pixel outside (or NaN): it counts as 0.
template <typename T>
GPUAUG_HOST_DEVICE bool axis_tap(T at, int32_t size, AxisTap<T>& tap) {
  if (!(at >= T(-1) && at <= T(size))) return false;
  if (at < T(0)) at = T(0);
  tap.low = static_cast<int32_t>(at);
  if (tap.low >= size - 1) {
    tap.low = tap.high = size - 1;
    at = T(tap.low);
  } else {
    tap.high = tap.low + 1;
  }
  tap.high_weight = at - T(tap.low);
  tap.low_weight = T(1) - tap.high_weight;
  return true;
}

struct RoiOptions {
  int32_t out_h, out_w;
  double scale;
  int32_t sampling_ratio;  // 0: adaptive
  bool aligned;
};

// The samples of one axis of a region: bins of `grid` samples each.
template <typename T>
struct RoiAxis {
  T start, bin;
  int32_t grid;

  GPUAUG_HOST_DEVICE T sample(int32_t b, int32_t i) const {
    return start + T(b) * bin + (T(i) + T(0.5)) * bin / T(grid);
  }

  // The samples of a bin that can lie inside `size` pixels: all, or a part of a very long bin.
  GPUAUG_HOST_DEVICE void range(int32_t b, int32_t size, int32_t& begin, int32_t& end) const {
    begin = 0;
    end = grid;
    if (grid <= 64 || !(bin > T(0))) return;
    const T step = bin / T(grid), first = start + T(b) * bin;
    const T low = (T(-1) - first) / step - T(2), high = (T(size) - first) / step + T(2);
    if (low > T(0)) begin = low < T(grid) ? static_cast<int32_t>(low) : grid;
    if (high < T(grid)) end = high > T(0) ? static_cast<int32_t>(high) : 0;
  }
};

// The pixels of a bin of at most two samples along one axis, each once; a weight of 0 is no pixel.
template <typename T>
struct MergedTaps {
  int32_t at[4] = {0, 0, 0, 0};
  T weight[4] = {0, 0, 0, 0};

  GPUAUG_HOST_DEVICE MergedTaps(const RoiAxis<T>& axis, int32_t b, int32_t size) {
    AxisTap<T> tap;
    bool first = false;
    if (axis.grid > 0 && axis_tap(axis.sample(b, 0), size, tap)) {
      at[0] = tap.low, weight[0] = tap.low_weight;
      at[1] = tap.high, weight[1] = tap.high_weight;
      first = true;
    }
    if (axis.grid > 1 && axis_tap(axis.sample(b, 1), size, tap)) {
      if (first && tap.low == at[0]) {
        weight[0] += tap.low_weight;
      } else if (first && tap.low == at[1]) {
        weight[1] += tap.low_weight;
      } else {
        at[2] = tap.low, weight[2] = tap.low_weight;
      }
      if (first && tap.high == at[0]) {
        weight[0] += tap.high_weight;
      } else if (first && tap.high == at[1]) {
        weight[1] += tap.high_weight;
      } else {
        at[3] = tap.high, weight[3] = tap.high_weight;
      }
    }
  }
};

template <typename T>
struct Roi {
  RoiAxis<T> y, x;
  T mean_factor;  // 1 / samples of a bin
  int64_t batch;
  bool good;  // finite, and its image exists
};

template <typename T>
GPUAUG_HOST_DEVICE RoiAxis<T> roi_axis(T low, T high, int32_t bins, const RoiOptions& options) {
  const T offset = options.aligned ? T(0.5) : T(0);
  const T scale = static_cast<T>(options.scale);
  const T start = low * scale - offset;
  T length = (high * scale - offset) - start;
  if (!options.aligned && length < T(1)) length = T(1);
  RoiAxis<T> axis;
  axis.start = start;
  axis.bin = length / T(bins);
  T grid = options.sampling_ratio > 0 ? T(options.sampling_ratio) : static_cast<T>(ceil(axis.bin));
  if (!(grid < T(1 << 30))) grid = T(1 << 30);
  axis.grid = grid > T(0) ? static_cast<int32_t>(grid) : 0;
  return axis;
}

// values: image, x1, y1, x2, y2
template <typename T>
GPUAUG_HOST_DEVICE Roi<T> make_roi(const T* values, int64_t images, const RoiOptions& options) {
  Roi<T> roi;
  roi.good = values[0] >= T(0) && values[0] < T(images);
  for (int i = 1; i < 5; ++i) roi.good = roi.good && values[i] - values[i] == T(0);
  roi.batch = roi.good ? static_cast<int64_t>(values[0]) : 0;
  roi.x = roi_axis(values[1], values[3], options.out_w, options);
  roi.y = roi_axis(values[2], values[4], options.out_h, options);
  const T samples = T(roi.x.grid) * T(roi.y.grid);
  roi.mean_factor = T(1) / (samples > T(1) ? samples : T(1));
  return roi;
}

}  // namespace gpuaug
