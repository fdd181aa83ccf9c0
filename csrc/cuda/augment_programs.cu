// The launch of a batch's programs (program.cuh), and the memory that they need.
#include <algorithm>

#include "augment_kernels.h"
#include "program.cuh"

namespace gpuaug {
namespace {

void check_cuda(const char* op, cudaError_t error) {
  if (error != cudaSuccess) fail(op, ": ", cudaGetErrorString(error));
}

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Units of work of an image.
int64_t units_of(const AugmentLaunch& launch) { return (launch.pixels() + kWarpPixels - 1) / kWarpPixels; }

// Blocks that share an image: small pieces of work, so that the multiprocessors stay busy to the end.
int parts_of(int64_t units, int device) {
  int clusters = 0;
  check_cuda("augment", cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device));
  return clusters ? static_cast<int>(std::clamp<int64_t>(units / 16, 1, 8)) : 1;
}

// Threads for so many warps' work each, in as few rounds as possible, at least the warps that statistics need.
int threads_for(int64_t units) {
  constexpr int64_t kMostWarps = kMostProgramThreads / 32;
  const int64_t rounds = (units + kMostWarps - 1) / kMostWarps;
  return static_cast<int>(32 * std::max<int64_t>(4, (units + rounds - 1) / rounds));
}

// How programs may write the result. Each looks through all records for a sample that mixes it in.
OutputValues values_of(const AugmentLaunch& launch) {
  constexpr int64_t kMostSamples = 512;
  if (!launch.channels_last || launch.width % 4 != 0 || launch.samples > kMostSamples) return OutputValues::kNone;
  switch (launch.type) {
    case Element::kFloat: return OutputValues::kFloat;
    case Element::kHalf: return OutputValues::kHalf;
    case Element::kBFloat16: return OutputValues::kBFloat16;
    default: return OutputValues::kNone;
  }
}

}  // namespace

ProgramScratch plan_scratch(const AugmentLaunch& launch, int device) {
  ProgramScratch scratch;
  const int64_t tasks = launch.samples * launch.chains;
  scratch.parts = parts_of(units_of(launch), device);
  scratch.stride = round_up(kChannels * round_up(launch.pixels(), 4), 16);
  scratch.results_bytes = tasks * scratch.stride;
  scratch.statistics_words = scratch.parts == 1 ? 0 : tasks * scratch.parts * kStatisticsWords;
  scratch.bytes = 2 * scratch.results_bytes + 4 * (scratch.statistics_words + launch.samples);
  return scratch;
}

void launch_programs(const AugmentLaunch& launch, const ProgramScratch& scratch, cudaStream_t stream) {
  const int parts = scratch.parts;
  const ProgramLaunch programs{launch.x,
                               launch.records,
                               scratch.memory,
                               scratch.work(),
                               scratch.statistics(),
                               scratch.ended(),
                               launch.out,
                               values_of(launch),
                               launch.affine,
                               launch.samples,
                               scratch.stride,
                               launch.height,
                               launch.width,
                               launch.chains,
                               parts,
                               FastDivide(static_cast<uint32_t>(launch.width))};
  static_assert(sizeof(ProgramShared) <= 48 * 1024);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(checked_blocks("augment", launch.samples * launch.chains * parts));
  config.blockDim = dim3(static_cast<unsigned>(threads_for((units_of(launch) + parts - 1) / parts)));
  config.dynamicSmemBytes = sizeof(ProgramShared);
  config.stream = stream;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(parts);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = parts == 1 ? 0 : 1;
  check_cuda("augment", cudaLaunchKernelEx(&config, run_programs, programs));
  check_launch("augment");
}

}  // namespace gpuaug
