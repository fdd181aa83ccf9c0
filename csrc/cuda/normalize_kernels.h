// What normalize asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "../pixel.h"
#include "element.h"

namespace gpuaug {

struct NormalizeLaunch {
  const uint8_t* x;  // (N, H, W, 3), contiguous, at any byte address
  const bool* flip;  // (N,), or null
  void* out;         // (N, 3, H, W), contiguous or channels_last
  Element type;      // of out
  int64_t samples, height, width;
  ChannelAffine affine;
  bool channels_last;
};

// A sample has at most 2**29 pixels.
void launch_normalize(const NormalizeLaunch& launch, cudaStream_t stream);

}  // namespace gpuaug
