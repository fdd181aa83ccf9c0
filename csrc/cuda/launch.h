// What every kernel and its launch need.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../fail.h"

namespace gpuaug {

inline void check_launch(const char* op) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaErrorNoKernelImageForDevice) {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    fail(op, ": the CUDA kernels are built for compute capabilities ", GPUAUG_CUDA_ARCHS_TEXT, ", this GPU has ", major, ".",
         minor, "; rebuild with GPUAUG_CUDA_ARCHS=", major, minor);
  }
  if (error != cudaSuccess) fail(op, ": CUDA kernel launch failed: ", cudaGetErrorString(error));
}

inline unsigned checked_blocks(const char* op, int64_t blocks) {
  if (blocks > INT32_MAX) fail(op, ": x has too many samples for one call: ", blocks, " blocks");
  return static_cast<unsigned>(blocks);
}

// What launch bounds may ask for: blocks of `threads` at once on a multiprocessor, of which compute capability 7.5 holds
// 1024 threads, the others 1536 and more.
constexpr int blocks_at_once(int wanted, int threads) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return wanted * threads <= 1024 ? wanted : 1024 / threads;
#else
  return wanted * threads <= 1536 ? wanted : 1536 / threads;
#endif
}

// Exact n / divisor for n < 2**31 by one multiplication: ceil(2**(31 + s) / d) with 2**s >= d errs by less than
// 2**s / 2**(31 + s) a unit of n, too little to reach the next integer.
struct FastDivide {
  uint32_t divisor, multiplier, shift;

  explicit FastDivide(uint32_t d) : divisor(d) {
    uint32_t log = 0;
    while ((uint64_t{1} << log) < d) ++log;
    shift = 31 + log;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << shift) + d - 1) / d);
  }

  __device__ __forceinline__ uint32_t operator()(uint32_t n) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> shift);
  }
};

}  // namespace gpuaug
