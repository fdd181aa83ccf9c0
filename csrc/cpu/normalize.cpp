// normalize on the CPU: rows in parallel, each pixel through a table.
//
// A uint8 input has 256 values a channel, so the math (pixel.h) runs 768 times and the pixels are looked up. The tables
// (3 KB at most) stay in the L1 cache; the result is exact on every CPU, with or without FMA and half-float
// instructions.
#include "../normalize.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace gpuaug {
namespace {

template <typename T>
struct PixelTable {
  T value[kChannels][256];

  explicit PixelTable(const ChannelAffine& affine) {
    for (int c = 0; c < kChannels; ++c) {
      for (int v = 0; v < 256; ++v) {
        value[c][v] = normalize_pixel<T>(static_cast<uint8_t>(v), affine.scale[c], affine.bias[c]);
      }
    }
  }
};

template <typename T>
void interleaved_row(const uint8_t* __restrict__ in, T* __restrict__ out, int64_t width, bool flip,
                     const PixelTable<T>& table) {
  if (std::is_same_v<T, uint8_t> && !flip) {
    std::memcpy(out, in, static_cast<size_t>(kChannels * width));
    return;
  }
  const uint8_t* pixel = flip ? in + kChannels * (width - 1) : in;
  const int64_t step = flip ? -kChannels : kChannels;
  for (int64_t i = 0; i < width; ++i, pixel += step, out += kChannels) {
    out[0] = table.value[0][pixel[0]];
    out[1] = table.value[1][pixel[1]];
    out[2] = table.value[2][pixel[2]];
  }
}

template <typename T>
void planar_row(const uint8_t* __restrict__ in, T* __restrict__ out, int64_t plane, int64_t width, bool flip,
                const PixelTable<T>& table) {
  for (int c = 0; c < kChannels; ++c) {
    const uint8_t* pixel = in + c + (flip ? kChannels * (width - 1) : 0);
    const int64_t step = flip ? -kChannels : kChannels;
    T* __restrict__ row = out + c * plane;
    const T* __restrict__ values = table.value[c];
    for (int64_t i = 0; i < width; ++i, pixel += step) row[i] = values[*pixel];
  }
}

template <typename T>
void normalize_rows(const NormalizeCall& call) {
  const PixelTable<T> table(call.affine);
  const uint8_t* in = call.x.const_data_ptr<uint8_t>();
  const bool* flip = call.flip ? call.flip->const_data_ptr<bool>() : nullptr;
  T* out = static_cast<T*>(call.out.mutable_data_ptr());
  const int64_t row_values = kChannels * call.width;
  const int64_t plane = call.height * call.width;
  constexpr int64_t kValuesPerTask = 1 << 15;
  const int64_t grain = std::max<int64_t>(1, kValuesPerTask / row_values);
  torch::stable::parallel_for(0, call.samples * call.height, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t sample = row / call.height;
      const bool mirror = flip && flip[sample];
      if (call.channels_last) {
        interleaved_row(in + row * row_values, out + row * row_values, call.width, mirror, table);
      } else {
        T* first_plane = out + sample * kChannels * plane + (row - sample * call.height) * call.width;
        planar_row(in + row * row_values, first_plane, plane, call.width, mirror, table);
      }
    }
  });
}

Tensor normalize(const Tensor& x, std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip,
                 ScalarType dtype, bool channels_last) {
  const NormalizeCall call = prepare_normalize(x, mean, std, flip, dtype, channels_last);
  if (call.out.numel() > 0) {
    dispatch_output_type(dtype, [&](auto zero) { normalize_rows<decltype(zero)>(call); });
  }
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) { m.impl("normalize", TORCH_BOX(&gpuaug::normalize)); }
