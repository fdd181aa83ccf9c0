// soft_nms on CUDA: one thread block, since each selection depends on all decays before it.
//
// A pass decays a thread's scores and finds its best at once; the block's best is the next selection.
#include "launch.h"
#include "soft_nms_kernels.h"

namespace gpuaug {
namespace {

constexpr int kThreads = 1024;

__device__ __forceinline__ Box load_box(const float* boxes, int64_t i) {
  return {boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]};
}

__device__ __forceinline__ uint64_t larger_of_block(uint64_t key, uint64_t* warp_keys) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_down_sync(0xffffffffu, key, offset);
    key = other > key ? other : key;
  }
  if (threadIdx.x % 32 == 0) warp_keys[threadIdx.x / 32] = key;
  __syncthreads();
  key = warp_keys[threadIdx.x % 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, offset);
    key = other > key ? other : key;
  }
  __syncthreads();
  return key;
}

__global__ void __launch_bounds__(kThreads) select_softly(SoftWork work) {
  __shared__ uint64_t warp_keys[kThreads / 32];
  const float spent = __int_as_float(0x7fc00000);
  bool nan = false;
  uint64_t best = 0;
  for (int32_t i = threadIdx.x; i < work.count; i += kThreads) {
    work.indices[i] = -1;
    work.selected_scores[i] = 0.0f;
    const Box box = load_box(work.boxes, i);
    const float score = work.scores[i];
    nan = nan || isnan(box.x1) || isnan(box.y1) || isnan(box.x2) || isnan(box.y2) || isnan(score);
    if (score >= work.rule.min_score) {
      const uint64_t key = selection_key(score, i);
      best = key > best ? key : best;
    } else {
      work.scores[i] = spent;
    }
  }
  if (__syncthreads_or(nan)) {
    if (threadIdx.x == 0) *work.kept = -1;
    return;
  }
  int64_t kept = 0;
  for (;;) {
    best = larger_of_block(best, warp_keys);
    if (best == 0) break;
    const int32_t chosen = static_cast<int32_t>(selected_index(best));
    const Box selected = load_box(work.boxes, chosen);
    const float selected_area = box_area(selected);
    best = 0;
    for (int32_t i = threadIdx.x; i < work.count; i += kThreads) {
      float score = work.scores[i];
      if (isnan(score)) continue;
      if (i == chosen) {
        work.indices[kept] = chosen;
        work.selected_scores[kept] = score;
        work.scores[i] = spent;
        continue;
      }
      const Box box = load_box(work.boxes, i);
      score = decayed_score(score, selected, selected_area, box, box_area(box), work.rule);
      const bool enough = score >= work.rule.min_score;
      work.scores[i] = enough ? score : spent;
      if (enough) {
        const uint64_t key = selection_key(score, i);
        best = key > best ? key : best;
      }
    }
    ++kept;
  }
  if (threadIdx.x == 0) *work.kept = kept;
}

}  // namespace

void launch_soft_nms(const SoftWork& work, cudaStream_t stream) {
  select_softly<<<1, kThreads, 0, stream>>>(work);
  check_launch("soft_nms");
}

}  // namespace gpuaug
