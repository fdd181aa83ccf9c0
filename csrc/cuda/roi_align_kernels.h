// What roi_align and its gradient ask of their kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "../roi.h"
#include "element.h"

namespace gpuaug {

struct RoiAlignLaunch {
  const void* in;     // x, or the result's gradient
  const float* rois;  // (K, 5), contiguous
  void* out;          // the result, or float32 sums of x's gradient
  Element type;       // of x; not uint8
  int64_t count, images, channels;
  int32_t height, width;
  bool channels_last;
  RoiOptions options;
};

void launch_roi_align(const RoiAlignLaunch& launch, cudaStream_t stream);
void launch_roi_align_backward(const RoiAlignLaunch& launch, cudaStream_t stream);

}  // namespace gpuaug
