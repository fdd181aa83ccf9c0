// Where a pass writes: an image of bytes, or the result in its own type.
#pragma once

#include "pixels.cuh"

namespace gpuaug {

// The type of a channels_last result, whose rows are whole groups of four pixels.
enum class OutputValues : int { kNone, kFloat, kHalf, kBFloat16 };

// A sample of the result. Lies in shared memory.
struct FinalImage {
  void* data;
  OutputValues values;
  float2 channel[2 * kChannels];  // scale and bias of each channel, twice

  __device__ __forceinline__ void set(OutputValues type, void* out, int64_t at, const ChannelAffine& affine) {
    values = type;
    data = static_cast<uint8_t*>(out) + at * (type == OutputValues::kFloat ? 4 : 2);
#pragma unroll
    for (int c = 0; c < 2 * kChannels; ++c) channel[c] = make_float2(affine.scale[c % 3], affine.bias[c % 3]);
  }
};

// Four values in a row, `at` of them before it in units of four.
__device__ __forceinline__ void store_four(const FinalImage& to, uint32_t at, const float (&values)[4]) {
  if (to.values == OutputValues::kBFloat16) {
    static_cast<uint2*>(to.data)[at] = make_uint2(pack_pair<torch::headeronly::BFloat16>(values[0], values[1]),
                                                  pack_pair<torch::headeronly::BFloat16>(values[2], values[3]));
  } else if (to.values == OutputValues::kHalf) {
    static_cast<uint2*>(to.data)[at] = make_uint2(pack_pair<torch::headeronly::Half>(values[0], values[1]),
                                                  pack_pair<torch::headeronly::Half>(values[2], values[3]));
  } else {
    static_cast<float4*>(to.data)[at] = make_float4(values[0], values[1], values[2], values[3]);
  }
}

// Word `index` of a sample; `phase` is the channel of its first byte. Out of line, as the passes' loops are many.
__device__ __noinline__ void store_final_word(const FinalImage& to, uint32_t index, int phase, uint32_t word) {
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 channel = to.channel[phase + i % 3];
    values[i] = fmaf(static_cast<float>(byte_of(word, i)), channel.x, channel.y);
  }
  store_four(to, index, values);
}

// Three words, whose first byte is a red one.
__device__ __noinline__ void store_final_group(const FinalImage& to, uint32_t index, uint32_t word0, uint32_t word1, uint32_t word2) {
  const uint32_t word[3] = {word0, word1, word2};
  const float2 channel[3] = {to.channel[0], to.channel[1], to.channel[2]};
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = fmaf(static_cast<float>(byte_of(word[k], i)), channel[(k + i) % 3].x, channel[(k + i) % 3].y);
    }
    store_four(to, index + k, values);
  }
}

struct Output {
  uint8_t* bytes;
  bool final;
  const FinalImage& result;

  // `phase`: the channel of the word's first byte.
  __device__ __forceinline__ void store_word(int index, int phase, uint32_t word) const {
    if (final) {
      store_final_word(result, static_cast<uint32_t>(index), phase, word);
    } else {
      reinterpret_cast<uint32_t*>(bytes)[index] = word;
    }
  }

  // Four pixels from `first` on; up to three may lie beyond the image's last: scratch images have room for them.
  __device__ __forceinline__ void store_group(int first, const Pixel (&p)[4]) const {
    const int index = 3 * (first / 4);
    const uint32_t word0 = p[0].r | p[0].g << 8 | p[0].b << 16 | static_cast<uint32_t>(p[1].r) << 24;
    const uint32_t word1 = p[1].g | p[1].b << 8 | p[2].r << 16 | static_cast<uint32_t>(p[2].g) << 24;
    const uint32_t word2 = p[2].b | p[3].r << 8 | p[3].g << 16 | static_cast<uint32_t>(p[3].b) << 24;
    if (final) {
      store_final_group(result, static_cast<uint32_t>(index), word0, word1, word2);
    } else {
      uint32_t* to = reinterpret_cast<uint32_t*>(bytes) + index;
      to[0] = word0, to[1] = word1, to[2] = word2;
    }
  }
};

}  // namespace gpuaug
