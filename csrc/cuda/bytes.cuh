// Bytes in registers: loads from any address, mirrored and de-interleaved RGB pixels, 16-byte stores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

#include "../pixel.h"

namespace gpuaug {

// The bytes that a kernel may read.
struct ByteRange {
  const uint8_t* begin;
  const uint8_t* end;
};

// Whether load_words<kWords>(p) stays inside range: it reads whole aligned words.
template <int kWords>
__device__ __forceinline__ bool can_load_words(const uint8_t* p, ByteRange range) {
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3u;
  return p >= range.begin + skew && p + 4 * kWords + ((4 - skew) & 3u) <= range.end;
}

// 4 * kWords bytes from any address, through aligned 32-bit loads and funnel shifts. Little endian: the first byte is
// the low byte of words[0].
template <int kWords>
__device__ __forceinline__ void load_words(const uint8_t* p, uint32_t (&words)[kWords]) {
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3u;
  const uint32_t* aligned = reinterpret_cast<const uint32_t*>(p - skew);
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldg(aligned + i);
  const uint32_t last = skew ? __ldg(aligned + kWords) : 0u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = __funnelshift_r(words[i], i + 1 < kWords ? words[i + 1] : last, 8 * skew);
  }
}

// The same from an address that is a multiple of 4 * kWords, in one load. kWords is 1, 2 or 4.
template <int kWords>
__device__ __forceinline__ void load_words_aligned(const uint8_t* p, uint32_t (&words)[kWords]) {
  if constexpr (kWords == 1) {
    words[0] = __ldg(reinterpret_cast<const uint32_t*>(p));
  } else if constexpr (kWords == 2) {
    const uint2 v = __ldg(reinterpret_cast<const uint2*>(p));
    words[0] = v.x, words[1] = v.y;
  } else {
    static_assert(kWords == 4);
    const uint4 v = __ldg(reinterpret_cast<const uint4*>(p));
    words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
  }
}

__device__ __forceinline__ void bring_into_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// `count` bytes, by the whole block: what its threads will read once they know how.
__device__ __forceinline__ void bring_into_l2(const uint8_t* begin, uint32_t count) {
  constexpr uint32_t kLine = 128;
  for (uint32_t at = kLine * threadIdx.x; at < count; at += kLine * blockDim.x) bring_into_l2(begin + at);
}

__device__ __forceinline__ uint8_t byte_of(uint32_t word, int index) { return (word >> (8 * index)) & 0xff; }

// RGB RGB RGB RGB, four pixels in three words, in the opposite pixel order.
__device__ __forceinline__ void mirror_four_pixels(const uint32_t* in, uint32_t* out) {
  out[0] = __byte_perm(in[1], in[2], 0x2765);                              // bytes 9 10 11 6
  out[1] = __byte_perm(__byte_perm(in[1], in[2], 0x0043), in[0], 0x3710);  // bytes 7 8 3 4
  out[2] = __byte_perm(in[0], in[1], 0x2105);                              // bytes 5 0 1 2
}

// kWords words of RGB pixels (four pixels are three words), in the opposite pixel order.
template <int kWords>
__device__ __forceinline__ void mirror_pixels(uint32_t (&words)[kWords]) {
  static_assert(kWords % 3 == 0);
  uint32_t mirrored[kWords];
#pragma unroll
  for (int i = 0; i < kWords; i += 3) mirror_four_pixels(words + kWords - 3 - i, mirrored + i);
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = mirrored[i];
}

// One channel of four RGB pixels.
__device__ __forceinline__ uint32_t channel_of_four_pixels(const uint32_t* rgb, int channel) {
  if (channel == 0) return __byte_perm(__byte_perm(rgb[0], rgb[1], 0x0630), rgb[2], 0x5210);
  if (channel == 1) return __byte_perm(__byte_perm(rgb[0], rgb[1], 0x0741), rgb[2], 0x6210);
  return __byte_perm(__byte_perm(rgb[0], rgb[1], 0x0052), rgb[2], 0x7410);
}

// Two values rounded to nearest even and packed, the first in the low half: normalize_pixel in pairs.
template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float first, float second);

template <>
__device__ __forceinline__ uint32_t pack_pair<torch::headeronly::Half>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return reinterpret_cast<const uint32_t&>(pair);
}

template <>
__device__ __forceinline__ uint32_t pack_pair<torch::headeronly::BFloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return reinterpret_cast<const uint32_t&>(pair);
}

template <int kWords>
__device__ __forceinline__ void store_words(void* out, const uint32_t (&words)[kWords]) {
  if constexpr (kWords == 1) {
    *static_cast<uint32_t*>(out) = words[0];
  } else if constexpr (kWords == 2) {
    *static_cast<uint2*>(out) = make_uint2(words[0], words[1]);
  } else {
    static_assert(kWords == 4);
    *static_cast<uint4*>(out) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Normalises kCount bytes and stores them in one access of kCount * sizeof(T) bytes (4, 8 or 16). constants(j) gives
// the {scale, bias} of byte j.
template <typename T, int kCount, typename Constants>
__device__ __forceinline__ void normalize_and_store(T* out, const uint32_t (&bytes)[kCount / 4],
                                                    const Constants& constants) {
  uint32_t words[kCount * sizeof(T) / 4];
  if constexpr (sizeof(T) == 1) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) words[i] = bytes[i];
  } else {
#pragma unroll
    for (int j = 0; j < kCount; j += 2) {
      const float2 first = constants(j), second = constants(j + 1);
      const float a = normalize_pixel<float>(byte_of(bytes[j / 4], j % 4), first.x, first.y);
      const float b = normalize_pixel<float>(byte_of(bytes[j / 4], j % 4 + 1), second.x, second.y);
      if constexpr (sizeof(T) == 4) {
        words[j] = __float_as_uint(a);
        words[j + 1] = __float_as_uint(b);
      } else {
        words[j / 2] = pack_pair<T>(a, b);
      }
    }
  }
  store_words(out, words);
}

}  // namespace gpuaug
