// What warp and its gradient ask of their kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "../warp_shape.h"
#include "element.h"

namespace gpuaug {

struct WarpLaunch {
  const void* in;  // x, or the result's gradient
  const float* matrices;
  void* out;     // the result, or float32 sums of x's gradient
  Element type;  // of in; for the gradient not uint8
  Interpolation interpolation;
  const WarpShape& shape;
};

void launch_warp(const WarpLaunch& launch, cudaStream_t stream);
void launch_warp_backward(const WarpLaunch& launch, cudaStream_t stream);

}  // namespace gpuaug
