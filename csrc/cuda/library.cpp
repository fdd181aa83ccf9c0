// What the CUDA library says about itself.
#include <torch/csrc/stable/library.h>

#include <string>

STABLE_TORCH_LIBRARY_FRAGMENT(lightning_gpuaug, m) { m.def("cuda_build_info() -> str"); }

static std::string cuda_build_info() {
  return "{\"cuda\": \"" GPUAUG_CUDA_VERSION "\", \"cuda_archs\": \"" GPUAUG_CUDA_ARCHS_TEXT "\"}";
}

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CompositeExplicitAutograd, m) {
  m.impl("cuda_build_info", TORCH_BOX(&cuda_build_info));
}
