// From uint8 pixels to the result: one streaming kernel, a tile of a sample a block.
//
// A thread makes pieces of kCount neighbouring values (in channels_last order) and stores them in 16-byte accesses. Samples
// without a program are read from the batch, mirrored as their records say; the others from their scratch images. A mixed
// sample evaluates its partner as well.
#pragma once

#include "../augment.h"
#include "bytes.cuh"
#include "launch.h"

namespace gpuaug {

constexpr int kFinishThreads = 192;  // a multiple of 3: a thread meets the same channel order in each of its pieces
constexpr int kFinishSteps = 4;

struct FinishLaunch {
  ByteRange x, scratch;  // scratch is empty without programs
  const int32_t* records;
  void* out;
  int64_t samples, stride;  // stride of scratch images
  int height, width, chains;
  uint32_t tiles;  // of a sample
  ChannelAffine affine, unit;
  FastDivide by_row;  // divides by the length of a row: values, or pixels for planar output
};

// Where a sample's finished pixels come from. Lies in shared memory: few threads need its fields at a time.
struct PixelSource {
  int32_t record[kRecordWords];
  Image image;
  ByteRange range;
  int chains;
  const uint8_t* first_chain;
  Erase erase;

  // By the whole block. The result is there after the next barrier.
  __device__ __forceinline__ void load(const FinishLaunch& launch, int64_t sample) {
    bool any = false;
    if (threadIdx.x < kRecordWords) {
      const int32_t word = __ldg(launch.records + sample * kRecordWords + threadIdx.x);
      record[threadIdx.x] = word;
      any = threadIdx.x >= kWordProgram && word != 0;
    }
    const bool programmed = __syncthreads_or(any) && launch.chains > 0 && has_version(record);
    if (threadIdx.x != 0) return;
    image = batch_image(launch.x.begin, record, sample, launch.height, launch.width);
    range = launch.x;
    chains = programmed ? chains_of(record, launch.chains) : 0;
    first_chain = launch.scratch.begin + sample * launch.stride;
    erase = Erase(record, launch.height, launch.width, launch.unit);
    if (programmed && chains == 0) {
      image = {first_chain, launch.height, launch.width, false, false};
      range = launch.scratch;
    }
  }
};

// kCount values of row y from value `offset` of the row on, as bytes; `phase` is the channel of the first.
template <int kCount>
__device__ __forceinline__ void fetch(const Image& image, ByteRange range, int y, int offset, int phase,
                                      uint32_t (&bytes)[(kCount + 3) / 4]) {
  const int row_values = 3 * image.width;
  const uint8_t* row = image.data + static_cast<int64_t>(image.mirror_y ? image.height - 1 - y : y) * row_values;
  if constexpr (kCount >= 4) {
    if (!image.mirror_x) {
      if (can_load_words<kCount / 4>(row + offset, range)) {
        load_words(row + offset, bytes);
        return;
      }
    } else {
      // Whole pixels around the values, in groups of four. Planar pieces are multiples of 12 values at phase 0.
      constexpr int kPixels = kCount % 12 == 0 ? kCount / 3 : (kCount + 2 + 11) / 12 * 4;
      constexpr int kWords = kPixels * 3 / 4;
      const uint8_t* from = row + row_values - (offset - phase) - 3 * kPixels;
      if (can_load_words<kWords>(from, range)) {
        uint32_t words[kWords];
        load_words(from, words);
        mirror_pixels(words);
#pragma unroll
        for (int i = 0; i < kCount / 4; ++i) {
          bytes[i] = __funnelshift_r(words[i], i + 1 < kWords ? words[i + 1] : 0u, 8 * phase);
        }
        return;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < (kCount + 3) / 4; ++i) bytes[i] = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const int value = offset + j, channel = (phase + j) % 3;
    const int from = image.mirror_x ? row_values - 3 - (value - channel) + channel : value;
    bytes[j / 4] |= static_cast<uint32_t>(__ldg(row + from)) << (8 * (j % 4));
  }
}

// scale and bias of the channels in the order in which a piece meets them.
struct PhasedAffine {
  float scale[3], bias[3];

  __device__ PhasedAffine(const ChannelAffine& affine, int phase) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const int channel = phase + c < 3 ? phase + c : phase + c - 3;
      scale[c] = channel == 0 ? affine.scale[0] : channel == 1 ? affine.scale[1] : affine.scale[2];
      bias[c] = channel == 0 ? affine.bias[0] : channel == 1 ? affine.bias[1] : affine.bias[2];
    }
  }
};

__device__ __noinline__ float noise_at(const int32_t* record, uint32_t pixel, int channel) {
  const Noise noise = noise_of_pixel(record, pixel);
  return channel == 0 ? noise.channel[0] : channel == 1 ? noise.channel[1] : noise.channel[2];
}

template <int kCount>
__device__ __forceinline__ void erase_values(const FinishLaunch& launch, const PixelSource& source, int y, int offset,
                                             int phase, float (&values)[kCount]) {
  const int first = 3 * source.erase.where.left, last = 3 * source.erase.where.right;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const int value = offset + j;
    if (value < first || value >= last) continue;
    const int channel = (phase + j) % 3;
    if (source.erase.mode == EraseMode::kConstant) {
      values[j] = source.erase.value[channel];
    } else {
      const uint32_t pixel = static_cast<uint32_t>(y) * static_cast<uint32_t>(launch.width) + static_cast<uint32_t>(value) / 3u;
      values[j] = fmaf(noise_at(source.record, pixel, channel), launch.unit.scale[channel], launch.unit.bias[channel]);
    }
  }
}

template <int kCount>
__device__ __forceinline__ void add_chains(const FinishLaunch& launch, const PixelSource& source, int y, int offset,
                                           int phase,
                                           uint32_t (&bytes)[(kCount + 3) / 4]) {
  const ChainWeights weights(source.record);
  float sum[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) sum[j] = weights.start(byte_of(bytes[j / 4], j % 4));
  for (int k = 0; k < source.chains; ++k) {
    const Image chain = {source.first_chain + k * launch.samples * launch.stride, launch.height, launch.width, false, false};
    uint32_t theirs[(kCount + 3) / 4];
    fetch<kCount>(chain, launch.scratch, y, offset, phase, theirs);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum[j] = weights.add(sum[j], k, byte_of(theirs[j / 4], j % 4));
  }
#pragma unroll
  for (int i = 0; i < (kCount + 3) / 4; ++i) bytes[i] = 0;
#pragma unroll
  for (int j = 0; j < kCount; ++j) bytes[j / 4] |= static_cast<uint32_t>(truncated_byte(sum[j])) << (8 * (j % 4));
}

template <int kCount>
__device__ __forceinline__ void normalize_bytes(const PhasedAffine& affine, const uint32_t (&bytes)[(kCount + 3) / 4],
                                                float (&values)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    values[j] = fmaf(static_cast<float>(byte_of(bytes[j / 4], j % 4)), affine.scale[j % 3], affine.bias[j % 3]);
  }
}

// A piece of a sample, normalised and erased.
template <int kCount>
__device__ __forceinline__ void evaluate(const FinishLaunch& launch, const PixelSource& source, const PhasedAffine& affine,
                                         int y, int offset, int phase, float (&values)[kCount]) {
  uint32_t bytes[(kCount + 3) / 4];
  fetch<kCount>(source.image, source.range, y, offset, phase, bytes);
  if (source.chains > 0) add_chains<kCount>(launch, source, y, offset, phase, bytes);
  normalize_bytes<kCount>(affine, bytes, values);
  const Erase& erase = source.erase;
  if (erase.mode != EraseMode::kNone && y >= erase.where.top && y < erase.where.bottom &&
      offset < 3 * erase.where.right && offset + kCount > 3 * erase.where.left) {
    erase_values<kCount>(launch, source, y, offset, phase, values);
  }
}

template <int kCount>
__device__ __forceinline__ void mix_values(const FinishLaunch& launch, const Mix& mix, const PixelSource& partner,
                                           const PhasedAffine& affine, int y, int offset, int phase, float (&values)[kCount]) {
  if (mix.cut && (y < mix.where.top || y >= mix.where.bottom || offset >= 3 * mix.where.right ||
                  offset + kCount <= 3 * mix.where.left)) {
    return;
  }
  float theirs[kCount];
  evaluate<kCount>(launch, partner, affine, y, offset, phase, theirs);
  if (mix.blend) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] = mix.blended_value(values[j], theirs[j]);
  } else {
    const int first = 3 * mix.where.left - offset, last = 3 * mix.where.right - offset;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (j >= first && j < last) values[j] = theirs[j];
    }
  }
}

// Stores kCount values that lie side by side, rounded to T.
template <typename T, int kCount>
__device__ __forceinline__ void store_values(T* out, const float (&values)[kCount]) {
  if constexpr (kCount * sizeof(T) < 4) {
    for (int j = 0; j < kCount; ++j) out[j] = finished<T>(values[j]);
  } else {
    uint32_t words[kCount * sizeof(T) / 4];
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) words[j] = __float_as_uint(values[j]);
    } else if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int j = 0; j < kCount; j += 2) words[j / 2] = pack_pair<T>(values[j], values[j + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        words[i] = 0;
        for (int j = 0; j < 4; ++j) words[i] |= static_cast<uint32_t>(finished<uint8_t>(values[4 * i + j])) << (8 * j);
      }
    }
    store_words(out, words);
  }
}

template <typename T, bool kPlanar, int kSide>
__device__ __forceinline__ void store_piece(T* sample, int64_t plane, uint32_t position,
                                            const float (&values)[kPlanar ? 3 * kSide : kSide]) {
  if constexpr (kPlanar) {
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      float channel[kSide];
#pragma unroll
      for (int j = 0; j < kSide; ++j) channel[j] = values[3 * j + c];
      store_values<T, kSide>(sample + c * plane + position, channel);
    }
  } else {
    store_values<T, kSide>(sample + position, values);
  }
}

// A piece: kSide pixels, stored in three planes, where kPlanar; else kSide values as they lie.
template <typename T, bool kPlanar, int kSide>
__global__ void __launch_bounds__(kFinishThreads) finish(const FinishLaunch launch) {
  constexpr int kCount = kPlanar ? 3 * kSide : kSide;
  __shared__ PixelSource mine, theirs;
  const int64_t sample = blockIdx.x / launch.tiles;
  const uint32_t tile = static_cast<uint32_t>(blockIdx.x - sample * launch.tiles);
  mine.load(launch, sample);
  const Mix mix(mine.record, launch.samples, launch.height, launch.width);
  if (mix.any()) theirs.load(launch, mix.partner);  // the condition is the block's
  __syncthreads();

  const int phase = kPlanar ? 0 : static_cast<int>(threadIdx.x * kCount % 3);
  const PhasedAffine affine(launch.affine, phase);
  const uint32_t row_length = static_cast<uint32_t>(kPlanar ? launch.width : 3 * launch.width);
  const uint32_t length = row_length * static_cast<uint32_t>(launch.height);
  const int64_t plane = static_cast<int64_t>(launch.height) * launch.width;
  T* const out = static_cast<T*>(launch.out) + sample * 3 * plane;
  const uint32_t first = (tile * kFinishSteps * kFinishThreads + threadIdx.x) * kSide;
  const auto position_of = [&](int step) { return first + step * kFinishThreads * kSide; };
  const auto place_of = [&](uint32_t position, int& y, int& offset) {
    const uint32_t row = launch.by_row(position);
    y = static_cast<int>(row);
    offset = static_cast<int>((kPlanar ? 3 : 1) * (position - row * row_length));
  };

  if (mix.any() || mine.chains > 0 || mine.erase.mode != EraseMode::kNone) {
#pragma unroll 1
    for (int step = 0; step < kFinishSteps; ++step) {
      const uint32_t position = position_of(step);
      if (position >= length) return;
      int y, offset;
      place_of(position, y, offset);
      float values[kCount];
      evaluate<kCount>(launch, mine, affine, y, offset, phase, values);
      if (mix.any()) mix_values<kCount>(launch, mix, theirs, affine, y, offset, phase, values);
      store_piece<T, kPlanar, kSide>(out, plane, position, values);
    }
    return;
  }
  constexpr int kTogether = kPlanar ? 1 : kFinishSteps;  // pieces whose loads are under way at the same time
  const Image image = mine.image;
  const ByteRange range = mine.range;
#pragma unroll 1
  for (int step = 0; step < kFinishSteps; step += kTogether) {
    uint32_t bytes[kTogether][(kCount + 3) / 4];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = position_of(step + k);
      if (position >= length) continue;
      int y, offset;
      place_of(position, y, offset);
      fetch<kCount>(image, range, y, offset, phase, bytes[k]);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = position_of(step + k);
      if (position >= length) continue;
      float values[kCount];
      normalize_bytes<kCount>(affine, bytes[k], values);
      store_piece<T, kPlanar, kSide>(out, plane, position, values);
    }
  }
}

}  // namespace gpuaug
