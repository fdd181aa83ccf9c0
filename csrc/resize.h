// Crop and resize: separable filters with integer weights, in Pillow's two steps (rows, rounded to uint8, then columns).
//
// Antialiased, the filter widens with the shrinking, and taps outside the crop window are left out: crop, then resize, as
// torchvision and Pillow have it. Not antialiased, it keeps its width, and taps outside take the window's edge, as torch's
// interpolate has it. Nearest takes the pixel under the centre.
#pragma once

#include "color.h"

namespace gpuaug {

constexpr int kWeightBits = 22;
constexpr int kWeightHalf = 1 << (kWeightBits - 1);

// Where the crop window lies in its source image. Any words are safe; an empty source gives an empty window.
struct Window {
  int top, left, height, width;
};

GPUAUG_HOST_DEVICE Window window_of(const int32_t* record, int height, int width) {
  if (!has_version(record) || record[kWordCrop + 2] <= 0 || record[kWordCrop + 3] <= 0) return {0, 0, height, width};
  Window w;
  w.top = clamp_int(record[kWordCrop], 0, height > 0 ? height - 1 : 0);
  w.left = clamp_int(record[kWordCrop + 1], 0, width > 0 ? width - 1 : 0);
  w.height = clamp_int(record[kWordCrop + 2], 0, height - w.top);
  w.width = clamp_int(record[kWordCrop + 3], 0, width - w.left);
  return w;
}

// The taps of one output position along one axis: source pixels first..first+count-1 of the window (to be clamped).
struct Taps {
  int first, count;
  float centre;
};

struct Axis {
  int size;  // of the window
  float scale, inverse, support;
  int interpolation;
  bool antialias;

  GPUAUG_HOST_DEVICE Axis(const int32_t* record, int window, int out) : size(window) {
    const int32_t flags = has_version(record) ? record[kWordFlags] : 0;
    interpolation = clamp_int((flags >> kCropFilterShift) & 3, 0, kBicubic);
    antialias = (flags & kFlagAntialias) != 0;
    scale = static_cast<float>(window) / static_cast<float>(out);
    const float stretch = antialias ? fmaxf(scale, 1.0f) : 1.0f;
    inverse = 1.0f / stretch;
    support = (interpolation == kBicubic ? 2.0f : 1.0f) * stretch;
  }

  GPUAUG_HOST_DEVICE Taps taps(int position) const {
    Taps t;
    t.centre = (static_cast<float>(position) + 0.5f) * scale;
    if (interpolation == kNearest) {
      t.first = clamp_int(static_cast<int>(floorf(t.centre)), 0, size - 1);
      t.count = 1;
      return t;
    }
    t.first = static_cast<int>(floorf(t.centre - support + 0.5f));
    int last = static_cast<int>(floorf(t.centre + support + 0.5f));
    if (antialias) {
      t.first = clamp_int(t.first, 0, size - 1);
      last = clamp_int(last, t.first + 1, size);
    }
    t.count = last - t.first > 0 ? last - t.first : 1;
    return t;
  }

  GPUAUG_HOST_DEVICE int most_taps() const {
    return interpolation == kNearest ? 1 : static_cast<int>(ceilf(2.0f * support)) + 1;
  }

  // The filter at a tap, before the taps are brought to sum 1.
  GPUAUG_HOST_DEVICE float raw(const Taps& t, int tap) const {
    if (interpolation == kNearest) return 1.0f;
    const float d = fabsf((static_cast<float>(t.first + tap) + 0.5f - t.centre) * inverse);
    if (interpolation == kBilinear) return fmaxf(1.0f - d, 0.0f);
    const float a = antialias ? -0.5f : -0.75f;  // Pillow's and torch's choice
    if (d < 1.0f) return fmaf(fmaf(a + 2.0f, d, -(a + 3.0f)), d * d, 1.0f);
    if (d < 2.0f) return a * fmaf(fmaf(d - 5.0f, d, 8.0f), d, -4.0f);
    return 0.0f;
  }

  GPUAUG_HOST_DEVICE float unit(const Taps& t) const {
    float sum = 0.0f;
    for (int i = 0; i < t.count; ++i) sum += raw(t, i);
    return sum != 0.0f ? static_cast<float>(1 << kWeightBits) / sum : 0.0f;
  }

  GPUAUG_HOST_DEVICE int weight(const Taps& t, int tap, float unit) const {
    return static_cast<int>(rintf(raw(t, tap) * unit));
  }

  GPUAUG_HOST_DEVICE int index(const Taps& t, int tap) const { return clamp_int(t.first + tap, 0, size - 1); }
};

GPUAUG_HOST_DEVICE int weighted_byte(int sum) { return clamp_int(sum >> kWeightBits, 0, 255); }

}  // namespace gpuaug
