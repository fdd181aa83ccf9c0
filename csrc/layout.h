// Memory formats of (N, C, H, W) tensors, and loads and stores in each type.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "check.h"

namespace gpuaug {

using torch::headeronly::MemoryFormat;

// Whether t is dense with its channels innermost and not dense in NCHW order too (as a one-channel image is).
inline bool is_channels_last(const Tensor& t) {
  if (t.dim() != 4 || t.is_contiguous()) return false;
  int64_t expected = 1;
  for (const int64_t d : {1, 3, 2, 0}) {
    if (t.size(d) != 1 && t.stride(d) != expected) return false;
    expected *= t.size(d);
  }
  return true;
}

inline MemoryFormat format_of(bool channels_last) {
  return channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
}

inline Tensor in_format(const Tensor& t, bool channels_last) {
  if (channels_last ? is_channels_last(t) : t.is_contiguous()) return t;
  return torch::stable::contiguous(t, format_of(channels_last));
}

inline Tensor empty_images(int64_t n, int64_t c, int64_t h, int64_t w, ScalarType type, const Tensor& like,
                           bool channels_last) {
  const int64_t shape[4] = {n, c, h, w};
  return torch::stable::empty({shape, 4}, type, std::nullopt, like.device(), std::nullopt, format_of(channels_last));
}

// The type in which values of type T are summed.
template <typename T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};
template <typename T>
using accumulate_t = typename Accumulate<T>::type;

}  // namespace gpuaug
