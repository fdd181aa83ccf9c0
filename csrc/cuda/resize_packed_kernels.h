// What resize_packed asks of its kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "../resample.h"
#include "element.h"

namespace gpuaug {

struct PackedLaunch {
  const uint8_t* data;
  const int64_t* offsets;
  const int32_t* sizes;
  const bool* flip;
  int64_t samples, bytes;
  int height, width;
  Interpolation interpolation;
  bool antialias, channels_last;
  ChannelAffine affine;
};

void launch_resize_packed(const PackedLaunch& launch, void* out, Element type, cudaStream_t stream);

}  // namespace gpuaug
