// augment: what the CPU and the CUDA op share on the host: checks, contiguous input, output allocation.
#pragma once

#include "finish.h"
#include "normalize.h"
#include "program.h"

namespace gpuaug {

// What the result is to be, and its memory.
struct FinishCall {
  Tensor out;  // (N, 3, H, W)
  int64_t samples;
  int height, width;
  ChannelAffine affine;  // pixel to value
  ChannelAffine unit;    // erased value to value
  bool channels_last;

  int64_t pixels() const { return static_cast<int64_t>(height) * width; }
};

struct AugmentCall : FinishCall {
  Tensor x;       // uint8 (N, H, W, 3), contiguous, at any byte address
  Tensor params;  // int32 (N, kRecordWords), contiguous
  int chains;     // scratch images a sample needs: 0 without programs, 1, or the longest AugMix
};

inline void check_params(const char* op, const Tensor& params, const Tensor& x, int64_t samples) {
  check_strided(op, "params", params);
  check_dtype(op, "params", params, ScalarType::Int);
  if (params.dim() != 2 || params.size(0) != samples || params.size(1) != kRecordWords) {
    fail(op, ": params must have shape (", samples, ", ", kRecordWords, "), a record a sample, got ", shape_name(params));
  }
  check_same_device(op, "params", params, x);
}

inline void check_output_type(const char* op, ScalarType dtype) {
  if (dtype != ScalarType::Float && dtype != ScalarType::Half && dtype != ScalarType::BFloat16 &&
      dtype != ScalarType::Byte) {
    fail(op, ": dtype must be torch.float32, torch.float16, torch.bfloat16 or torch.uint8, got ", dtype_name(dtype));
  }
}

inline FinishCall prepare_finish(const char* op, const Tensor& like, int64_t samples, int64_t height, int64_t width,
                                 const std::vector<double>& mean, const std::vector<double>& std, ScalarType dtype,
                                 bool channels_last) {
  ChannelAffine affine = checked_affine(op, mean, std);
  check_output_type(op, dtype);
  ChannelAffine unit = {{1, 1, 1}, {0, 0, 0}};
  if (dtype == ScalarType::Byte) {
    for (int c = 0; c < kChannels; ++c) {
      unit.scale[c] = static_cast<float>(255.0 * std[c]), unit.bias[c] = static_cast<float>(255.0 * mean[c]);
    }
    affine = {{1, 1, 1}, {0, 0, 0}};
  }
  const int64_t shape[4] = {samples, kChannels, height, width};
  using torch::headeronly::MemoryFormat;
  Tensor out = torch::stable::empty({shape, 4}, dtype, std::nullopt, like.device(), std::nullopt,
                                    channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
  return {out, samples, static_cast<int>(height), static_cast<int>(width), affine, unit, channels_last};
}

inline AugmentCall prepare_augment(const char* op, const Tensor& x, const Tensor& params, const std::vector<double>& mean,
                                   const std::vector<double>& std, ScalarType dtype, bool channels_last, int64_t chains) {
  check_nhwc_rgb(op, x);
  check_params(op, params, x, x.size(0));
  if (x.size(1) > kLongestSide || x.size(2) > kLongestSide) {
    fail(op, ": x must have H and W of at most ", kLongestSide, ", got ", shape_name(x));
  }
  if (chains < 0 || chains > kMaxChains) fail(op, ": chains must be 0..", kMaxChains, ", got ", chains);
  return {prepare_finish(op, x, x.size(0), x.size(1), x.size(2), mean, std, dtype, channels_last),
          torch::stable::contiguous(x), torch::stable::contiguous(params), static_cast<int>(chains)};
}

}  // namespace gpuaug
