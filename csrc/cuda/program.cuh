// The programs of a batch on the device, from the batch into the samples' scratch images; or, where nothing but normalising
// follows, into the result.
//
// A sample (or AugMix chain) is worked on by `parts` blocks of one thread block cluster, each with its part of the image:
// small pieces, so that no card waits for the last few long programs. Between passes the image lies in one of two scratch
// images, in the L2 cache. Cards without clusters give a sample to one block. Blocks of samples without a program end at
// once, so the records alone decide what runs: nothing about the launch depends on them, and a CUDA graph replays with
// whatever records its tensor then holds.
#pragma once

#include "filter.cuh"
#include "gather.cuh"
#include "launch.h"
#include "output.cuh"
#include "pixels.cuh"

namespace gpuaug {

constexpr int kHistogramCopies = 4;
constexpr int kMostProgramThreads = 224;  // five blocks of 56 registers a thread fit a multiprocessor
constexpr int kStatisticsWords = kChannels * 256;

struct ProgramShared {
  int32_t record[kRecordWords];
  Ops ops;
  Passes passes;
  Stages stages;
  WarpedImage from;  // of the pass under way
  Pass pass;
  FinalImage result;
  SharedBlur blur;
  uint32_t statistics[kStatisticsWords];  // sums, extremes or counts, of the part and then of the image
  uint32_t below[kStatisticsWords];
  uint32_t step[kChannels];
  uint8_t tables[kMaxStages * kTableBytes];
  alignas(16) uint32_t histogram[kStatisticsWords * kHistogramCopies];  // [channel][value][copy]: copies lie in different banks
};

struct ProgramLaunch {
  const uint8_t* x;
  const int32_t* records;
  uint8_t* scratch;      // [chain][sample], the results
  uint8_t* work;         // [sample][chain], between passes
  uint32_t* statistics;  // [block][kStatisticsWords]
  int32_t* ended;        // [sample]: whether the program wrote the result itself
  void* out;             // the result, where values says that programs may write it
  OutputValues values;
  ChannelAffine affine;
  int64_t samples, stride;  // stride of scratch images, a multiple of 16
  int height, width, chains, parts;
  FastDivide by_width;
};

// All blocks of a cluster meet, and see what the others wrote.
__device__ __forceinline__ void sync_parts() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
#else
  __syncthreads();
#endif
}

__device__ __forceinline__ int part_index(const ProgramLaunch& launch) {
  return static_cast<int>(blockIdx.x % static_cast<unsigned>(launch.parts));
}

__device__ __forceinline__ Part part_of(const ProgramLaunch& launch) {
  const int units = (launch.height * launch.width + kWarpPixels - 1) / kWarpPixels;
  const int each = (units + launch.parts - 1) / launch.parts;
  const int begin = part_index(launch) * each;
  return {begin, min(begin + each, units)};
}

// A part of a sample of the batch: asked for before it is known what becomes of it, for that takes as long as memory does.
__device__ __forceinline__ void bring_part_into_l2(const ProgramLaunch& launch, int64_t sample, Part part) {
  const uint32_t pixels = static_cast<uint32_t>(launch.height) * static_cast<uint32_t>(launch.width);
  const uint32_t begin = static_cast<uint32_t>(part.begin) * kWarpPixels;
  const uint32_t end = min(static_cast<uint32_t>(part.end) * kWarpPixels, pixels);
  if (begin < end) bring_into_l2(launch.x + kChannels * (sample * pixels + begin), kChannels * (end - begin));
}

// The parts' first `count` words of shared.statistics, summed or their maxima, in all blocks.
template <bool kSum>
__device__ __forceinline__ void combine_parts(const ProgramLaunch& launch, ProgramShared& shared, int count) {
  __syncthreads();
  if (launch.parts == 1) return;
  uint32_t* mine = launch.statistics + static_cast<int64_t>(blockIdx.x) * kStatisticsWords;
  for (int i = threadIdx.x; i < count; i += blockDim.x) mine[i] = shared.statistics[i];
  sync_parts();
  const uint32_t* all = mine - static_cast<int64_t>(part_index(launch)) * kStatisticsWords;
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    uint32_t value = 0;
#pragma unroll 8
    for (int k = 0; k < launch.parts; ++k) {
      const uint32_t theirs = all[k * kStatisticsWords + i];
      value = kSum ? value + theirs : max(value, theirs);
    }
    shared.statistics[i] = value;
  }
  __syncthreads();
}

// statistics: the low 16 bits of the sum, and what is above them.
__device__ inline void gray_statistics(const ProgramLaunch& launch, const Image& image, Part part, bool pil,
                                       ProgramShared& shared) {
  if (threadIdx.x < 2) shared.statistics[threadIdx.x] = 0;
  __syncthreads();
  const int count = image.height * image.width;
  uint32_t sum = 0;
  for_groups(image, launch.by_width, part, [&](int first, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j < count) sum += static_cast<uint32_t>(pil ? pil_gray_of(p[j]) : gray_of(p[j]));
    }
  });
  uint32_t low = sum & 0xffff, high = sum >> 16;
  for (int d = 16; d > 0; d /= 2) {
    low += __shfl_down_sync(kWholeWarp, low, d);
    high += __shfl_down_sync(kWholeWarp, high, d);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&shared.statistics[0], low);
    atomicAdd(&shared.statistics[1], high);
  }
  combine_parts<true>(launch, shared, 2);
}

__device__ inline float gray_mean(const Image& image, bool pil, const ProgramShared& shared) {
  const uint64_t sum = (static_cast<uint64_t>(shared.statistics[1]) << 16) + shared.statistics[0];
  return gray_mean_of(sum, static_cast<uint64_t>(image.height) * static_cast<uint64_t>(image.width), pil);
}

// statistics: each channel's maximum, and 255 less its minimum.
__device__ inline void range_statistics(const ProgramLaunch& launch, const Image& image, Part part, ProgramShared& shared) {
  if (threadIdx.x < 2 * kChannels) shared.statistics[threadIdx.x] = 0;
  __syncthreads();
  const int count = image.height * image.width;
  Pixel low = {255, 255, 255}, high = {0, 0, 0};
  for_groups(image, launch.by_width, part, [&](int first, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j >= count) continue;
      low = {min(low.r, p[j].r), min(low.g, p[j].g), min(low.b, p[j].b)};
      high = {max(high.r, p[j].r), max(high.g, p[j].g), max(high.b, p[j].b)};
    }
  });
  const auto meet = [&](int at, int value) {
    for (int d = 16; d > 0; d /= 2) value = max(value, __shfl_down_sync(kWholeWarp, value, d));
    if (threadIdx.x % 32 == 0) atomicMax(&shared.statistics[at], static_cast<uint32_t>(value));
  };
  meet(0, high.r), meet(1, high.g), meet(2, high.b);
  meet(3, 255 - low.r), meet(4, 255 - low.g), meet(5, 255 - low.b);
  combine_parts<false>(launch, shared, 2 * kChannels);
}

// statistics: how often each channel has each value.
__device__ inline void histogram_statistics(const ProgramLaunch& launch, const Image& image, Part part, ProgramShared& shared) {
  for (int i = threadIdx.x; i < kStatisticsWords * kHistogramCopies / 4; i += blockDim.x) {
    reinterpret_cast<uint4*>(shared.histogram)[i] = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();
  const int count = image.height * image.width, copy = threadIdx.x % kHistogramCopies;
  for_groups(image, launch.by_width, part, [&](int first, const Pixel (&p)[4]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j >= count) continue;
      atomicAdd(&shared.histogram[p[j].r * kHistogramCopies + copy], 1u);
      atomicAdd(&shared.histogram[(256 + p[j].g) * kHistogramCopies + copy], 1u);
      atomicAdd(&shared.histogram[(512 + p[j].b) * kHistogramCopies + copy], 1u);
    }
  });
  __syncthreads();
  for (int i = threadIdx.x; i < kStatisticsWords; i += blockDim.x) {
    static_assert(kHistogramCopies == 4);
    const uint4 copies = reinterpret_cast<const uint4*>(shared.histogram)[i];
    shared.statistics[i] = copies.x + copies.y + copies.z + copies.w;
  }
  combine_parts<true>(launch, shared, kStatisticsWords);
  // A warp a channel, eight values a lane.
  const int channel = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (channel >= kChannels) return;
  uint32_t counts[8], sum = 0, last_count = 0;
  int last = -1;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    counts[i] = shared.statistics[256 * channel + 8 * lane + i];
    sum += counts[i];
    if (counts[i]) last = 8 * lane + i, last_count = counts[i];
  }
  uint32_t through = sum;
  for (int d = 1; d < 32; d *= 2) {
    const uint32_t lower = __shfl_up_sync(kWholeWarp, through, d);
    if (lane >= d) through += lower;
  }
  uint32_t below = through - sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    shared.below[256 * channel + 8 * lane + i] = below;
    below += counts[i];
  }
  const uint32_t holders = __ballot_sync(kWholeWarp, last >= 0);
  if (lane == 31 - __clz(holders)) shared.step[channel] = equalize_step(static_cast<uint32_t>(count), last_count);
}

// The tables of a pass. Each thread makes its own entries, through all ops of the pass.
__device__ inline void build_tables(const ProgramLaunch& launch, const Pass& pass, const Image& image, Part part,
                                    ProgramShared& shared) {
  const Ops& ops = shared.ops;
  if (pass.first == pass.last) return;
  if (ops.op[pass.first].needs_statistics()) {
    const Op& op = ops.op[pass.first];
    const Image plain = {image.data, image.height, image.width, false, false};  // mirrored, it has the same statistics
    if (op.opcode() == kOpContrast) {
      gray_statistics(launch, plain, part, op.has(kOpFlagPilGray), shared);
    } else if (op.opcode() == kOpAutocontrast) {
      range_statistics(launch, plain, part, shared);
    } else {
      histogram_statistics(launch, plain, part, shared);
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
        if (op.opcode() == kOpContrast) {
          statistics.gray_mean = gray_mean(image, op.has(kOpFlagPilGray), shared);
        } else if (op.opcode() == kOpAutocontrast) {
          statistics.high = static_cast<int>(shared.statistics[channel]);
          statistics.low = 255 - static_cast<int>(shared.statistics[kChannels + channel]);
        } else {
          statistics.below = shared.below[i], statistics.step = shared.step[channel];
        }
      }
      value = table_entry(op, statistics, value);
      shared.tables[stage * kTableBytes + i] = static_cast<uint8_t>(value);
    }
  }
}

// Stages other than one table, out of line: the passes' loops stay small.
__device__ __noinline__ uint4 through_all_stages(const Stages& stages, const uint8_t* tables, uint4 rgb) {
  Pixel p[4] = {unpacked(rgb.x), unpacked(rgb.y), unpacked(rgb.z), unpacked(rgb.w)};
  through_stages(stages, tables, p);
  return make_uint4(packed(p[0]), packed(p[1]), packed(p[2]), packed(p[3]));
}

struct Through {
  const ProgramShared& shared;
  bool none, table;

  __device__ __forceinline__ explicit Through(const ProgramShared& s)
      : shared(s), none(s.stages.count == 0), table(s.stages.count == 1 && s.stages.stage[0].table) {}

  __device__ __forceinline__ void operator()(Pixel (&p)[4]) const {
    if (none) return;
    if (table) {
#pragma unroll
      for (int j = 0; j < 4; ++j) p[j] = looked_up(shared.tables, p[j]);
      return;
    }
    const uint4 rgb = through_all_stages(shared.stages, shared.tables, make_uint4(packed(p[0]), packed(p[1]), packed(p[2]), packed(p[3])));
    p[0] = unpacked(rgb.x), p[1] = unpacked(rgb.y), p[2] = unpacked(rgb.z), p[3] = unpacked(rgb.w);
  }
};

template <Interpolation kInterpolation>
__device__ __forceinline__ void run_warp(const ProgramLaunch& launch, Part part, const Output& out, ProgramShared& shared) {
  const Gather<kInterpolation> gather(shared.from);
  for_strides(gather.image, launch.by_width, part, out, gather,
              [&](int x, int y) { return unpacked(sampled_slowly<kInterpolation>(shared.from, x, y)); }, Through(shared));
}

__device__ __noinline__ uint32_t any_pixel(const ProgramShared& shared, int x, int y) {
  const Image& image = shared.from.image;
  switch (shared.pass.kind) {
    case kPassSharpness: return packed(Sharpness{image, shared.pass.op.number(0)}(x, y));
    case kPassBlurRows: return packed(Blur<false>{image, &shared.blur.whole}(x, y));
    case kPassBlurColumns: return packed(Blur<true>{image, &shared.blur.whole}(x, y));
    default: break;
  }
  switch (shared.from.warp.interpolation) {
    case Interpolation::kNearest: return sampled_slowly<Interpolation::kNearest>(shared.from, x, y);
    case Interpolation::kBilinear: return sampled_slowly<Interpolation::kBilinear>(shared.from, x, y);
    default: return sampled_slowly<Interpolation::kBicubic>(shared.from, x, y);
  }
}

// Any pass that looks at neighbours, a pixel at a time: for the shapes that the others do not take.
__device__ __forceinline__ void run_slowly(const ProgramLaunch& launch, Part part, const Output& out, ProgramShared& shared) {
  const auto nothing = [](int, int, bool& edge) {
    edge = true;
    return Pixel{0, 0, 0};
  };
  for_strides(shared.from.image, launch.by_width, part, out, nothing,
              [&](int x, int y) { return unpacked(any_pixel(shared, x, y)); }, Through(shared));
}

__device__ __forceinline__ void run_pass(const ProgramLaunch& launch, Part part, const Output& out, ProgramShared& shared) {
  const Image image = shared.from.image;
  const PassKind kind = shared.pass.kind;
  if (kind == kPassCopy) {
    const Through through(shared);
    for_groups(image, launch.by_width, part, [&](int first, Pixel (&p)[4]) {
      through(p);
      out.store_group(first, p);
    });
  } else if (kind == kPassWarp && Gather<Interpolation::kNearest>::fits(shared.from)) {
    switch (shared.from.warp.interpolation) {
      case Interpolation::kNearest: return run_warp<Interpolation::kNearest>(launch, part, out, shared);
      case Interpolation::kBilinear: return run_warp<Interpolation::kBilinear>(launch, part, out, shared);
      default: return run_warp<Interpolation::kBicubic>(launch, part, out, shared);
    }
  } else if (kind != kPassWarp && rows_are_words(image)) {
    switch (kind) {
      case kPassSharpness:
        return sharpen_groups(image, shared.pass.op.number(0), launch.by_width, part, out, Through(shared));
      case kPassBlurRows: return blur_rows(image, shared.blur, launch.by_width, part, out, Through(shared));
      default: return blur_columns(image, shared.blur, part_index(launch), launch.parts, out, Through(shared));
    }
  } else {
    run_slowly(launch, part, out, shared);
  }
}

// Whether the sample's last pass may write the result itself: nothing follows but normalising, nobody else mixes it in, and
// the result has the form that Output stores. By the whole block.
__device__ __forceinline__ bool ends_here(const ProgramLaunch& launch, int64_t sample, const int32_t* record) {
  constexpr int32_t kMixes = kFlagMixUp | kFlagCutMix;
  const bool may = launch.values != OutputValues::kNone && record[kWordChains] <= 0 &&
                   !(record[kWordFlags] & (kMixes | kFlagEraseConstant | kFlagEraseNoise));
  bool stays = !may;
  if (may) {
    for (int64_t other = threadIdx.x; other < launch.samples; other += blockDim.x) {
      const int32_t* theirs = launch.records + other * kRecordWords;
      stays = stays || (theirs[kWordPartner] == sample && (theirs[kWordFlags] & kMixes));
    }
  }
  return !__syncthreads_or(stays);
}

__global__ void __launch_bounds__(kMostProgramThreads, blocks_at_once(5, kMostProgramThreads))
    run_programs(const __grid_constant__ ProgramLaunch launch) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  ProgramShared& shared = *reinterpret_cast<ProgramShared*>(dynamic_shared);

  const unsigned task = blockIdx.x / static_cast<unsigned>(launch.parts);
  const int64_t sample = task / static_cast<unsigned>(launch.chains);
  const int chain = static_cast<int>(task % static_cast<unsigned>(launch.chains));
  const Part part = part_of(launch);
  bring_part_into_l2(launch, sample, part);
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
  const bool direct = ends_here(launch, sample, record);  // with a barrier
  if (threadIdx.x == 0) {
    if (part_index(launch) == 0 && chain == 0) launch.ended[sample] = direct;
    shared.result.set(launch.values, launch.out, sample * kChannels * launch.height * launch.width, launch.affine);
  }

  uint8_t* const result = launch.scratch + (chain * launch.samples + sample) * launch.stride;
  uint8_t* const work = launch.work + task * launch.stride;
  const int passes = shared.passes.count;
  for (int k = 0; k < passes; ++k) {
    const Pass& pass = shared.passes.pass[k];
    Image image = batch_image(launch.x, record, sample, launch.height, launch.width);
    if (k > 0) {
      image = {shared.passes.source[k] == kInWork ? work : result, launch.height, launch.width, false, false};
    }
    if (threadIdx.x == 0) plan_stages(shared.ops, pass, shared.stages);
    if (threadIdx.x == 32) {
      shared.pass = pass;
      shared.from.image = image;
      if (pass.kind == kPassWarp) shared.from.warp = warp_of(pass.op, record[kWordFill], image.height, image.width);
    }
    if (threadIdx.x / 32 == 2 && (pass.kind == kPassBlurRows || pass.kind == kPassBlurColumns)) shared.blur.make(pass.op);
    build_tables(launch, pass, image, part, shared);
    __syncthreads();
    const Output out = {shared.passes.source[k + 1] == kInWork ? work : result, direct && k + 1 == passes, shared.result};
    run_pass(launch, part, out, shared);
    if (k + 1 < passes) sync_parts();
  }
}

}  // namespace gpuaug
