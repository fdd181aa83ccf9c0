// Resampling along one axis: which source pixels an output pixel is made of, and with what weights.
//
// Pillow's definition: the filter is centred on the output pixel's centre and, with antialias, stretched by the
// shrinking factor; taps end at the image's border and the weights are normalised to sum to 1.
#pragma once

#include <type_traits>

#include "pixel.h"

namespace gpuaug {

enum class Interpolation : int { kNearest = 0, kBilinear = 1, kBicubic = 2 };

// Calls body with the interpolation as a constant.
template <typename Body>
GPUAUG_HOST_DEVICE void with_interpolation(Interpolation kind, const Body& body) {
  switch (kind) {
    case Interpolation::kNearest: body(std::integral_constant<Interpolation, Interpolation::kNearest>{}); break;
    case Interpolation::kBilinear: body(std::integral_constant<Interpolation, Interpolation::kBilinear>{}); break;
    default: body(std::integral_constant<Interpolation, Interpolation::kBicubic>{});
  }
}

struct Axis {
  int length;       // source pixels
  int output;       // output pixels
  float scale;      // source pixels an output pixel
  float support;    // radius of the filter, source pixels
  float inverse;    // 1 / stretch of the filter
};

struct Taps {
  int begin, end;   // source pixels, begin < end
  float first;      // position of the first tap's centre relative to the output pixel's centre, source pixels
  float norm;       // 1 / sum of the weights
};

GPUAUG_HOST_DEVICE Axis make_axis(int source, int output, Interpolation kind, bool antialias) {
  Axis axis;
  axis.length = source;
  axis.output = output;
  axis.scale = static_cast<float>(source) / static_cast<float>(output);
  const float stretch = antialias && axis.scale > 1.0f ? axis.scale : 1.0f;
  axis.support = (kind == Interpolation::kBicubic ? 2.0f : 1.0f) * stretch;
  axis.inverse = 1.0f / stretch;
  return axis;
}

template <Interpolation kKind>
GPUAUG_HOST_DEVICE float filter_weight(float x) {
  x = fabsf(x);
  if (kKind == Interpolation::kBilinear) return x < 1.0f ? 1.0f - x : 0.0f;
  constexpr float a = -0.5f;  // Pillow's, and torchvision's with antialias
  if (x < 1.0f) return fmaf(fmaf(a + 2.0f, x, -(a + 3.0f)) * x, x, 1.0f);
  if (x < 2.0f) return fmaf(fmaf(fmaf(a, x, -5.0f * a), x, 8.0f * a), x, -4.0f * a);
  return 0.0f;
}

// Weight of tap k, not normalised.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE float tap_weight(const Axis& axis, const Taps& taps, int k) {
  return filter_weight<kKind>((taps.first + static_cast<float>(k)) * axis.inverse);
}

// The taps, their weights not brought to a sum of 1 yet.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE Taps place_taps(const Axis& axis, int output) {
  Taps taps;
  const float centre = (static_cast<float>(output) + 0.5f) * axis.scale;
  if (kKind == Interpolation::kNearest) {
    // In whole numbers: a centre that falls on the edge of two pixels belongs to the later one, always.
    taps.begin = static_cast<int>((2 * static_cast<int64_t>(output) + 1) * axis.length / (2 * axis.output));
    taps.end = taps.begin + 1;
    taps.first = 0.0f;
    taps.norm = 1.0f;
    return taps;
  }
  const int begin = static_cast<int>(centre - axis.support + 0.5f);
  const int end = static_cast<int>(centre + axis.support + 0.5f);
  taps.end = end < axis.length ? end : axis.length;
  taps.begin = begin > 0 ? begin : 0;
  if (taps.begin >= taps.end) taps.begin = taps.end - 1;
  taps.first = static_cast<float>(taps.begin) + 0.5f - centre;
  taps.norm = 1.0f;
  return taps;
}

template <Interpolation kKind>
GPUAUG_HOST_DEVICE Taps make_taps(const Axis& axis, int output) {
  Taps taps = place_taps<kKind>(axis, output);
  if (kKind == Interpolation::kNearest) return taps;
  float sum = 0.0f;
  for (int k = 0; k < taps.end - taps.begin; ++k) sum += tap_weight<kKind>(axis, taps, k);
  taps.norm = sum != 0.0f ? 1.0f / sum : 1.0f;
  return taps;
}

// Weight of tap k; the weights of an output pixel sum to 1.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE float weight_of(const Axis& axis, const Taps& taps, int k) {
  return kKind == Interpolation::kNearest ? 1.0f : tap_weight<kKind>(axis, taps, k) * taps.norm;
}

// Exact, and cheaper on the GPU than a conversion instruction.
GPUAUG_HOST_DEVICE float byte_to_float(uint8_t value) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(0x4B000000u | value) - 8388608.0f;
#else
  return static_cast<float>(value);
#endif
}

// To 0..255, ties to even. Adding 2**23 rounds, and is cheaper on the GPU than its rounding instruction.
GPUAUG_HOST_DEVICE float rounded_to_byte(float value) {
  const float inside = fminf(fmaxf(value, 0.0f), 255.0f);
#if defined(__CUDA_ARCH__)
  return (inside + 8388608.0f) - 8388608.0f;
#else
  return rintf(inside);
#endif
}

GPUAUG_HOST_DEVICE uint8_t round_to_byte(float value) { return static_cast<uint8_t>(rounded_to_byte(value)); }

// A line's sum as the columns' filter sees it. Bicubic overshoots; Pillow cuts that off between its two passes.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE float limited_line(float value) {
  return kKind == Interpolation::kBicubic ? fminf(fmaxf(value, 0.0f), 255.0f) : value;
}

struct Rgb {
  uint8_t value[kChannels];
};

// Taps of a line whose weights are worked out once: enough for shrinking by 3 (bilinear), more work theirs out as they go.
constexpr int kMostTaps = 7;

// One line of taps: the weighted sum of neighbouring pixels, a channel each.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE void sum_line(const uint8_t* tap, const Axis& columns, const Taps& x, float (&line)[kChannels]) {
  for (int i = 0; i < x.end - x.begin; ++i, tap += kChannels) {
    const float weight = weight_of<kKind>(columns, x, i);
    for (int c = 0; c < kChannels; ++c) line[c] = fmaf(weight, byte_to_float(tap[c]), line[c]);
  }
}

// The same with weights that are known already.
template <int kMost>
GPUAUG_HOST_DEVICE void sum_line(const uint8_t* tap, const float (&weights)[kMost], int count,
                                 float (&line)[kChannels]) {
GPUAUG_UNROLL
  for (int i = 0; i < kMost; ++i) {
    if (i >= count) break;
    for (int c = 0; c < kChannels; ++c) {
      line[c] = fmaf(weights[i], byte_to_float(tap[kChannels * i + c]), line[c]);
    }
  }
}

// One output pixel of an image at `pixels` whose rows are `columns.length` pixels long.
template <Interpolation kKind>
GPUAUG_HOST_DEVICE Rgb resample_pixel(const uint8_t* pixels, const Axis& rows, const Axis& columns, const Taps& y,
                                      const Taps& x) {
  constexpr int kMost = kMostTaps;
  const int count = x.end - x.begin;
  float weights[kMost];
GPUAUG_UNROLL
  for (int i = 0; i < kMost; ++i) weights[i] = i < count ? weight_of<kKind>(columns, x, i) : 0.0f;
  float sum[kChannels] = {0.0f, 0.0f, 0.0f};
  for (int j = 0; j < y.end - y.begin; ++j) {
    const uint8_t* tap = pixels + (static_cast<int64_t>(y.begin + j) * columns.length + x.begin) * kChannels;
    float line[kChannels] = {0.0f, 0.0f, 0.0f};
    if (count <= kMost) {
      sum_line(tap, weights, count, line);
    } else {
      sum_line<kKind>(tap, columns, x, line);
    }
    const float weight = weight_of<kKind>(rows, y, j);
    for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, limited_line<kKind>(line[c]), sum[c]);
  }
  Rgb out;
  for (int c = 0; c < kChannels; ++c) out.value[c] = round_to_byte(sum[c]);
  return out;
}

}  // namespace gpuaug
