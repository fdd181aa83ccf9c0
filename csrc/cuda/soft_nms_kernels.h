// What soft_nms asks of its kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "../box.h"

namespace gpuaug {

struct SoftWork {
  const float* boxes;
  float* scores;  // NaN marks a box that is selected or whose score is spent
  int64_t* indices;
  float* selected_scores;
  int64_t* kept;
  int32_t count;
  SoftRule rule;
};

void launch_soft_nms(const SoftWork& work, cudaStream_t stream);

}  // namespace gpuaug
