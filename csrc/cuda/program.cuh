// The programs of a batch on the device: one block a sample (or AugMix chain), from the batch into the sample's scratch image.
//
// The image between two passes lies in shared memory when it fits (224 x 224 does on cards with 227 KB a block), else in a
// second scratch image. Blocks of samples without a program end at once, so the records alone decide what runs: nothing
// about the launch depends on them, and a CUDA graph replays with whatever records its tensor then holds.
#pragma once

#include "../augment.h"
#include "launch.h"

namespace gpuaug {

constexpr int kHistogramCopies = 8;

struct ProgramShared {
  int32_t record[kRecordWords];
  Ops ops;
  Passes passes;
  Stages stages;
  BlurKernel blur;
  uint64_t gray_sum;
  int low[kChannels], high[kChannels];
  uint32_t step[kChannels];
  uint32_t below[kChannels * 256];
  uint8_t tables[kMaxStages * kTableBytes];
  uint32_t histogram[kChannels * 256 * kHistogramCopies];  // [channel][value][copy]: copies lie in different banks
};

struct ProgramLaunch {
  const uint8_t* x;
  const int32_t* records;
  uint8_t* scratch;  // [chain][sample], the results
  uint8_t* work;     // [block], where shared memory is too small
  int64_t samples, stride;  // stride of scratch images, a multiple of 16
  int height, width, chains;
  FastDivide by_width;
};

// Four neighbouring pixels (in reading order), packed in three words.
struct FourPixels {
  uint32_t word[3];

  __device__ __forceinline__ explicit FourPixels(const Pixel (&p)[4]) {
    word[0] = p[0].r | p[0].g << 8 | p[0].b << 16 | static_cast<uint32_t>(p[1].r) << 24;
    word[1] = p[1].g | p[1].b << 8 | p[2].r << 16 | static_cast<uint32_t>(p[2].g) << 24;
    word[2] = p[2].b | p[3].r << 8 | p[3].g << 16 | static_cast<uint32_t>(p[3].b) << 24;
  }
};

__device__ __forceinline__ void unpack(const uint32_t (&word)[3], Pixel (&p)[4]) {
  const auto byte = [&](int i) { return static_cast<int>((word[i / 4] >> (8 * (i % 4))) & 0xff); };
#pragma unroll
  for (int j = 0; j < 4; ++j) p[j] = {byte(3 * j), byte(3 * j + 1), byte(3 * j + 2)};
}

__device__ __forceinline__ bool can_load_whole_words(const Image& image) {
  return !image.mirror_x && !image.mirror_y && reinterpret_cast<uintptr_t>(image.data) % 4 == 0;
}

// Calls body(first pixel, how many, pixels) for every four pixels of the image.
template <typename Source, typename Body>
__device__ __forceinline__ void for_four_pixels(const ProgramLaunch& launch, const Image& image, const Source& source,
                                                const Body& body) {
  const int count = image.height * image.width;
  const bool words = std::is_same_v<Source, Copy> && can_load_whole_words(image);
  for (int first = 4 * threadIdx.x; first < count; first += 4 * blockDim.x) {
    const int here = count - first < 4 ? count - first : 4;
    Pixel p[4];
    if (words && here == 4) {
      const uint32_t* from = reinterpret_cast<const uint32_t*>(image.data) + 3 * (first / 4);
      const uint32_t loaded[3] = {from[0], from[1], from[2]};
      unpack(loaded, p);
    } else {
      int y = static_cast<int>(launch.by_width(static_cast<uint32_t>(first)));
      int x = first - y * image.width;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < here) p[j] = source(x, y); else p[j] = {0, 0, 0};
        if (++x == image.width) x = 0, ++y;
      }
    }
    body(first, here, p);
  }
}

__device__ __forceinline__ void store_pixels(uint8_t* out, int first, int here, const Pixel (&p)[4]) {
  if (here == 4) {
    const FourPixels packed(p);
    uint32_t* to = reinterpret_cast<uint32_t*>(out) + 3 * (first / 4);
    to[0] = packed.word[0], to[1] = packed.word[1], to[2] = packed.word[2];
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= here) return;
    uint8_t* to = out + 3 * (first + j);
    to[0] = static_cast<uint8_t>(p[j].r), to[1] = static_cast<uint8_t>(p[j].g), to[2] = static_cast<uint8_t>(p[j].b);
  }
}

__device__ __forceinline__ uint64_t warp_sum(uint64_t value) {
  for (int d = 16; d > 0; d /= 2) value += __shfl_down_sync(0xffffffffu, value, d);
  return value;
}

__device__ inline void gray_statistics(const ProgramLaunch& launch, const Image& image, bool pil, ProgramShared& shared) {
  if (threadIdx.x == 0) shared.gray_sum = 0;
  __syncthreads();
  uint32_t sum = 0;
  for_four_pixels(launch, image, Copy{image}, [&](int, int here, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < here) sum += static_cast<uint32_t>(pil ? pil_gray_of(p[j]) : gray_of(p[j]));
    }
  });
  const uint64_t total = warp_sum(sum);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&shared.gray_sum), static_cast<unsigned long long>(total));
  }
}

__device__ inline void range_statistics(const ProgramLaunch& launch, const Image& image, ProgramShared& shared) {
  if (threadIdx.x < kChannels) shared.low[threadIdx.x] = 255, shared.high[threadIdx.x] = 0;
  __syncthreads();
  Pixel low = {255, 255, 255}, high = {0, 0, 0};
  for_four_pixels(launch, image, Copy{image}, [&](int, int here, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j >= here) continue;
      low = {min(low.r, p[j].r), min(low.g, p[j].g), min(low.b, p[j].b)};
      high = {max(high.r, p[j].r), max(high.g, p[j].g), max(high.b, p[j].b)};
    }
  });
  const auto meet = [&](int channel, int smallest, int largest) {
    for (int d = 16; d > 0; d /= 2) {
      smallest = min(smallest, __shfl_down_sync(0xffffffffu, smallest, d));
      largest = max(largest, __shfl_down_sync(0xffffffffu, largest, d));
    }
    if (threadIdx.x % 32 == 0) atomicMin(&shared.low[channel], smallest), atomicMax(&shared.high[channel], largest);
  };
  meet(0, low.r, high.r), meet(1, low.g, high.g), meet(2, low.b, high.b);
}

__device__ inline void histogram_statistics(const ProgramLaunch& launch, const Image& image, ProgramShared& shared) {
  for (int i = threadIdx.x; i < kChannels * 256 * kHistogramCopies; i += blockDim.x) shared.histogram[i] = 0;
  __syncthreads();
  const int copy = threadIdx.x % kHistogramCopies;
  for_four_pixels(launch, image, Copy{image}, [&](int, int here, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j >= here) continue;
      atomicAdd(&shared.histogram[(p[j].r) * kHistogramCopies + copy], 1u);
      atomicAdd(&shared.histogram[(256 + p[j].g) * kHistogramCopies + copy], 1u);
      atomicAdd(&shared.histogram[(512 + p[j].b) * kHistogramCopies + copy], 1u);
    }
  });
  __syncthreads();
  // A warp a channel, eight values a lane.
  const int channel = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (channel >= kChannels) return;
  uint32_t count[8], sum = 0, last_count = 0;
  int last = -1;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t* copies = shared.histogram + (256 * channel + 8 * lane + i) * kHistogramCopies;
    count[i] = 0;
    for (int k = 0; k < kHistogramCopies; ++k) count[i] += copies[(k + lane) % kHistogramCopies];
    sum += count[i];
    if (count[i]) last = 8 * lane + i, last_count = count[i];
  }
  uint32_t through = sum;
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t lower = __shfl_up_sync(0xffffffffu, through, d);
    if (lane >= d) through += lower;
  }
  uint32_t below = through - sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    shared.below[256 * channel + 8 * lane + i] = below;
    below += count[i];
  }
  const uint32_t holders = __ballot_sync(0xffffffffu, last >= 0);
  if (lane == 31 - __clz(holders)) {
    shared.step[channel] = equalize_step(static_cast<uint32_t>(image.height) * static_cast<uint32_t>(image.width), last_count);
  }
}

// The tables of a pass. Each thread makes its own entries, through all ops of the pass.
__device__ inline void build_tables(const ProgramLaunch& launch, const Pass& pass, const Image& image, ProgramShared& shared) {
  const Ops& ops = shared.ops;
  if (pass.first < pass.last && ops.op[pass.first].needs_statistics()) {
    const Op& op = ops.op[pass.first];
    if (op.opcode() == kOpContrast) {
      gray_statistics(launch, image, op.has(kOpFlagPilGray), shared);
    } else if (op.opcode() == kOpAutocontrast) {
      range_statistics(launch, image, shared);
    } else {
      histogram_statistics(launch, image, shared);
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < kTableBytes; i += blockDim.x) {
    int stage = -1, value = 0;
    bool after_table = false;
    for (int k = pass.first; k < pass.last; ++k) {
      const Op& op = ops.op[k];
      if (adds_stage(op, after_table)) {
        ++stage;
        value = i % 256;
      }
      after_table = op.is_table();
      if (!after_table) continue;
      Statistics statistics = {};
      if (op.needs_statistics()) {  // then it is the pass's first op, and value is i % 256
        const int channel = i / 256;
        const uint64_t pixels = static_cast<uint64_t>(image.height) * image.width;
        if (op.opcode() == kOpContrast) {
          statistics.gray_mean = gray_mean_of(shared.gray_sum, pixels, op.has(kOpFlagPilGray));
        } else if (op.opcode() == kOpAutocontrast) {
          statistics.low = shared.low[channel], statistics.high = shared.high[channel];
        } else {
          statistics.below = shared.below[i], statistics.step = shared.step[channel];
        }
      }
      value = table_entry(op, statistics, value);
      shared.tables[stage * kTableBytes + i] = static_cast<uint8_t>(value);
    }
  }
}

template <bool kShared>
__global__ void __launch_bounds__(kShared ? 1024 : 512, kShared ? 1 : 2) run_programs(const ProgramLaunch launch) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  ProgramShared& shared = *reinterpret_cast<ProgramShared*>(dynamic_shared);

  const int64_t sample = blockIdx.x / launch.chains;
  const int chain = static_cast<int>(blockIdx.x - sample * launch.chains);
  bool programmed = false;
  if (threadIdx.x < kRecordWords) {
    const int32_t word = launch.records[sample * kRecordWords + threadIdx.x];
    shared.record[threadIdx.x] = word;
    programmed = threadIdx.x >= kWordProgram && word != 0;
  }
  const int32_t* record = shared.record;
  if (!__syncthreads_or(programmed) || !has_version(record)) return;
  const int chains = chains_of(record, launch.chains);
  if (chain >= max(chains, 1)) return;
  if (threadIdx.x == 0) {
    read_ops(record, chain, chains > 0, shared.ops);
    plan_passes(shared.ops, shared.passes);
  }
  __syncthreads();

  uint8_t* const result = launch.scratch + (chain * launch.samples + sample) * launch.stride;
  uint8_t* const work = kShared ? dynamic_shared + (sizeof(ProgramShared) + 15) / 16 * 16
                                : launch.work + static_cast<int64_t>(blockIdx.x) * launch.stride;
  const int passes = shared.passes.count;
  for (int k = 0; k < passes; ++k) {
    const Pass& pass = shared.passes.pass[k];
    Image image = batch_image(launch.x, record, sample, launch.height, launch.width);
    if (k > 0) {
      image = {shared.passes.source[k] == kInWork ? work : result, launch.height, launch.width, false, false};
    }
    uint8_t* const out = shared.passes.source[k + 1] == kInWork ? work : result;
    if (threadIdx.x == 0) plan_stages(shared.ops, pass, shared.stages);
    if (threadIdx.x == 32 && (pass.kind == kPassBlurRows || pass.kind == kPassBlurColumns)) {
      make_blur_kernel(pass.op, shared.blur);
    }
    build_tables(launch, pass, image, shared);
    __syncthreads();
    with_pixel_source(pass, image, record[kWordFill], &shared.blur, [&](const auto& source) {
      for_four_pixels(launch, image, source, [&](int first, int here, Pixel (&p)[4]) {
        through_stages(shared.stages, shared.tables, p);
        store_pixels(out, first, here, p);
      });
    });
    __syncthreads();
  }
}

}  // namespace gpuaug
