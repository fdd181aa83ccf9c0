// From uint8 pixels to the result: one streaming kernel, a tile of a sample a block.
//
// A thread makes pieces of kCount neighbouring values (in channels_last order) and stores them in 16-byte accesses. Samples
// without a program are read from the batch, mirrored as their records say; the others from their scratch images. A mixed
// sample evaluates its partner as well.
#pragma once

#include "../finish.h"
#include "../geometry.h"
#include "bytes.cuh"
#include "launch.h"

namespace gpuaug {

constexpr int kFinishThreads = 96;  // a multiple of 3: a thread meets the same channel order in each of its pieces
constexpr int kFinishSteps = 4;

struct FinishLaunch {
  ByteRange x, scratch;  // scratch is empty without programs
  const int32_t* records;
  const int32_t* ended;  // of samples with a program: whether it wrote the result
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

__device__ __noinline__ Noise noise_at(const int32_t* record, uint32_t pixel) { return noise_of_pixel(record, pixel); }

// All indices are constants, or the values would live in memory, in tiles without erased pixels too.
template <int kCount>
__device__ __forceinline__ void erase_values(const FinishLaunch& launch, const int32_t* record, const Erase& erase, int y,
                                             int offset, int phase, float (&values)[kCount]) {
  if (erase.mode == EraseMode::kNone || y < erase.where.top || y >= erase.where.bottom ||
      offset >= 3 * erase.where.right || offset + kCount <= 3 * erase.where.left) {
    return;
  }
  constexpr int kTouched = (kCount + 4) / 3;  // pixels that a piece can touch, from the one it begins in
  const int column = (offset - phase) / 3;
  float erased[3 * kTouched];
#pragma unroll
  for (int k = 0; k < kTouched; ++k) {
    Noise noise = {};
    if (erase.mode == EraseMode::kNoise && column + k >= erase.where.left && column + k < erase.where.right) {
      noise = noise_at(record, static_cast<uint32_t>(y) * static_cast<uint32_t>(launch.width) + static_cast<uint32_t>(column + k));
    }
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      erased[3 * k + c] = erase.mode == EraseMode::kNoise ? noise_value(noise, c, launch.unit) : erase.value[c];
    }
  }
  const int first = 3 * erase.where.left - offset, last = 3 * erase.where.right - offset;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (j >= first && j < last) values[j] = phase == 0 ? erased[j] : phase == 1 ? erased[j + 1] : erased[j + 2];
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
  erase_values<kCount>(launch, source.record, source.erase, y, offset, phase, values);
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

// What the threads of a block share: a tile of a sample, and a thread's pieces of it.
template <typename T, bool kPlanar, int kSide>
struct Tile {
  static constexpr int kCount = kPlanar ? 3 * kSide : kSide;

  const FinishLaunch& launch;
  T* out;
  int64_t plane;
  uint32_t first, row_length, length;
  int phase;

  __device__ __forceinline__ Tile(const FinishLaunch& l, int64_t sample, uint32_t tile) : launch(l) {
    plane = static_cast<int64_t>(l.height) * l.width;
    out = static_cast<T*>(l.out) + sample * 3 * plane;
    row_length = static_cast<uint32_t>(kPlanar ? l.width : 3 * l.width);
    length = row_length * static_cast<uint32_t>(l.height);
    first = (tile * kFinishSteps * kFinishThreads + threadIdx.x) * kSide;
    phase = kPlanar ? 0 : static_cast<int>(threadIdx.x * kCount % 3);
  }

  __device__ __forceinline__ uint32_t position_of(int step) const { return first + step * kFinishThreads * kSide; }

  __device__ __forceinline__ void place_of(uint32_t position, int& y, int& offset) const {
    const uint32_t row = launch.by_row(position);
    y = static_cast<int>(row);
    offset = static_cast<int>((kPlanar ? 3 : 1) * (position - row * row_length));
  }

  __device__ __forceinline__ void store(uint32_t position, const float (&values)[kCount]) const {
    store_piece<T, kPlanar, kSide>(out, plane, position, values);
  }
};

// Whole pixels around a piece of kCount values, in words: from memory, mirrored or not, with one way of loading.
template <int kCount>
struct Around {
  // Planar pieces are multiples of 12 values at phase 0.
  static constexpr int kPixels = kCount % 12 == 0 ? kCount / 3 : (kCount + 2 + 11) / 12 * 4;
  static constexpr int kWords = kPixels * 3 / 4;
  uint32_t words[kWords];

  // Whether load stays inside the range wherever the piece is.
  __device__ static bool fits(const Image& image, ByteRange range) {
    constexpr int kMost = 4 * kWords + 8;
    return image.data >= range.begin + kMost &&
           image.data + 3 * static_cast<int64_t>(image.height) * image.width + kMost <= range.end;
  }

  __device__ __forceinline__ void load(const Image& image, int y, int offset, int phase) {
    const int row_values = 3 * image.width;
    const int row = image.mirror_y ? image.height - 1 - y : y;
    const int from = image.mirror_x ? row_values - (offset - phase) - 3 * kPixels : offset - phase;
    load_words(image.data + (static_cast<int64_t>(row) * row_values + from), words);
  }

  __device__ __forceinline__ void bytes(const Image& image, int phase, uint32_t (&out)[kCount / 4]) {
    if (image.mirror_x) mirror_pixels(words);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) out[i] = __funnelshift_r(words[i], i + 1 < kWords ? words[i + 1] : 0u, 8 * phase);
  }
};

// A sample that is nothing but its uint8 pixels, of which a rectangle may be erased.
struct PlainSample {
  Image image;
  const int32_t* record;  // where the tile holds erased pixels, else null

  template <int kCount>
  __device__ __forceinline__ void erase(const FinishLaunch& launch, int y, int offset, int phase, float (&values)[kCount]) const {
    if (!record) return;
    erase_values<kCount>(launch, record, Erase(record, launch.height, launch.width, launch.unit), y, offset, phase, values);
  }
};

// kErased: whether the tile may hold erased pixels.
template <bool kErased, typename T, bool kPlanar, int kSide>
__device__ __forceinline__ void copy_tile(const Tile<T, kPlanar, kSide>& tile, const PlainSample& sample) {
  const Image& image = sample.image;
  constexpr int kCount = Tile<T, kPlanar, kSide>::kCount;
  const PhasedAffine affine(tile.launch.affine, tile.phase);
  if constexpr (!kPlanar && !kErased) {
    if (!image.mirror_x && !image.mirror_y && reinterpret_cast<uintptr_t>(image.data) % kCount == 0) {
      uint32_t bytes[kFinishSteps][kCount / 4];
#pragma unroll
      for (int k = 0; k < kFinishSteps; ++k) {
        if (tile.position_of(k) < tile.length) load_words_aligned(image.data + tile.position_of(k), bytes[k]);
      }
#pragma unroll
      for (int k = 0; k < kFinishSteps; ++k) {
        if (tile.position_of(k) >= tile.length) break;
        float values[kCount];
        normalize_bytes<kCount>(affine, bytes[k], values);
        tile.store(tile.position_of(k), values);
      }
      return;
    }
  }
  constexpr int kTogether = kPlanar ? 1 : kErased ? 2 : kFinishSteps;  // pieces whose loads are under way at the same time
#pragma unroll 1
  for (int step = 0; step < kFinishSteps; step += kTogether) {
    Around<kCount> around[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = tile.position_of(step + k);
      if (position >= tile.length) continue;
      int y, offset;
      tile.place_of(position, y, offset);
      around[k].load(image, y, offset, tile.phase);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = tile.position_of(step + k);
      if (position >= tile.length) break;
      uint32_t bytes[kCount / 4];
      around[k].bytes(image, tile.phase, bytes);
      float values[kCount];
      normalize_bytes<kCount>(affine, bytes, values);
      if constexpr (kErased) {
        int y, offset;
        tile.place_of(position, y, offset);
        sample.erase(tile.launch, y, offset, tile.phase, values);
      }
      tile.store(position, values);
    }
  }
}

// AugMix of one sample.
template <typename T, bool kPlanar, int kSide>
__device__ __forceinline__ void sum_tile(const Tile<T, kPlanar, kSide>& tile, const PlainSample& original, int64_t index,
                                         int chains, const int32_t* record) {
  constexpr int kCount = Tile<T, kPlanar, kSide>::kCount;
  const FinishLaunch& launch = tile.launch;
  const PhasedAffine affine(launch.affine, tile.phase);
  const ChainWeights weights(record);
#pragma unroll 1
  for (int step = 0; step < kFinishSteps; ++step) {
    const uint32_t position = tile.position_of(step);
    if (position >= tile.length) return;
    int y, offset;
    tile.place_of(position, y, offset);
    Around<kCount> around;
    around.load(original.image, y, offset, tile.phase);
    uint32_t chain[kMaxChains][kCount / 4];
#pragma unroll
    for (int k = 0; k < kMaxChains; ++k) {  // scratch images and pieces lie at multiples of a word
      if (k >= chains) continue;
      const uint8_t* image = launch.scratch.begin + (k * launch.samples + index) * launch.stride;
      const uint32_t* words = reinterpret_cast<const uint32_t*>(image + (kPlanar ? 3 : 1) * static_cast<int64_t>(position));
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) chain[k][i] = __ldg(words + i);
    }
    uint32_t bytes[kCount / 4];
    around.bytes(original.image, tile.phase, bytes);
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float sum = weights.start(byte_of(bytes[i], j));
#pragma unroll
        for (int k = 0; k < kMaxChains; ++k) {
          if (k < chains) sum = weights.add(sum, k, byte_of(chain[k][i], j));
        }
        word |= static_cast<uint32_t>(truncated_byte(sum)) << (8 * j);
      }
      bytes[i] = word;
    }
    float values[kCount];
    normalize_bytes<kCount>(affine, bytes, values);
    original.erase(launch, y, offset, tile.phase, values);
    tile.store(position, values);
  }
}

// Two mixed samples.
template <bool kErased, typename T, bool kPlanar, int kSide>
__device__ __forceinline__ void mix_tile(const Tile<T, kPlanar, kSide>& tile, const PlainSample& mine,
                                         const PlainSample& theirs, const Mix& mix) {
  constexpr int kCount = Tile<T, kPlanar, kSide>::kCount;
  const PhasedAffine affine(tile.launch.affine, tile.phase);
  constexpr int kTogether = kPlanar || kErased ? 1 : 2;
  const int left = 3 * mix.where.left, right = 3 * mix.where.right;
#pragma unroll 1
  for (int step = 0; step < kFinishSteps; step += kTogether) {
    Around<kCount> around[kTogether], other[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = tile.position_of(step + k);
      if (position >= tile.length) continue;
      int y, offset;
      tile.place_of(position, y, offset);
      around[k].load(mine.image, y, offset, tile.phase);
      other[k].load(theirs.image, y, offset, tile.phase);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const uint32_t position = tile.position_of(step + k);
      if (position >= tile.length) break;
      int y, offset;
      tile.place_of(position, y, offset);
      uint32_t bytes[kCount / 4];
      around[k].bytes(mine.image, tile.phase, bytes);
      float values[kCount], others[kCount];
      normalize_bytes<kCount>(affine, bytes, values);
      if constexpr (kErased) mine.erase(tile.launch, y, offset, tile.phase, values);
      other[k].bytes(theirs.image, tile.phase, bytes);
      normalize_bytes<kCount>(affine, bytes, others);
      if constexpr (kErased) theirs.erase(tile.launch, y, offset, tile.phase, others);
      const bool in_cut = !mix.blend && y >= mix.where.top && y < mix.where.bottom;
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        if (mix.blend) {
          values[j] = mix.blended_value(values[j], others[j]);
        } else if (in_cut && offset + j >= left && offset + j < right) {
          values[j] = others[j];
        }
      }
      tile.store(position, values);
    }
  }
}

// What a record says of a sample, from the words that the lanes of a warp hold: no barrier, no shared memory.
struct Glance {
  int32_t low, high;  // this lane's words of the record's halves
  int32_t flags;
  bool known, programmed;
  int chains;

  __device__ __forceinline__ Glance(const FinishLaunch& launch, int64_t sample) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int32_t* record = launch.records + sample * kRecordWords;
    static_assert(kWordProgram == 32 && kRecordWords == 64);
    low = __ldg(record + lane);
    high = launch.chains > 0 ? __ldg(record + 32 + lane) : 0;  // of no interest where no program runs
    known = word(kWordVersion) == kRecordVersion;
    programmed = __any_sync(0xffffffffu, high != 0) && known && launch.chains > 0;
    flags = known ? word(kWordFlags) : 0;
    const int32_t wanted = word(kWordChains);
    chains = programmed ? clamp_int(wanted, 0, min(launch.chains, kMaxChains)) : 0;
  }

  __device__ __forceinline__ int32_t word(int i) const { return __shfl_sync(0xffffffffu, low, i); }

  __device__ __forceinline__ Rectangle rectangle(int at, int height, int width) const {
    const int32_t words[4] = {word(at), word(at + 1), word(at + 2), word(at + 3)};
    return clipped_rectangle(words, height, width);
  }

  // The sample's uint8 pixels (of AugMix, the original ones) in a tile of these rows.
  __device__ __forceinline__ PlainSample sample(const FinishLaunch& launch, int64_t index, int first_row, int last_row) const {
    PlainSample s;
    if (programmed && chains == 0) {
      s.image = {launch.scratch.begin + index * launch.stride, launch.height, launch.width, false, false};
    } else {
      s.image = {launch.x.begin + index * kChannels * static_cast<int64_t>(launch.height) * launch.width, launch.height,
                 launch.width, (flags & kFlagFlipHorizontal) != 0, (flags & kFlagFlipVertical) != 0};
    }
    s.record = nullptr;
    if (flags & (kFlagEraseConstant | kFlagEraseNoise)) {
      const Rectangle erased = rectangle(kWordErase, launch.height, launch.width);
      if (first_row < erased.bottom && last_row >= erased.top) s.record = launch.records + index * kRecordWords;
    }
    return s;
  }

  // Whether pieces of that may be loaded with what is around them.
  template <int kCount>
  __device__ __forceinline__ bool fits(const FinishLaunch& launch, const PlainSample& s) const {
    return Around<kCount>::fits(s.image, programmed && chains == 0 ? launch.scratch : launch.x);
  }
};

// Any tile.
template <typename T, bool kPlanar, int kSide>
__device__ __forceinline__ void make_tile(const Tile<T, kPlanar, kSide>& tile, const PixelSource& mine,
                                          const PixelSource& theirs, const Mix& mix) {
  constexpr int kCount = Tile<T, kPlanar, kSide>::kCount;
  const PhasedAffine affine(tile.launch.affine, tile.phase);
#pragma unroll 1
  for (int step = 0; step < kFinishSteps; ++step) {
    const uint32_t position = tile.position_of(step);
    if (position >= tile.length) return;
    int y, offset;
    tile.place_of(position, y, offset);
    float values[kCount];
    evaluate<kCount>(tile.launch, mine, affine, y, offset, tile.phase, values);
    if (mix.any()) mix_values<kCount>(tile.launch, mix, theirs, affine, y, offset, tile.phase, values);
    tile.store(position, values);
  }
}

// A piece: kSide pixels, stored in three planes, where kPlanar; else kSide values as they lie.
template <typename T, bool kPlanar, int kSide>
__global__ void __launch_bounds__(kFinishThreads, blocks_at_once(kPlanar ? 8 : 12, kFinishThreads))
    finish(const __grid_constant__ FinishLaunch launch) {
  __shared__ PixelSource mine, theirs;
  const int64_t sample = blockIdx.x / launch.tiles;
  const uint32_t index = static_cast<uint32_t>(blockIdx.x - sample * launch.tiles);
  const Tile<T, kPlanar, kSide> tile(launch, sample, index);
  Mix mix;
  mix.blend = mix.cut = false;
  if constexpr (kSide >= 4) {
    constexpr int kCount = Tile<T, kPlanar, kSide>::kCount;
    constexpr uint32_t kTile = kFinishSteps * kFinishThreads * kSide;
    // Asked for together with the record, which says whether they count. So are the tile's rows, mirrored or not.
    const int32_t ended = launch.ended ? __ldg(launch.ended + sample) : 0;
    if (launch.chains == 0) {
      constexpr uint32_t kBytes = kFinishSteps * kFinishThreads * kCount;
      const uint32_t begin = index * kBytes, image_bytes = kChannels * static_cast<uint32_t>(tile.plane);
      bring_into_l2(launch.x.begin + sample * image_bytes + begin, min(kBytes, image_bytes - begin));
    }
    const Glance glance(launch, sample);
    if (glance.programmed && ended) return;
    const int first_row = static_cast<int>(launch.by_row(index * kTile));
    const int last_row = static_cast<int>(launch.by_row(min((index + 1) * kTile, tile.length) - 1));
    const PlainSample plain = glance.sample(launch, sample, first_row, last_row);
    if (glance.flags & (kFlagMixUp | kFlagCutMix)) {
      mix = Mix(launch.records + sample * kRecordWords, launch.samples, launch.height, launch.width);
      if (mix.cut && (first_row >= mix.where.bottom || last_row < mix.where.top)) mix.cut = false;
    }
    if (glance.fits<kCount>(launch, plain)) {
      if (!mix.any()) {
        if (glance.chains == 0) return plain.record ? copy_tile<true>(tile, plain) : copy_tile<false>(tile, plain);
        return sum_tile(tile, plain, sample, glance.chains, launch.records + sample * kRecordWords);
      }
      if (glance.chains == 0) {
        const Glance partner(launch, mix.partner);
        const PlainSample other = partner.sample(launch, mix.partner, first_row, last_row);
        if (partner.chains == 0 && partner.fits<kCount>(launch, other)) {
          return plain.record || other.record ? mix_tile<true>(tile, plain, other, mix) : mix_tile<false>(tile, plain, other, mix);
        }
      }
    }
  } else {
    mix = Mix(launch.records + sample * kRecordWords, launch.samples, launch.height, launch.width);
  }
  mine.load(launch, sample);
  if (mix.any()) theirs.load(launch, mix.partner);  // the condition is the block's
  __syncthreads();
  make_tile(tile, mine, theirs, mix);
}

}  // namespace gpuaug
