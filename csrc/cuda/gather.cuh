// Warps: the value at each pixel's source point. `sampled` (geometry.h) defines it; here the taps of points well inside the
// image are loaded in whole words, and points near the edges are left for a second, rarer step.
#pragma once

#include "pixels.cuh"

namespace gpuaug {

// A warp of one image.
struct WarpedImage {
  Image image;
  Warp warp;
};

template <Interpolation kInterpolation>
__device__ __noinline__ uint32_t sampled_slowly(const WarpedImage& from, int x, int y) {
  return packed(sampled<kInterpolation>(from.image, from.warp, source_of(from.warp, x, y)));
}

// Whether no tap of a point lies in the image, so that it is the fill colour: kReach taps beyond the one at (x, y).
template <int kReach>
__device__ __forceinline__ bool misses(const Image& image, const Warp& warp, Point p, int x, int y) {
  if (warp.border == kPil) {
    return !(p.x >= 0.0f && p.x < static_cast<float>(image.width) && p.y >= 0.0f && p.y < static_cast<float>(image.height));
  }
  return warp.border == kConstant && (x < -kReach || y < -kReach || x >= image.width + kReach - 1 || y >= image.height + kReach - 1);
}

template <Interpolation kInterpolation>
struct Gather {
  Image image;
  Warp warp;
  Walker walker;

  __device__ __forceinline__ explicit Gather(const WarpedImage& from) : image(from.image), warp(from.warp), walker(from.image) {}

  // Whether the image is large enough for the loads of any point, and the warp is affine.
  __device__ static bool fits(const WarpedImage& from) {
    return from.image.width >= 4 && from.image.height >= 4 && !from.warp.perspective;
  }

  // `edge` becomes true where the result does not hold.
  __device__ __forceinline__ Pixel operator()(int column, int row, bool& edge) const {
    Warp affine = warp;
    affine.perspective = false;
    const Point p = source_of(affine, column, row);
    if constexpr (kInterpolation == Interpolation::kNearest) {
      const int x = static_cast<int>(floorf(p.x)), y = static_cast<int>(floorf(p.y));
      const bool in = inside(image, x, y);
      edge = !in && warp.border != kConstant && warp.border != kPil;
      const uint8_t* from = walker.at(in ? x : 0, in ? y : 0);
      const Pixel value = {from[0], from[1], from[2]};
      return {in ? value.r : warp.fill.r, in ? value.g : warp.fill.g, in ? value.b : warp.fill.b};
    } else {
      const float fx = p.x - 0.5f, fy = p.y - 0.5f;
      const float left = floorf(fx), top = floorf(fy);
      const float wx = fx - left, wy = fy - top;
      const int x = static_cast<int>(left), y = static_cast<int>(top);
      constexpr int kBefore = kInterpolation == Interpolation::kBicubic ? 1 : 0, kTaps = 2 * kBefore + 2;
      const bool in = static_cast<unsigned>(x - kBefore) <= static_cast<unsigned>(image.width - kTaps) &&
                      static_cast<unsigned>(y - kBefore) <= static_cast<unsigned>(image.height - kTaps);
      const bool missed = !in && misses<kBefore + 1>(image, warp, p, x, y);
      edge = !in && !missed;
      const int near_x = in ? x - kBefore : 0, near_y = in ? y - kBefore : 0;
      // The leftmost tap in memory.
      const uint8_t* from = walker.at(near_x, near_y) - (image.mirror_x ? 3 * (kTaps - 1) : 0);
      Pixel value;
      if constexpr (kInterpolation == Interpolation::kBilinear) {
        uint32_t upper[2], lower[2];
        load_bytes<2, 6>(from, upper);
        load_bytes<2, 6>(from + walker.step_y, lower);
        const auto pixel = [&](const uint32_t(&words)[2], bool second) {
          return unpacked(second != image.mirror_x ? __funnelshift_r(words[0], words[1], 24) : words[0]);
        };
        const Pixel a = pixel(upper, false), b = pixel(upper, true), c = pixel(lower, false), d = pixel(lower, true);
        const bool truncate = warp.border == kPil;
        value = {bilinear_channel(wx, wy, a.r, b.r, c.r, d.r, truncate), bilinear_channel(wx, wy, a.g, b.g, c.g, d.g, truncate),
                 bilinear_channel(wx, wy, a.b, b.b, c.b, d.b, truncate)};
      } else {
        const float a = warp.border == kPil ? -1.0f : -0.75f;
        const CubicWeights cx = cubic_weights(wx, a), cy = cubic_weights(wy, a);
        float r = 0, g = 0, b = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t words[3];
          load_bytes<3, 12>(from + j * walker.step_y, words);
          if (image.mirror_x) {
            uint32_t mirrored[3];
            mirror_four_pixels(words, mirrored);
#pragma unroll
            for (int i = 0; i < 3; ++i) words[i] = mirrored[i];
          }
          Pixel q[4];
          unpack(words, q);
          float row_r = 0, row_g = 0, row_b = 0;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            row_r = fmaf(cx.w[i], static_cast<float>(q[i].r), row_r);
            row_g = fmaf(cx.w[i], static_cast<float>(q[i].g), row_g);
            row_b = fmaf(cx.w[i], static_cast<float>(q[i].b), row_b);
          }
          r = fmaf(cy.w[j], row_r, r);
          g = fmaf(cy.w[j], row_g, g);
          b = fmaf(cy.w[j], row_b, b);
        }
        if (warp.border == kPil) {
          value = {truncated_byte(r), truncated_byte(g), truncated_byte(b)};
        } else {
          value = {rounded_byte(r), rounded_byte(g), rounded_byte(b)};
        }
      }
      return {missed ? warp.fill.r : value.r, missed ? warp.fill.g : value.g, missed ? warp.fill.b : value.b};
    }
  }
};

}  // namespace gpuaug
