// What the crop-and-resize ops ask of their kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "../images.h"
#include "element.h"

namespace gpuaug {

struct CropLaunch {
  const char* op;          // for messages
  const int32_t* records;  // one a sample
  int64_t samples;
  int height, width;  // of the result
  bool finish;        // flips and erasing, as the records say
  bool channels_last;
  ChannelAffine affine, unit;
  void* out;
  Element type;  // of out
};

void launch_crop(const CropLaunch& launch, const PackedImages& images, cudaStream_t stream);

// images: descriptors in host memory, one a sample, of pixels in device memory.
void launch_crop(const CropLaunch& launch, const RaggedImage* images, cudaStream_t stream);

}  // namespace gpuaug
