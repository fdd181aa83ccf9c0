// What nms asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "../box.h"

namespace gpuaug {

struct NmsLaunch {
  const float* boxes;
  const float* scores;     // descending
  const int64_t* order;    // the box of each score
  const int64_t* classes;  // null without classes
  int64_t count, max_out;
  IouThreshold threshold;
  int64_t* indices;
  int64_t* kept;
};

int64_t nms_scratch_bytes(const NmsLaunch& launch);
void launch_nms(const NmsLaunch& launch, uint8_t* scratch, cudaStream_t stream);

}  // namespace gpuaug
