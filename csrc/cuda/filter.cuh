// Filters on groups of four pixels: sharpness and Gaussian blur, as filter.h defines them.
#pragma once

#include "../filter.h"
#include "pixels.cuh"

namespace gpuaug {

// The group at (x, y) of the image as its mirror flags have it; rows are words.
__device__ __forceinline__ void load_mirrored_group(const Image& image, int x, int y, uint32_t (&word)[3]) {
  load_group(words_at(image, x, y), word);
  if (!image.mirror_x) return;
  uint32_t mirrored[3];
  mirror_four_pixels(word, mirrored);
#pragma unroll
  for (int i = 0; i < 3; ++i) word[i] = mirrored[i];
}

__device__ __forceinline__ void swap_pixels(Pixel& a, Pixel& b) {
  const Pixel c = a;
  a = b;
  b = c;
}

// Rows are words. Filtered as the image lies in memory, then put in order: the filter is symmetrical.
template <typename Output, typename Through>
__device__ __forceinline__ void sharpen_groups(const Image& image, float rest, const FastDivide& by_width, Part part,
                                               const Output& out, const Through& through) {
  const int count = image.height * image.width, row_words = image.width / 4 * 3;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll 1
  for (int unit = part.begin + warp; unit < part.end; unit += warps) {
    const int first = kWarpPixels * unit + 4 * lane;
    if (first >= count) continue;
    const int y = static_cast<int>(by_width(static_cast<uint32_t>(first))), x = first - y * image.width;
    const uint32_t* middle = words_at(image, x, y);
    uint32_t centre[3];
    load_group(middle, centre);
    Pixel p[4];
    unpack(centre, p);
    if (y > 0 && y < image.height - 1) {
      const int first_column = image.mirror_x ? image.width - 4 - x : x;
      const bool at_left = first_column == 0, at_right = first_column + 4 == image.width;
      uint32_t even[5], odd[5];  // sums of three rows, two bytes a word
#pragma unroll
      for (int i = 0; i < 5; ++i) {
        even[i] = odd[i] = 0;
        if ((i == 0 && at_left) || (i == 4 && at_right)) continue;
        const uint32_t a = middle[i - 1 - row_words], b = i >= 1 && i <= 3 ? centre[i - 1] : middle[i - 1],
                       c = middle[i - 1 + row_words];
        even[i] = (a & 0xff00ffu) + (b & 0xff00ffu) + (c & 0xff00ffu);
        odd[i] = ((a >> 8) & 0xff00ffu) + ((b >> 8) & 0xff00ffu) + ((c >> 8) & 0xff00ffu);
      }
      // Of byte `at` after the group's first pixel.
      const auto column = [&](int at) {
        const int i = (at + 4) / 4, k = (at + 4) % 4;
        const uint32_t pair = k % 2 ? odd[i] : even[i];
        return static_cast<int>(k / 2 ? pair >> 16 : pair & 0xffffu);
      };
      const auto sum = [&](int at) { return column(at - 3) + column(at) + column(at + 3); };
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool border = (j == 0 && at_left) || (j == 3 && at_right);
        const Pixel filtered = {Sharpness::channel(sum(3 * j), p[j].r, rest), Sharpness::channel(sum(3 * j + 1), p[j].g, rest),
                                Sharpness::channel(sum(3 * j + 2), p[j].b, rest)};
        if (!border) p[j] = filtered;
      }
    }
    if (image.mirror_x) swap_pixels(p[0], p[3]), swap_pixels(p[1], p[2]);
    through(p);
    out.store_group(first, p);
  }
}

// A blur's weights, whole for single pixels and as float for groups: sums of pixels times weights stay below 2**24, so
// float holds them exactly.
struct SharedBlur {
  static constexpr int kCentre = 40;
  BlurKernel whole;
  alignas(16) float at[2 * kCentre];  // at[kCentre + d] for the tap at distance d, 0 beyond the radius

  // By one whole warp: make_blur_kernel with a tap a lane.
  __device__ __forceinline__ void make(const Op& op) {
    const int lane = threadIdx.x % 32;
    const int radius = blur_radius_of(op);
    const double sigma = fmin(fmax(static_cast<double>(op.number(0)), 1e-3), 1e3);
    const double tap = lane >= 1 && lane <= radius ? exp(-0.5 * (lane / sigma) * (lane / sigma)) : 0.0;
    double sum = 1.0;
    for (int i = 1; i <= radius; ++i) sum += 2.0 * __shfl_sync(kWholeWarp, tap, i);
    int weight = lane >= 1 && lane <= radius ? static_cast<int>(rint(65536.0 * tap / sum)) : 0;
    int others = weight;
    for (int d = 16; d > 0; d /= 2) others += __shfl_down_sync(kWholeWarp, others, d);
    others = __shfl_sync(kWholeWarp, others, 0);
    if (lane == 0) {
      whole.radius = radius;
      weight = 65536 - 2 * others;
    }
    whole.weight[lane] = weight;
    for (int i = lane; i < 3 * 32; i += 32) {
      const int distance = i < kCentre ? kCentre - i : i - kCentre;
      const int theirs = __shfl_sync(kWholeWarp, weight, distance % 32);
      if (i < 2 * kCentre) at[i] = distance <= radius ? static_cast<float>(theirs) : 0.0f;
    }
  }
};

__device__ __forceinline__ void add_weighted(const uint32_t (&word)[3], float weight, float (&sum)[12]) {
#pragma unroll
  for (int i = 0; i < 12; ++i) sum[i] = fmaf(weight, static_cast<float>(byte_of(word[i / 4], i % 4)), sum[i]);
}

__device__ __forceinline__ void finish_sums(const float (&sum)[12], Pixel (&p)[4]) {
  const auto value = [&](int i) { return static_cast<int>(sum[i]) >> 16; };
#pragma unroll
  for (int j = 0; j < 4; ++j) p[j] = {value(3 * j), value(3 * j + 1), value(3 * j + 2)};
}

// One direction of the blur, rows being words. A thread's taps along the row come in groups too.
template <typename Output, typename Through>
__device__ __forceinline__ void blur_rows(const Image& image, const SharedBlur& blur, const FastDivide& by_width, Part part,
                                          const Output& out, const Through& through) {
  const int count = image.height * image.width, radius = blur.whole.radius;
  const int reach = (radius + 3) / 4 * 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll 1
  for (int unit = part.begin + warp; unit < part.end; unit += warps) {
    const int first = kWarpPixels * unit + 4 * lane;
    if (first >= count) continue;
    const int y = static_cast<int>(by_width(static_cast<uint32_t>(first))), x = first - y * image.width;
    float sum[12];
#pragma unroll
    for (int i = 0; i < 12; ++i) sum[i] = 32768.0f;
#pragma unroll 1
    for (int t = -reach; t <= reach; t += 4) {  // taps x + t .. x + t + 3
      uint32_t word[3];
      if (x + t >= 0 && x + t < image.width) {
        load_mirrored_group(image, x + t, y, word);
      } else {
        Pixel p[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) p[i] = image.at(border_index(x + t + i, image.width, kReflect101), y);
        word[0] = packed(p[0]) | packed(p[1]) << 24;
        word[1] = packed(p[1]) >> 8 | packed(p[2]) << 16;
        word[2] = packed(p[2]) >> 16 | packed(p[3]) << 8;
      }
      const float4 before = *reinterpret_cast<const float4*>(blur.at + SharedBlur::kCentre + t - 4);
      const float4 after = *reinterpret_cast<const float4*>(blur.at + SharedBlur::kCentre + t);
      // Of the tap at distance t + i - j.
      const float weight[7] = {before.y, before.z, before.w, after.x, after.y, after.z, after.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < 3; ++c) {
          const float value = static_cast<float>(byte_of(word[(3 * i + c) / 4], (3 * i + c) % 4));
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[3 * j + c] = fmaf(weight[3 + i - j], value, sum[3 * j + c]);
        }
      }
    }
    Pixel p[4];
    finish_sums(sum, p);
    through(p);
    out.store_group(first, p);
  }
}

// Two rows a thread, which share most of their taps.
template <typename Output, typename Through>
__device__ __forceinline__ void blur_columns(const Image& image, const SharedBlur& blur, int part, int parts, const Output& out,
                                             const Through& through) {
  const int groups = image.width / 4, items = (image.height + 1) / 2 * groups, each = (items + parts - 1) / parts;
  const int end = min((part + 1) * each, items), radius = blur.whole.radius;
#pragma unroll 1
  for (int item = part * each + threadIdx.x; item < end; item += blockDim.x) {
    const int y = item / groups * 2, x = (item - y / 2 * groups) * 4;
    float upper[12], lower[12];
#pragma unroll
    for (int i = 0; i < 12; ++i) upper[i] = lower[i] = 32768.0f;
    float weight = 0.0f;  // of the row before
#pragma unroll 2
    for (int t = -radius; t <= radius + 1; ++t) {
      const int row = y + t;
      uint32_t word[3];
      load_mirrored_group(image, x, row >= 0 && row < image.height ? row : border_index(row, image.height, kReflect101), word);
      const float next = blur.at[SharedBlur::kCentre + t];
      add_weighted(word, next, upper);
      add_weighted(word, weight, lower);
      weight = next;
    }
    Pixel p[4];
    finish_sums(upper, p);
    through(p);
    out.store_group(y * image.width + x, p);
    if (y + 1 < image.height) {
      finish_sums(lower, p);
      through(p);
      out.store_group((y + 1) * image.width + x, p);
    }
  }
}

}  // namespace gpuaug
