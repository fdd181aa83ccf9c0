// The crop window and the filter that a record asks for. The resampling itself is resample.h's.
#pragma once

#include "record.h"
#include "resample.h"

namespace gpuaug {

// Any words are safe: the window always lies in an image of at least one pixel.
struct Window {
  int top, left, height, width;
};

GPUAUG_HOST_DEVICE Window window_of(const int32_t* record, int height, int width) {
  if (!has_version(record) || record[kWordCrop + 2] <= 0 || record[kWordCrop + 3] <= 0) return {0, 0, height, width};
  Window w;
  w.top = clamp_int(record[kWordCrop], 0, height - 1);
  w.left = clamp_int(record[kWordCrop + 1], 0, width - 1);
  w.height = clamp_int(record[kWordCrop + 2], 1, height - w.top);
  w.width = clamp_int(record[kWordCrop + 3], 1, width - w.left);
  return w;
}

struct Filter {
  Interpolation interpolation;
  bool antialias;
};

GPUAUG_HOST_DEVICE Filter filter_of(const int32_t* record) {
  const int32_t flags = has_version(record) ? record[kWordFlags] : 0;
  return {static_cast<Interpolation>(clamp_int((flags >> kCropFilterShift) & 3, 0, 2)), (flags & kFlagAntialias) != 0};
}

// Most taps of an output position.
GPUAUG_HOST_DEVICE int most_taps(const Axis& axis) { return static_cast<int>(ceilf(2.0f * axis.support)) + 1; }

}  // namespace gpuaug
