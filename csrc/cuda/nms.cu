// nms on CUDA: blocks of 512 boxes in score order, one launch a block, nothing copied to the host.
//
// The launch for a block tests its boxes against everything kept before (in parallel over both); the thread block that
// finishes last settles the 512 among themselves and appends those that stay. Settling is a fixpoint: in each round, a box
// next to a kept better one falls, and a box without an undecided better neighbour stays; rounds are as many as the longest
// chain of overlaps. Which of the 512 overlap is computed beforehand for all blocks at once. Memory is 64 bytes a box and
// a few arrays; the sequence of launches depends on sizes alone, so it can be captured in a CUDA graph.
#include <algorithm>

#include "launch.h"
#include "nms_kernels.h"

namespace gpuaug {
namespace {

constexpr int kBlock = 512;                  // boxes settled at once, and threads
constexpr int kWords = kBlock / 32;
constexpr int kKeptTile = 64;                // kept boxes in shared memory
constexpr int64_t kMostThreadBlocks = 1024;  // of a launch: further tiles are looped over

struct State {
  int32_t kept;            // boxes kept so far
  uint32_t arrived;        // thread blocks of this launch that are done with their tests
  uint32_t nan;            // whether a box or a score is NaN
  uint32_t unused;
  uint32_t fallen[kWords]; // boxes of this launch's block that an earlier one suppresses
};

// Everything by rank: position in score order.
struct Work {
  State* state;
  float4* box;
  int64_t* box_class;      // null without classes
  float4* kept_box;
  int64_t* kept_class;
  uint32_t* better;        // (kWords, padded): bits of the better boxes of its block that suppress a box
  const int64_t* order;
  int64_t* indices;
  int64_t* kept;
  int32_t count, padded, max_out;
  IouThreshold threshold;
};

__device__ __forceinline__ Box as_box(const float4& v) { return {v.x, v.y, v.z, v.w}; }

__global__ void gather(Work work, const float* __restrict__ boxes, const float* __restrict__ sorted_scores,
                       const int64_t* __restrict__ classes) {
  const int32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) *work.kept = 0;
  if (i < work.max_out) work.indices[i] = -1;
  if (i >= work.count) return;
  const int64_t from = work.order[i];
  const float4 box = make_float4(boxes[4 * from], boxes[4 * from + 1], boxes[4 * from + 2], boxes[4 * from + 3]);
  work.box[i] = box;
  if (classes) work.box_class[i] = classes[from];
  if (isnan(box.x) || isnan(box.y) || isnan(box.z) || isnan(box.w) || isnan(sorted_scores[i])) work.state->nan = 1;
}

// Grid: (blocks of boxes, words). A thread fills one word of one box.
template <bool kClasses>
__global__ void __launch_bounds__(kBlock) find_overlaps(Work work) {
  __shared__ float4 other_box[32];
  __shared__ float other_area[32];
  __shared__ int64_t other_class[32];
  const int32_t start = blockIdx.x * kBlock;
  const int32_t word = blockIdx.y;
  if (threadIdx.x < 32) {
    const int32_t i = min(start + word * 32 + static_cast<int32_t>(threadIdx.x), work.count - 1);
    other_box[threadIdx.x] = work.box[i];
    other_area[threadIdx.x] = box_area(as_box(work.box[i]));
    if constexpr (kClasses) other_class[threadIdx.x] = work.box_class[i];
  }
  __syncthreads();
  const int32_t j = start + threadIdx.x;
  if (j >= work.count) return;
  const int32_t better = min(static_cast<int32_t>(threadIdx.x) - word * 32, 32);  // how many of the 32 are before j
  uint32_t bits = 0;
  if (better > 0) {
    const Box box = as_box(work.box[j]);
    const float area = box_area(box);
    int64_t box_class = 0;
    if constexpr (kClasses) box_class = work.box_class[j];
#pragma unroll 4
    for (int k = 0; k < 32; ++k) {
      bool hit = iou_exceeds(as_box(other_box[k]), other_area[k], box, area, work.threshold);
      if constexpr (kClasses) hit = hit && other_class[k] == box_class;
      bits |= static_cast<uint32_t>(hit) << k;
    }
    if (better < 32) bits &= (1u << better) - 1;
  }
  work.better[static_cast<int64_t>(word) * work.padded + j] = bits;
}

// Whether anything kept before suppresses the thread's box. Tiles of kept boxes are shared out over the thread blocks.
template <bool kClasses>
__device__ __forceinline__ bool falls_to_earlier(const Work& work, int32_t j, int32_t kept) {
  __shared__ float4 tile_box[kKeptTile];
  __shared__ float tile_area[kKeptTile];
  __shared__ int64_t tile_class[kKeptTile];
  const bool real = j < work.count;
  const Box box = real ? as_box(work.box[j]) : Box{0, 0, 0, 0};
  const float area = box_area(box);
  int64_t box_class = 0;
  if constexpr (kClasses) box_class = real ? work.box_class[j] : 0;
  bool fallen = !real;
  for (int64_t first = int64_t{blockIdx.x} * kKeptTile; first < kept; first += int64_t{gridDim.x} * kKeptTile) {
    const int32_t in_tile = static_cast<int32_t>(min(int64_t{kKeptTile}, kept - first));
    __syncthreads();
    if (threadIdx.x < in_tile) {
      const float4 v = work.kept_box[first + threadIdx.x];
      tile_box[threadIdx.x] = v;
      tile_area[threadIdx.x] = box_area(as_box(v));
      if constexpr (kClasses) tile_class[threadIdx.x] = work.kept_class[first + threadIdx.x];
    }
    __syncthreads();
    if (fallen) continue;
#pragma unroll 4
    for (int k = 0; k < in_tile; ++k) {
      bool hit = iou_exceeds(as_box(tile_box[k]), tile_area[k], box, area, work.threshold);
      if constexpr (kClasses) hit = hit && tile_class[k] == box_class;
      fallen = fallen || hit;
    }
  }
  return fallen;
}

template <bool kClasses>
__global__ void __launch_bounds__(kBlock) settle_block(Work work, int32_t block) {
  __shared__ uint32_t undecided[kWords], kept_bits[kWords];
  __shared__ bool is_last;
  const int32_t kept_before = work.state->kept;  // changed by the last thread block only, after all have read it
  if (work.state->nan) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *work.kept = -1;
    return;
  }
  if (kept_before >= work.max_out) return;
  const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t j = block * kBlock + threadIdx.x;

  const bool fallen_here = falls_to_earlier<kClasses>(work, j, kept_before);
  const uint32_t fallen_word = __ballot_sync(0xffffffffu, fallen_here);
  if (lane == 0 && fallen_word) atomicOr(&work.state->fallen[warp], fallen_word);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&work.state->arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();

  bool open = !(__ldcg(&work.state->fallen[warp]) >> lane & 1u);  // neither kept nor fallen yet
  uint32_t better[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    better[w] = open && w <= warp ? work.better[static_cast<int64_t>(w) * work.padded + j] : 0u;
  }
  const uint32_t open_word = __ballot_sync(0xffffffffu, open);
  if (lane == 0) {
    undecided[warp] = open_word;
    kept_bits[warp] = 0;
  }
  bool stays = false;
  while (__syncthreads_or(open)) {
    uint32_t next_to_kept = 0, next_to_undecided = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      next_to_kept |= better[w] & kept_bits[w];
      next_to_undecided |= better[w] & undecided[w];
    }
    stays = stays || (open && !next_to_kept && !next_to_undecided);
    open = open && !next_to_kept && next_to_undecided;
    const uint32_t still_open = __ballot_sync(0xffffffffu, open);
    const uint32_t stay_word = __ballot_sync(0xffffffffu, stays);
    __syncthreads();
    if (lane == 0) {
      undecided[warp] = still_open;
      kept_bits[warp] = stay_word;
    }
  }

  int32_t before = kept_before + __popc(kept_bits[warp] & ((1u << lane) - 1)), total = 0;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const int32_t in_word = __popc(kept_bits[w]);
    if (w < warp) before += in_word;
    total += in_word;
  }
  if (stays && before < work.max_out) {
    work.indices[before] = work.order[j];
    work.kept_box[before] = work.box[j];
    if constexpr (kClasses) work.kept_class[before] = work.box_class[j];
  }
  if (threadIdx.x < kWords) work.state->fallen[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    const int32_t kept = min(kept_before + total, work.max_out);
    work.state->kept = kept;
    work.state->arrived = 0;
    *work.kept = kept;
  }
}

// Where the parts of the scratch memory begin, each aligned to 256 bytes.
struct Layout {
  int64_t padded, most_kept;
  int64_t state, box, kept_box, better, box_class, kept_class;
  int64_t bytes = 0;

  explicit Layout(const NmsLaunch& launch)
      : padded((launch.count + kBlock - 1) / kBlock * kBlock), most_kept(std::min(launch.count, launch.max_out)) {
    state = add<State>(1);
    box = add<float4>(padded);
    kept_box = add<float4>(most_kept);
    better = add<uint32_t>(kWords * padded);
    box_class = add<int64_t>(launch.classes ? padded : 0);
    kept_class = add<int64_t>(launch.classes ? most_kept : 0);
  }

 private:
  template <typename T>
  int64_t add(int64_t values) {
    const int64_t at = bytes;
    bytes += (values * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    return at;
  }
};

template <bool kClasses>
void settle_all(const Work& work, cudaStream_t stream) {
  const int32_t blocks = work.padded / kBlock;
  find_overlaps<kClasses><<<dim3(blocks, kWords), kBlock, 0, stream>>>(work);
  check_launch("nms");
  for (int32_t b = 0; b < blocks; ++b) {
    const int64_t most_kept = std::min<int64_t>(int64_t{b} * kBlock, work.max_out);
    const int64_t grid = std::clamp<int64_t>((most_kept + kKeptTile - 1) / kKeptTile, 1, kMostThreadBlocks);
    settle_block<kClasses><<<static_cast<unsigned>(grid), kBlock, 0, stream>>>(work, b);
  }
  check_launch("nms");
}

}  // namespace

int64_t nms_scratch_bytes(const NmsLaunch& launch) { return Layout(launch).bytes; }

void launch_nms(const NmsLaunch& launch, uint8_t* scratch, cudaStream_t stream) {
  const Layout at(launch);
  const bool classes = launch.classes != nullptr;
  const Work work{reinterpret_cast<State*>(scratch + at.state),
                  reinterpret_cast<float4*>(scratch + at.box),
                  classes ? reinterpret_cast<int64_t*>(scratch + at.box_class) : nullptr,
                  reinterpret_cast<float4*>(scratch + at.kept_box),
                  classes ? reinterpret_cast<int64_t*>(scratch + at.kept_class) : nullptr,
                  reinterpret_cast<uint32_t*>(scratch + at.better),
                  launch.order,
                  launch.indices,
                  launch.kept,
                  static_cast<int32_t>(launch.count),
                  static_cast<int32_t>(at.padded),
                  static_cast<int32_t>(launch.max_out),
                  launch.threshold};
  if (cudaMemsetAsync(work.state, 0, sizeof(State), stream) != cudaSuccess) check_launch("nms");
  const int64_t threads = std::max(launch.count, launch.max_out);
  const unsigned gather_blocks = static_cast<unsigned>(std::max<int64_t>(1, (threads + 255) / 256));
  gather<<<gather_blocks, 256, 0, stream>>>(work, launch.boxes, launch.scores, launch.classes);
  check_launch("nms");
  if (launch.count > 0) classes ? settle_all<true>(work, stream) : settle_all<false>(work, stream);
}

}  // namespace gpuaug
