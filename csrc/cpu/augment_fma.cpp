// augment.cpp once more, for x86 CPUs with AVX2 and FMA; augment.cpp picks one when it runs.
//
// What others share (the standard library, torch) is included before the target is raised, and everything of ours lives in
// a namespace of its own here, so that no function compiled for the newer CPUs can be linked into the other copy.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define gpuaug gpuaug_fma
#define GPUAUG_FMA_COPY
#include "augment.cpp"
#pragma GCC pop_options

#endif
