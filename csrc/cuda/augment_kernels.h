// What augment asks of its kernels: the programs, then the result.
#pragma once

#include <cuda_runtime_api.h>

#include "../pixel.h"
#include "element.h"

namespace gpuaug {

struct AugmentLaunch {
  const uint8_t* x;        // (N, H, W, 3), contiguous, at any byte address
  const int32_t* records;  // one a sample
  void* out;               // (N, 3, H, W)
  Element type;            // of out
  int64_t samples;
  int height, width;
  int chains;  // scratch images a sample needs, 0 without programs
  bool channels_last;
  ChannelAffine affine, unit;  // from pixels, and from erased values, to the result's

  int64_t pixels() const { return static_cast<int64_t>(height) * width; }
};

// The programs' memory: their results, as many images that they have between passes, statistics, and a word a sample.
struct ProgramScratch {
  int64_t stride = 0;  // bytes of an image
  int64_t results_bytes = 0;
  int64_t statistics_words = 0;
  int64_t bytes = 0;
  int parts = 1;  // blocks that share an image
  uint8_t* memory = nullptr;

  uint8_t* work() const { return memory + results_bytes; }
  uint32_t* statistics() const { return reinterpret_cast<uint32_t*>(work() + results_bytes); }
  // Of samples with a program: whether it wrote the result. Null without programs.
  int32_t* ended() const { return memory ? reinterpret_cast<int32_t*>(statistics() + statistics_words) : nullptr; }
};

// Without its memory.
ProgramScratch plan_scratch(const AugmentLaunch& launch, int device);

void launch_programs(const AugmentLaunch& launch, const ProgramScratch& scratch, cudaStream_t stream);
void launch_finish(const AugmentLaunch& launch, const ProgramScratch& scratch, cudaStream_t stream);

}  // namespace gpuaug
