// Sampling an image at a point that a matrix names: the only definition of it, compiled for the host and for the device.
//
// Coordinates are float, by explicit fused multiply-adds; so CPU and CUDA land on the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "pixel.h"

namespace gpuaug {

enum class Interpolation : int64_t { kNearest = 0, kBilinear = 1, kBicubic = 2 };

// Calls body with the interpolation as a compile-time constant.
template <typename Body>
void dispatch_interpolation(Interpolation interpolation, const Body& body) {
  switch (interpolation) {
    case Interpolation::kNearest:
      return body(std::integral_constant<Interpolation, Interpolation::kNearest>{});
    case Interpolation::kBicubic:
      return body(std::integral_constant<Interpolation, Interpolation::kBicubic>{});
    default: return body(std::integral_constant<Interpolation, Interpolation::kBilinear>{});
  }
}

enum class Border : int64_t {
  kConstant = 0,    // taps outside are the fill colour
  kReplicate = 1,   // aaa|abcd|ddd
  kReflect = 2,     // cba|abcd|dcb
  kReflect101 = 3,  // dcb|abcd|cba
  kPil = 4,         // Pillow: points outside are the fill colour, taps of points inside replicate, uint8 truncates
};

template <Interpolation kInterpolation>
constexpr int kTaps = kInterpolation == Interpolation::kNearest ? 1 : kInterpolation == Interpolation::kBilinear ? 2 : 4;

// The pixel that stands for pixel i of a row of `size`; -1 for the fill colour.
GPUAUG_HOST_DEVICE int32_t bordered(int32_t i, int32_t size, Border border) {
  if (i >= 0 && i < size) return i;
  switch (border) {
    case Border::kConstant: return -1;
    case Border::kReflect: {
      const int32_t period = 2 * size;
      i %= period;
      if (i < 0) i += period;
      return i < size ? i : period - 1 - i;
    }
    case Border::kReflect101: {
      if (size == 1) return 0;
      const int32_t period = 2 * size - 2;
      i %= period;
      if (i < 0) i += period;
      return i < size ? i : period - i;
    }
    default: return i < 0 ? 0 : size - 1;
  }
}

struct SamplingRule {
  int32_t height, width;  // of the source
  Border border;
  bool half_pixel;  // the centre of pixel i is i + 0.5, not i
};

// A point of the source, measured from the corner of pixel 0 (x, y) and from its centre (cx, cy).
struct SourcePoint {
  float x, y, cx, cy;
  bool filled;  // the whole pixel is the fill colour
};

// m: 3 x 3, or 2 x 3 when not projective.
GPUAUG_HOST_DEVICE SourcePoint source_point(const float* m, bool projective, int32_t out_x, int32_t out_y,
                                            const SamplingRule& rule) {
  const float shift = rule.half_pixel ? 0.5f : 0.0f;
  const float u = static_cast<float>(out_x) + shift, v = static_cast<float>(out_y) + shift;
  float x = fmaf(m[0], u, fmaf(m[1], v, m[2]));
  float y = fmaf(m[3], u, fmaf(m[4], v, m[5]));
  if (projective && !(m[6] == 0.0f && m[7] == 0.0f && m[8] == 1.0f)) {
    const float w = fmaf(m[6], u, fmaf(m[7], v, m[8]));
    x = x / w;
    y = y / w;
  }
  SourcePoint p;
  p.x = rule.half_pixel ? x : x + 0.5f;
  p.y = rule.half_pixel ? y : y + 0.5f;
  p.cx = rule.half_pixel ? x - 0.5f : x;
  p.cy = rule.half_pixel ? y - 0.5f : y;
  constexpr float kFar = 1 << 30;  // beyond it pixels have no int32 index; NaN is neither near nor far
  p.filled = !(p.x > -kFar && p.x < kFar && p.y > -kFar && p.y < kFar);
  if (rule.border == Border::kPil) {
    p.filled = p.filled || !(p.x >= 0.0f && p.x < static_cast<float>(rule.width) && p.y >= 0.0f &&
                             p.y < static_cast<float>(rule.height));
  }
  return p;
}

// The pixels along one axis that a point mixes, and how far the point is past the second last but one (bilinear: first).
template <Interpolation kInterpolation>
struct AxisSample {
  int32_t at[kTaps<kInterpolation>];
  float t;
};

template <Interpolation kInterpolation>
GPUAUG_HOST_DEVICE AxisSample<kInterpolation> axis_sample(float from_corner, float from_centre, int32_t size,
                                                          Border border) {
  AxisSample<kInterpolation> s;
  if constexpr (kInterpolation == Interpolation::kNearest) {
    s.at[0] = bordered(static_cast<int32_t>(floorf(from_corner)), size, border);
    s.t = 0.0f;
  } else {
    const float whole = floorf(from_centre);
    s.t = from_centre - whole;
    const int32_t first = static_cast<int32_t>(whole) - (kInterpolation == Interpolation::kBicubic ? 1 : 0);
    for (int i = 0; i < kTaps<kInterpolation>; ++i) s.at[i] = bordered(first + i, size, border);
  }
  return s;
}

GPUAUG_HOST_DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
GPUAUG_HOST_DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }

// Keys' cubic: -0.75 as in torch and OpenCV, -1 as in Pillow's transform.
GPUAUG_HOST_DEVICE float cubic_constant(Border border) { return border == Border::kPil ? -1.0f : -0.75f; }

// Written in differences, so that equal values give themselves.
template <typename A>
GPUAUG_HOST_DEVICE A cubic(A v0, A v1, A v2, A v3, A t, A a) {
  const A d0 = v0 - v1, d2 = v2 - v1, d3 = v3 - v1;
  const A p2 = a * (d0 - d2);
  const A p3 = fused(A(-2) * a, d0, fused(A(2) * a + A(3), d2, a * d3));
  const A p4 = fused(a, d0, fused(-(a + A(2)), d2, -a * d3));
  return fused(t, fused(t, fused(t, p4, p3), p2), v1);
}

// The mixture at a point; load(row tap, column tap) gives the pixels.
template <Interpolation kInterpolation, typename A, typename Load>
GPUAUG_HOST_DEVICE A interpolate(const Load& load, float ty, float tx, Border border) {
  if constexpr (kInterpolation == Interpolation::kNearest) {
    return load(0, 0);
  } else if constexpr (kInterpolation == Interpolation::kBilinear) {
    const A v00 = load(0, 0), v01 = load(0, 1), v10 = load(1, 0), v11 = load(1, 1);
    const A top = fused(A(tx), v01 - v00, v00), bottom = fused(A(tx), v11 - v10, v10);
    return fused(A(ty), bottom - top, top);
  } else {
    const A a = A(cubic_constant(border));
    A rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = cubic<A>(load(r, 0), load(r, 1), load(r, 2), load(r, 3), A(tx), a);
    return cubic<A>(rows[0], rows[1], rows[2], rows[3], A(ty), a);
  }
}

// The same mixture as weights: what the gradient needs.
template <Interpolation kInterpolation>
GPUAUG_HOST_DEVICE void axis_weights(float t, Border border, float (&w)[kTaps<kInterpolation>]) {
  if constexpr (kInterpolation == Interpolation::kNearest) {
    w[0] = 1.0f;
  } else if constexpr (kInterpolation == Interpolation::kBilinear) {
    w[0] = 1.0f - t;
    w[1] = t;
  } else {
    const float a = cubic_constant(border);
    w[0] = a * t * fmaf(t, t - 2.0f, 1.0f);
    w[1] = fmaf(t * t, fmaf(a + 2.0f, t, -(a + 3.0f)), 1.0f);
    w[2] = t * fmaf(t, fmaf(-(a + 2.0f), t, fmaf(2.0f, a, 3.0f)), -a);
    w[3] = a * t * t * (1.0f - t);
  }
}

// A sum in the type of an image.
template <typename T, typename A>
GPUAUG_HOST_DEVICE T as_pixel(A value, Border) {
  return static_cast<T>(value);
}

template <>
GPUAUG_HOST_DEVICE uint8_t as_pixel<uint8_t, float>(float value, Border border) {
  if (!(value > 0.0f)) return 0;
  if (value > 255.0f) value = 255.0f;
  return static_cast<uint8_t>(border == Border::kPil ? value : rintf(value));
}

}  // namespace gpuaug
