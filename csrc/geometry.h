// Warps: where a pixel comes from, and what is there. Coordinates: the centre of pixel i is i + 0.5.
#pragma once

#include "color.h"

namespace gpuaug {

constexpr int kLongestSide = 32767;

// A uint8 RGB image, read mirrored where flags say so.
struct Image {
  const uint8_t* data;
  int height, width;
  bool mirror_x, mirror_y;

  GPUAUG_HOST_DEVICE Pixel at(int x, int y) const {
    const int column = mirror_x ? width - 1 - x : x, row = mirror_y ? height - 1 - y : y;
    const uint8_t* pixel = data + 3u * (static_cast<uint32_t>(row) * static_cast<uint32_t>(width) + static_cast<uint32_t>(column));
    return {pixel[0], pixel[1], pixel[2]};
  }
};

// The source image of a dense batch's sample, with the record's flips.
GPUAUG_HOST_DEVICE Image batch_image(const uint8_t* x, const int32_t* record, int64_t sample, int height, int width) {
  const int32_t flags = has_version(record) ? record[kWordFlags] : 0;
  return {x + sample * kChannels * static_cast<int64_t>(height) * width, height, width,
          (flags & kFlagFlipHorizontal) != 0, (flags & kFlagFlipVertical) != 0};
}

struct Warp {
  float m[8];  // destination to source, row by row; m[6], m[7] are 0 unless perspective
  bool perspective;
  Interpolation interpolation;
  int border;
  Pixel fill;
};

GPUAUG_HOST_DEVICE Warp warp_of(const Op& op, int32_t fill, int height, int width) {
  Warp w = {{1, 0, 0, 0, 1, 0, 0, 0}, false, op.interpolation(), op.border(),
            {fill & 0xff, (fill >> 8) & 0xff, (fill >> 16) & 0xff}};
  switch (op.opcode()) {
    case kOpTranslate:
      w.m[2] = op.number(0);
      w.m[5] = op.number(1);
      break;
    case kOpShearX: w.m[1] = op.number(0); break;
    case kOpShearY: w.m[3] = op.number(0); break;
    case kOpRotate: {
      const float c = op.number(0), s = op.number(1);
      const float x = 0.5f * static_cast<float>(width), y = 0.5f * static_cast<float>(height);
      w.m[0] = c, w.m[1] = s, w.m[2] = fmaf(-s, y, fmaf(-c, x, x));
      w.m[3] = -s, w.m[4] = c, w.m[5] = fmaf(s, x, fmaf(-c, y, y));
      break;
    }
    case kOpPerspective: w.perspective = true; [[fallthrough]];
    default: {
      const int count = w.perspective ? 8 : 6;
      for (int i = 0; i < count; ++i) w.m[i] = op.number(i);
    }
  }
  return w;
}

struct Point {
  float x, y;
};

// Far outside is outside: keeps the conversion to int defined, for NaN too.
GPUAUG_HOST_DEVICE float bounded(float v) { return limited(v, -1.0e6f, 1.0e6f); }

GPUAUG_HOST_DEVICE Point source_of(const Warp& w, int column, int row) {
  const float x = static_cast<float>(column) + 0.5f, y = static_cast<float>(row) + 0.5f;
  float sx = fmaf(w.m[0], x, fmaf(w.m[1], y, w.m[2]));
  float sy = fmaf(w.m[3], x, fmaf(w.m[4], y, w.m[5]));
  if (w.perspective) {
    const float depth = fmaf(w.m[6], x, fmaf(w.m[7], y, 1.0f));
    sx = sx / depth;
    sy = sy / depth;
  }
  return {bounded(sx), bounded(sy)};
}

// The index that a border mode puts in the place of i; `constant` leaves it, for the caller to test.
GPUAUG_OUT_OF_LINE int border_index(int i, int size, int border) {
  if (i >= 0 && i < size) return i;
  switch (border) {
    case kReplicate:
    case kPil: return clamp_int(i, 0, size - 1);
    case kReflect: {
      const int period = 2 * size;
      int r = i % period;
      if (r < 0) r += period;
      return r < size ? r : period - 1 - r;
    }
    case kReflect101: {
      if (size == 1) return 0;
      const int period = 2 * size - 2;
      int r = i % period;
      if (r < 0) r += period;
      return r < size ? r : period - r;
    }
    default: return i;
  }
}

GPUAUG_HOST_DEVICE bool inside(const Image& image, int x, int y) {
  return static_cast<unsigned>(x) < static_cast<unsigned>(image.width) &&
         static_cast<unsigned>(y) < static_cast<unsigned>(image.height);
}

// One tap of an interpolation.
GPUAUG_HOST_DEVICE Pixel tap(const Image& image, const Warp& w, int x, int y) {
  if (inside(image, x, y)) return image.at(x, y);
  if (w.border == kConstant) return w.fill;
  return image.at(border_index(x, image.width, w.border), border_index(y, image.height, w.border));
}

GPUAUG_HOST_DEVICE float lerp(float weight, int from, int to) {
  return fmaf(weight, static_cast<float>(to - from), static_cast<float>(from));
}

// Rounded to nearest, or truncated as Pillow's transform does it. A convex combination: within 0..255.
GPUAUG_HOST_DEVICE int bilinear_channel(float wx, float wy, int p00, int p01, int p10, int p11, bool truncate) {
  const float top = lerp(wx, p00, p01), bottom = lerp(wx, p10, p11);
  const float value = fmaf(wy, bottom - top, top);
  return static_cast<int>(truncate ? value : rintf(value));
}

// Keys' cubic kernel at the four taps around a fraction t: a = -0.75 as torch and OpenCV have it, -1 as Pillow's transform.
struct CubicWeights {
  float w[4];
};

GPUAUG_HOST_DEVICE CubicWeights cubic_weights(float t, float a) {
  const float u = 1.0f - t;
  CubicWeights c;
  c.w[0] = a * t * u * u;
  c.w[1] = fmaf(fmaf(a + 2.0f, t, -(a + 3.0f)), t * t, 1.0f);
  c.w[2] = fmaf(fmaf(a + 2.0f, u, -(a + 3.0f)), u * u, 1.0f);
  c.w[3] = a * u * t * t;
  return c;
}

// The value at a source point. The caller's interpolation is a constant of its loop.
template <Interpolation kInterpolation>
GPUAUG_HOST_DEVICE Pixel sampled(const Image& image, const Warp& w, Point p) {
  if (w.border == kPil) {
    const bool covered = p.x >= 0.0f && p.x < static_cast<float>(image.width) && p.y >= 0.0f &&
                         p.y < static_cast<float>(image.height);
    if (!covered) return w.fill;
  }
  if constexpr (kInterpolation == Interpolation::kNearest) {
    return tap(image, w, static_cast<int>(floorf(p.x)), static_cast<int>(floorf(p.y)));
  } else {
    const float fx = p.x - 0.5f, fy = p.y - 0.5f;
    const float left = floorf(fx), top = floorf(fy);
    const float wx = fx - left, wy = fy - top;
    const int x = static_cast<int>(left), y = static_cast<int>(top);
    if constexpr (kInterpolation == Interpolation::kBilinear) {
      const Pixel a = tap(image, w, x, y), b = tap(image, w, x + 1, y);
      const Pixel c = tap(image, w, x, y + 1), d = tap(image, w, x + 1, y + 1);
      const bool truncate = w.border == kPil;
      return {bilinear_channel(wx, wy, a.r, b.r, c.r, d.r, truncate), bilinear_channel(wx, wy, a.g, b.g, c.g, d.g, truncate),
              bilinear_channel(wx, wy, a.b, b.b, c.b, d.b, truncate)};
    } else {
      const float a = w.border == kPil ? -1.0f : -0.75f;
      const CubicWeights cx = cubic_weights(wx, a), cy = cubic_weights(wy, a);
      float r = 0, g = 0, b = 0;
      for (int j = 0; j < 4; ++j) {
        float row_r = 0, row_g = 0, row_b = 0;
        for (int i = 0; i < 4; ++i) {
          const Pixel q = tap(image, w, x - 1 + i, y - 1 + j);
          row_r = fmaf(cx.w[i], static_cast<float>(q.r), row_r);
          row_g = fmaf(cx.w[i], static_cast<float>(q.g), row_g);
          row_b = fmaf(cx.w[i], static_cast<float>(q.b), row_b);
        }
        r = fmaf(cy.w[j], row_r, r);
        g = fmaf(cy.w[j], row_g, g);
        b = fmaf(cy.w[j], row_b, b);
      }
      if (w.border == kPil) return {truncated_byte(r), truncated_byte(g), truncated_byte(b)};
      return {rounded_byte(r), rounded_byte(g), rounded_byte(b)};
    }
  }
}

}  // namespace gpuaug
