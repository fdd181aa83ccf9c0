// augment on CUDA: two launches, the programs (program.cuh) and the result (finish.cuh). No synchronisation, and no memory
// beyond the output and one scratch from torch's caching allocator.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "finish.cuh"
#include "program.cuh"

namespace gpuaug {
namespace {

void check_cuda(const char* op, cudaError_t error) {
  if (error != cudaSuccess) fail(op, ": ", cudaGetErrorString(error));
}

unsigned checked_blocks(const char* op, int64_t blocks) {
  if (blocks > INT32_MAX) fail(op, ": x has too many samples for one call: ", blocks, " blocks");
  return static_cast<unsigned>(blocks);
}

constexpr int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

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
OutputValues values_of(const AugmentCall& call) {
  constexpr int64_t kMostSamples = 512;
  if (!call.channels_last || call.width % 4 != 0 || call.samples > kMostSamples) return OutputValues::kNone;
  switch (call.out.scalar_type()) {
    case ScalarType::Float: return OutputValues::kFloat;
    case ScalarType::Half: return OutputValues::kHalf;
    case ScalarType::BFloat16: return OutputValues::kBFloat16;
    default: return OutputValues::kNone;
  }
}

// The programs' results; an undefined pointer without programs.
struct Scratch {
  std::optional<Tensor> memory;
  uint8_t* images = nullptr;
  int32_t* ended = nullptr;  // a word a sample: whether its program wrote the result; undefined without a program
  int64_t stride = 0, bytes = 0;
};

Scratch run_all_programs(const AugmentCall& call, cudaStream_t stream) {
  Scratch scratch;
  if (call.chains == 0) return scratch;
  const int64_t units = (call.pixels() + kWarpPixels - 1) / kWarpPixels;
  const int parts = parts_of(units, call.x.get_device_index());
  const int64_t tasks = call.samples * call.chains, blocks = tasks * parts;
  scratch.stride = round_up(kChannels * round_up(call.pixels(), 4), 16);
  scratch.bytes = tasks * scratch.stride;
  const int64_t statistics_words = parts == 1 ? 0 : blocks * kStatisticsWords;
  scratch.memory = torch::stable::empty({2 * scratch.bytes + 4 * (statistics_words + call.samples)}, ScalarType::Byte,
                                        std::nullopt, call.x.device());
  scratch.images = static_cast<uint8_t*>(scratch.memory->mutable_data_ptr());
  uint32_t* const statistics = reinterpret_cast<uint32_t*>(scratch.images + 2 * scratch.bytes);
  scratch.ended = reinterpret_cast<int32_t*>(statistics + statistics_words);
  const ProgramLaunch launch{call.x.const_data_ptr<uint8_t>(),
                             call.params.const_data_ptr<int32_t>(),
                             scratch.images,
                             scratch.images + scratch.bytes,
                             statistics,
                             scratch.ended,
                             call.out.mutable_data_ptr(),
                             values_of(call),
                             call.affine,
                             call.samples,
                             scratch.stride,
                             call.height,
                             call.width,
                             call.chains,
                             parts,
                             FastDivide(static_cast<uint32_t>(call.width))};
  static_assert(sizeof(ProgramShared) <= 48 * 1024);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(checked_blocks("augment", blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads_for((units + parts - 1) / parts)));
  config.dynamicSmemBytes = sizeof(ProgramShared);
  config.stream = stream;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(parts);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = parts == 1 ? 0 : 1;
  check_cuda("augment", cudaLaunchKernelEx(&config, run_programs, launch));
  check_launch("augment");
  return scratch;
}

template <typename T, bool kPlanar, int kSide>
void start_finish(FinishLaunch& launch, cudaStream_t stream) {
  const int64_t row = kPlanar ? launch.width : 3 * launch.width;
  constexpr int64_t kTile = kFinishThreads * kFinishSteps * kSide;
  launch.tiles = static_cast<uint32_t>((row * launch.height + kTile - 1) / kTile);
  launch.by_row = FastDivide(static_cast<uint32_t>(row));
  const unsigned blocks = checked_blocks("augment", launch.samples * launch.tiles);
  finish<T, kPlanar, kSide><<<blocks, kFinishThreads, 0, stream>>>(launch);
}

// The widest pieces that do not straddle rows.
template <typename T, bool kPlanar>
void start_finish_pieces(FinishLaunch& launch, cudaStream_t stream) {
  constexpr int kWidest = 16 / sizeof(T);
  const int64_t row = kPlanar ? launch.width : 3 * launch.width;
  if (row % kWidest == 0) {
    start_finish<T, kPlanar, kWidest>(launch, stream);
  } else if (row % 4 == 0) {
    start_finish<T, kPlanar, 4>(launch, stream);
  } else {
    start_finish<T, kPlanar, 1>(launch, stream);
  }
}

Tensor augment(const Tensor& x, const Tensor& params, std::vector<double> mean, std::vector<double> std, ScalarType dtype,
               bool channels_last, int64_t chains) {
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const AugmentCall call = prepare_augment("augment", x, params, mean, std, dtype, channels_last, chains);
  if (call.out.numel() == 0) return call.out;
  const cudaStream_t stream = current_stream(x);
  const Scratch scratch = run_all_programs(call, stream);
  const uint8_t* pixels = call.x.const_data_ptr<uint8_t>();
  FinishLaunch launch{{pixels, pixels + call.x.numel()},
                      {scratch.images, scratch.images + scratch.bytes},
                      call.params.const_data_ptr<int32_t>(),
                      scratch.ended,
                      call.out.mutable_data_ptr(),
                      call.samples,
                      scratch.stride,
                      call.height,
                      call.width,
                      call.chains,
                      0,
                      call.affine,
                      call.unit,
                      FastDivide(1)};
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (call.channels_last) {
      start_finish_pieces<T, false>(launch, stream);
    } else {
      start_finish_pieces<T, true>(launch, stream);
    }
  });
  check_launch("augment");
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("augment", TORCH_BOX(&gpuaug::augment)); }
