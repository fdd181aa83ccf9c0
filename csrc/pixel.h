// The math of one pixel: the only definition of it, compiled for the host and for the device.
//
// Results are the same bit for bit on both. That rests on two rules: every multiply-add is an explicit fmaf (the build
// switches implicit contraction off), and every narrowing rounds to nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define GPUAUG_HOST_DEVICE __host__ __device__ __forceinline__
#define GPUAUG_OUT_OF_LINE static __host__ __device__ __noinline__  // rarely taken: keeps unrolled loops small
#else
#define GPUAUG_HOST_DEVICE inline
#define GPUAUG_OUT_OF_LINE inline
#endif

// For loops that a kernel needs unrolled; host compilers decide for themselves.
#if defined(__CUDA_ARCH__)
#define GPUAUG_UNROLL _Pragma("unroll")
#else
#define GPUAUG_UNROLL
#endif

namespace gpuaug {

constexpr int kChannels = 3;

// value = pixel * scale + bias, for each channel.
struct ChannelAffine {
  float scale[kChannels];
  float bias[kChannels];
};

// The affine form of (pixel / 255 - mean) / std, computed in double and rounded once to float.
inline ChannelAffine affine_from_mean_std(const double* mean, const double* std) {
  ChannelAffine affine;
  for (int c = 0; c < kChannels; ++c) {
    affine.scale[c] = static_cast<float>(1.0 / (255.0 * std[c]));
    affine.bias[c] = static_cast<float>(-mean[c] / std[c]);
  }
  return affine;
}

// One pixel of one channel in the output's type. T = uint8_t keeps the pixel as it is.
template <typename T>
GPUAUG_HOST_DEVICE T normalize_pixel(uint8_t pixel, float scale, float bias) {
  return static_cast<T>(fmaf(static_cast<float>(pixel), scale, bias));
}

template <>
GPUAUG_HOST_DEVICE uint8_t normalize_pixel<uint8_t>(uint8_t pixel, float, float) {
  return pixel;
}

}  // namespace gpuaug
