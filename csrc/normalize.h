// normalize: what the CPU and the CUDA op share on the host: checks, contiguous input, output allocation.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <optional>
#include <vector>

#include "check.h"
#include "pixel.h"

namespace gpuaug {

struct NormalizeCall {
  Tensor x;                    // uint8 (N, H, W, 3), contiguous, at any byte address
  std::optional<Tensor> flip;  // bool (N,), contiguous
  Tensor out;                  // (N, 3, H, W), contiguous or channels_last
  int64_t samples, height, width;
  ChannelAffine affine;
  bool channels_last;
};

inline ChannelAffine checked_affine(const char* op, const std::vector<double>& mean, const std::vector<double>& std) {
  if (mean.size() != kChannels) fail(op, ": mean must have 3 numbers, got ", mean.size());
  if (std.size() != kChannels) fail(op, ": std must have 3 numbers, got ", std.size());
  const ChannelAffine affine = affine_from_mean_std(mean.data(), std.data());
  for (int c = 0; c < kChannels; ++c) {
    if (!std::isfinite(mean[c])) fail(op, ": mean must be finite, got mean[", c, "] = ", mean[c]);
    if (!std::isfinite(std[c]) || !(std[c] > 0)) {
      fail(op, ": std must be finite and above 0, got std[", c, "] = ", std[c]);
    }
    if (!std::isfinite(affine.scale[c]) || !std::isfinite(affine.bias[c])) {
      fail(op, ": 1 / (255 * std) and mean / std must fit float32, got mean[", c, "] = ", mean[c], ", std[", c,
           "] = ", std[c]);
    }
  }
  return affine;
}

inline NormalizeCall prepare_normalize(const Tensor& x, const std::vector<double>& mean, const std::vector<double>& std,
                                       const std::optional<Tensor>& flip, ScalarType dtype, bool channels_last) {
  constexpr const char* op = "normalize";
  check_nhwc_rgb(op, x);
  const ChannelAffine affine = checked_affine(op, mean, std);
  if (flip) check_per_sample(op, "flip", *flip, x, ScalarType::Bool);
  if (dtype != ScalarType::Float && dtype != ScalarType::Half && dtype != ScalarType::BFloat16 &&
      dtype != ScalarType::Byte) {
    fail(op, ": dtype must be torch.float32, torch.float16, torch.bfloat16 or torch.uint8, got ", dtype_name(dtype));
  }
  const int64_t shape[4] = {x.size(0), kChannels, x.size(1), x.size(2)};
  using torch::headeronly::MemoryFormat;
  Tensor out = torch::stable::empty({shape, 4}, dtype, std::nullopt, x.device(), std::nullopt,
                                    channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
  std::optional<Tensor> dense_flip;
  if (flip) dense_flip = torch::stable::contiguous(*flip);
  return {torch::stable::contiguous(x), dense_flip, out, shape[0], shape[2], shape[3], affine, channels_last};
}

// Calls body with a value of the C++ type that stands for the output's dtype.
template <typename Body>
void dispatch_output_type(ScalarType dtype, const Body& body) {
  switch (dtype) {
    case ScalarType::Float: return body(float{});
    case ScalarType::Half: return body(torch::headeronly::Half{});
    case ScalarType::BFloat16: return body(torch::headeronly::BFloat16{});
    default: return body(uint8_t{});
  }
}

}  // namespace gpuaug
