// What the CUDA ops need around their kernels: the tensors' device, its stream, and the kernels' names of types.
#pragma once

#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "../check.h"
#include "element.h"

namespace gpuaug {

using torch::stable::accelerator::DeviceGuard;

inline cudaStream_t current_stream(const Tensor& t) {
  void* stream = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(t.get_device_index(), &stream));
  return static_cast<cudaStream_t>(stream);
}

// Of the types that are checked before.
inline Element element_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return Element::kByte;
    case ScalarType::Half: return Element::kHalf;
    case ScalarType::BFloat16: return Element::kBFloat16;
    default: return Element::kFloat;
  }
}

}  // namespace gpuaug
