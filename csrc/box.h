// The math of two boxes: the only definition of it, compiled for the host and for the device, the same bit for bit.
#pragma once

#include <cstdint>
#include <cstring>

#include "pixel.h"

namespace gpuaug {

struct Box {
  float x1, y1, x2, y2;
};

// Minimum and maximum of two numbers that are not NaN. fminf does not vectorise on the host, a comparison does.
GPUAUG_HOST_DEVICE float lower(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}

// A NaN in `a` gives b (infinite boxes subtract to NaN: they overlap nothing).
GPUAUG_HOST_DEVICE float upper(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}

GPUAUG_HOST_DEVICE float box_area(const Box& b) { return (b.x2 - b.x1) * (b.y2 - b.y1); }

GPUAUG_HOST_DEVICE float intersection_area(const Box& a, const Box& b) {
  const float width = upper(lower(a.x2, b.x2) - upper(a.x1, b.x1), 0.0f);
  const float height = upper(lower(a.y2, b.y2) - upper(a.y1, b.y1), 0.0f);
  return width * height;
}

// IoU above a threshold, strictly: the float quotient against the threshold rounded to float, so that an IoU that is
// mathematically equal to the threshold (3/10 and 0.3) does not exceed it.
struct IouThreshold {
  float iou;
  float surely_below;  // far enough under iou that rounding cannot lift a quotient over it: saves the division

  explicit IouThreshold(double threshold)
      : iou(static_cast<float>(threshold)), surely_below(static_cast<float>(threshold * (1 - 1e-6))) {}
};

// Boxes of no area: 0 / 0 is NaN, which exceeds nothing.
GPUAUG_HOST_DEVICE bool iou_exceeds(const Box& a, float area_a, const Box& b, float area_b, const IouThreshold& threshold) {
  const float inter = intersection_area(a, b);
  const float united = area_a + area_b - inter;
#if defined(__CUDA_ARCH__)
  if (united > 0.0f && inter < threshold.surely_below * united) return false;
  return inter / united > threshold.iou;
#else  // without branches, for the vectoriser
  const bool surely_below = (united > 0.0f) & (inter < threshold.surely_below * united);
  return !surely_below & (inter / united > threshold.iou);
#endif
}

// e**x for x <= 0 within 2 ulp, from IEEE operations alone: expf differs between the host's libm and CUDA.
GPUAUG_HOST_DEVICE float exp_of_negative(float x) {
  if (!(x > -87.0f)) return 0.0f;
  const float n = rintf(x * 1.44269504f);
  const float r = fmaf(n, -1.42860677e-6f, fmaf(n, -0.693145752f, x));  // ln 2 in two parts
  float p = fmaf(r, 1.0f / 720, 1.0f / 120);
  p = fmaf(p, r, 1.0f / 24);
  p = fmaf(p, r, 1.0f / 6);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  const int32_t power_bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  memcpy(&power, &power_bits, sizeof(power));
  return p * power;
}

enum class SoftMethod : int64_t { kLinear = 0, kGaussian = 1 };

struct SoftRule {
  SoftMethod method;
  float iou_threshold, sigma, min_score;
};

// The score that is left beside a selected box (Bodla et al., "Soft-NMS", ICCV 2017).
GPUAUG_HOST_DEVICE float decayed_score(float score, const Box& selected, float selected_area, const Box& box, float area,
                                       const SoftRule& rule) {
  const float inter = intersection_area(selected, box);
  if (!(inter > 0.0f)) return score;
  const float iou = inter / (selected_area + area - inter);
  if (rule.method == SoftMethod::kLinear) return iou > rule.iou_threshold ? score * (1.0f - iou) : score;
  return score * exp_of_negative(-(iou * iou) / rule.sigma);
}

// Orders scores as unsigned integers do, equal scores by the lowest index. Larger wins; no score gives 0. Not for NaN.
GPUAUG_HOST_DEVICE uint64_t selection_key(float score, uint32_t index) {
  score += 0.0f;  // -0 becomes +0
  uint32_t bits;
  memcpy(&bits, &score, sizeof(bits));
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(bits) << 32 | (0xffffffffu - index);
}

GPUAUG_HOST_DEVICE uint32_t selected_index(uint64_t key) { return 0xffffffffu - static_cast<uint32_t>(key); }

}  // namespace gpuaug
