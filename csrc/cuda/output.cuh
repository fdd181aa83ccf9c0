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

// Word `index` of a sample, four values in a row.
__device__ __noinline__ void store_final_word(const FinalImage& to, uint32_t index, uint32_t word) {
  const float2* channel = to.channel + index % 3;  // 4 * index is its first value
  const float2 constants[3] = {channel[0], channel[1], channel[2]};
  float values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[i] = fmaf(static_cast<float>(byte_of(word, i)), constants[i % 3].x, constants[i % 3].y);
  }
  if (to.values == OutputValues::kFloat) {
    static_cast<float4*>(to.data)[index] = make_float4(values[0], values[1], values[2], values[3]);
  } else if (to.values == OutputValues::kHalf) {
    static_cast<uint2*>(to.data)[index] = make_uint2(pack_pair<torch::headeronly::Half>(values[0], values[1]),
                                                     pack_pair<torch::headeronly::Half>(values[2], values[3]));
  } else {
    static_cast<uint2*>(to.data)[index] = make_uint2(pack_pair<torch::headeronly::BFloat16>(values[0], values[1]),
                                                     pack_pair<torch::headeronly::BFloat16>(values[2], values[3]));
  }
}

struct Output {
  uint8_t* bytes;
  bool final;
  const FinalImage& result;

  __device__ __forceinline__ void store_word(int index, uint32_t word) const {
    if (final) {
      store_final_word(result, static_cast<uint32_t>(index), word);
    } else {
      reinterpret_cast<uint32_t*>(bytes)[index] = word;
    }
  }

  // Four pixels from `first` on; up to three may lie beyond the image's last: scratch images have room for them.
  __device__ __forceinline__ void store_group(int first, const Pixel (&p)[4]) const {
    const int index = 3 * (first / 4);
    store_word(index, p[0].r | p[0].g << 8 | p[0].b << 16 | static_cast<uint32_t>(p[1].r) << 24);
    store_word(index + 1, p[1].g | p[1].b << 8 | p[2].r << 16 | static_cast<uint32_t>(p[2].g) << 24);
    store_word(index + 2, p[2].b | p[3].r << 8 | p[3].g << 16 | static_cast<uint32_t>(p[3].b) << 24);
  }
};

}  // namespace gpuaug
