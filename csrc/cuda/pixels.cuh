// Pixels of an image, by the warp: 128 of them at a time, four a thread, loaded in whole words where memory allows it.
//
// Two ways of sharing them out. In groups, a thread has four neighbours, which lie in three words: for what reads the image
// as it lies. In strides, neighbours belong to neighbouring threads: for what gathers, so that a warp's loads fall into few
// cache lines.
#pragma once

#include "../program.h"
#include "bytes.cuh"
#include "launch.h"

namespace gpuaug {

constexpr int kWarpPixels = 128;
constexpr uint32_t kWholeWarp = 0xffffffffu;

// The part of an image that a block works on, in units of kWarpPixels.
struct Part {
  int begin, end;
};

__device__ __forceinline__ void unpack(const uint32_t (&word)[3], Pixel (&p)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    p[j] = {byte_of(word[3 * j / 4], 3 * j % 4), byte_of(word[(3 * j + 1) / 4], (3 * j + 1) % 4),
            byte_of(word[(3 * j + 2) / 4], (3 * j + 2) % 4)};
  }
}

__device__ __forceinline__ uint32_t packed(Pixel p) { return p.r | p.g << 8 | p.b << 16; }

__device__ __forceinline__ Pixel unpacked(uint32_t rgb) {
  return {static_cast<int>(rgb & 0xff), static_cast<int>((rgb >> 8) & 0xff), static_cast<int>((rgb >> 16) & 0xff)};
}

// Pixels of a mirrored image by steps in memory.
struct Walker {
  const uint8_t* origin;  // of pixel (0, 0)
  int step_x, step_y;     // bytes

  __device__ __forceinline__ explicit Walker(const Image& image) {
    const int row = 3 * image.width;
    step_x = image.mirror_x ? -3 : 3;
    step_y = image.mirror_y ? -row : row;
    origin = image.data + (image.mirror_x ? row - 3 : 0) +
             static_cast<int64_t>(image.mirror_y ? image.height - 1 : 0) * row;
  }

  __device__ __forceinline__ const uint8_t* at(int x, int y) const {
    return origin + (static_cast<int64_t>(y) * step_y + x * step_x);
  }
};

// Whether rows consist of whole groups of four pixels at addresses of words, so that groups are words in either direction.
__device__ __forceinline__ bool rows_are_words(const Image& image) {
  return image.width % 4 == 0 && reinterpret_cast<uintptr_t>(image.data) % 4 == 0;
}

// The first word of the group of four pixels whose first is (x, y), or, mirrored, whose last is.
__device__ __forceinline__ const uint32_t* words_at(const Image& image, int x, int y) {
  const int column = image.mirror_x ? image.width - 4 - x : x, row = image.mirror_y ? image.height - 1 - y : y;
  return reinterpret_cast<const uint32_t*>(image.data) + (static_cast<uint32_t>(row) * static_cast<uint32_t>(image.width) + static_cast<uint32_t>(column)) / 4 * 3;
}

// Plain loads: other blocks wrote some of these images in the same kernel.
__device__ __forceinline__ void load_group(const uint32_t* from, uint32_t (&word)[3]) {
  word[0] = from[0], word[1] = from[1], word[2] = from[2];
}

// Bytes from any address on, by the words that hold them: kWords words and what is needed of one more.
template <int kWords, int kBytes>
__device__ __forceinline__ void load_bytes(const uint8_t* p, uint32_t (&words)[kWords]) {
  static_assert(kBytes <= 4 * kWords && kBytes > 4 * (kWords - 1));
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3u;
  const uint32_t* aligned = reinterpret_cast<const uint32_t*>(p - skew);
  uint32_t loaded[kWords + 1];
#pragma unroll
  for (int i = 0; i < kWords; ++i) loaded[i] = aligned[i];
  loaded[kWords] = skew + kBytes > 4 * kWords ? aligned[kWords] : 0u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __funnelshift_r(loaded[i], loaded[i + 1], 8 * skew);
}

// Calls body(four pixels' first, pixels) for every group of the part, the pixels of the image as they lie in memory or
// mirrored as the image says. What is beyond the image's last pixel is anything.
template <typename Body>
__device__ __forceinline__ void for_groups(const Image& image, const FastDivide& by_width, Part part, const Body& body) {
  const int count = image.height * image.width;
  const bool whole_rows = rows_are_words(image);
  const bool whole_image = !image.mirror_x && !image.mirror_y && reinterpret_cast<uintptr_t>(image.data) % 4 == 0;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll 1
  for (int unit = part.begin + warp; unit < part.end; unit += warps) {
    const int first = kWarpPixels * unit + 4 * lane;
    if (first >= count) continue;
    Pixel p[4];
    if (whole_image && first + 4 <= count) {
      uint32_t word[3];
      load_group(reinterpret_cast<const uint32_t*>(image.data) + 3 * (first / 4), word);
      unpack(word, p);
    } else {
      int y = static_cast<int>(by_width(static_cast<uint32_t>(first)));
      int x = first - y * image.width;
      if (whole_rows) {
        uint32_t word[3];
        load_group(words_at(image, x, y), word);
        if (image.mirror_x) {
          uint32_t mirrored[3];
          mirror_four_pixels(word, mirrored);
          unpack(mirrored, p);
        } else {
          unpack(word, p);
        }
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          p[j] = first + j < count ? image.at(x, y) : Pixel{0, 0, 0};
          if (++x == image.width) x = 0, ++y;
        }
      }
    }
    body(first, p);
  }
}

// Calls gather(x, y, edge) -> Pixel, repair(x, y) -> Pixel where that says edge, and through(pixels) for all pixels of the
// part, in strides, and stores what comes out.
template <typename Output, typename Gather, typename Repair, typename Through>
__device__ __forceinline__ void for_strides(const Image& image, const FastDivide& by_width, Part part, const Output& out,
                                            const Gather& gather, const Repair& repair, const Through& through) {
  const int count = image.height * image.width;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  const int pixel = 4 * lane / 3, skew = 8 * (4 * lane % 3);  // of the word that a lane stores
#pragma unroll 1
  for (int unit = part.begin + warp; unit < part.end; unit += warps) {
    const int first = kWarpPixels * unit + lane;
    Pixel p[4];
    bool edge[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int here = min(first + 32 * j, count - 1);
      const int y = static_cast<int>(by_width(static_cast<uint32_t>(here)));
      p[j] = gather(here - y * image.width, y, edge[j]);
    }
    if (edge[0] || edge[1] || edge[2] || edge[3]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!edge[j]) continue;
        const int here = min(first + 32 * j, count - 1);
        const int y = static_cast<int>(by_width(static_cast<uint32_t>(here)));
        p[j] = repair(here - y * image.width, y);
      }
    }
    through(p);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t mine = packed(p[j]);
      const uint32_t low = __shfl_sync(kWholeWarp, mine, pixel), high = __shfl_sync(kWholeWarp, mine, min(pixel + 1, 31));
      const int start = kWarpPixels * unit + 32 * j;
      if (lane < 24 && start + pixel < count) {
        out.store_word(3 * (start / 4) + lane, lane % 3, low >> skew | high << (24 - skew));
      }
    }
  }
}

}  // namespace gpuaug
