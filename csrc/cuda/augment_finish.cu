// The launch of augment's last kernel (finish.cuh), for each type, layout and width of piece.
#include "augment_kernels.h"
#include "finish.cuh"

namespace gpuaug {
namespace {

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

}  // namespace

void launch_finish(const AugmentLaunch& launch, const ProgramScratch& scratch, cudaStream_t stream) {
  FinishLaunch finish{{launch.x, launch.x + kChannels * launch.samples * launch.pixels()},
                      {scratch.memory, scratch.memory + scratch.results_bytes},
                      launch.records,
                      scratch.ended(),
                      launch.out,
                      launch.samples,
                      scratch.stride,
                      launch.height,
                      launch.width,
                      launch.chains,
                      0,
                      launch.affine,
                      launch.unit,
                      FastDivide(1)};
  dispatch_element(launch.type, [&](auto zero) {
    using T = decltype(zero);
    if (launch.channels_last) {
      start_finish_pieces<T, false>(finish, stream);
    } else {
      start_finish_pieces<T, true>(finish, stream);
    }
  });
  check_launch("augment");
}

}  // namespace gpuaug
