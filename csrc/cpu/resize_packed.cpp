// resize_packed on the CPU: output rows in parallel, the horizontal taps of an image worked out once a row.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "../resize_packed.h"

namespace gpuaug {
namespace {

template <typename T, Interpolation kKind>
void resize_rows(const PackedCall& call) {
  const uint8_t* data = call.data.const_data_ptr<uint8_t>();
  const int64_t* offsets = call.offsets.const_data_ptr<int64_t>();
  const int32_t* sizes = call.sizes.const_data_ptr<int32_t>();
  const bool* flip = call.flip ? call.flip->const_data_ptr<bool>() : nullptr;
  T* out = static_cast<T*>(call.out.mutable_data_ptr());
  const int64_t plane = static_cast<int64_t>(call.height) * call.width;
  const int64_t step = call.channels_last ? kChannels : 1, channel = call.channels_last ? 1 : plane;
  torch::stable::parallel_for(0, call.samples * call.height, 8, [&](int64_t begin, int64_t end) {
    std::vector<Taps> x(call.width);
    int64_t prepared = -1;
    Axis rows{}, columns{};
    bool readable = false;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t sample = row / call.height;
      const int height = sizes[2 * sample], width = sizes[2 * sample + 1];
      if (sample != prepared) {
        prepared = sample;
        readable = inside_of_data(offsets[sample], height, width, call.bytes);
        if (readable) {
          rows = make_axis(height, call.height, kKind, call.antialias);
          columns = make_axis(width, call.width, kKind, call.antialias);
          for (int i = 0; i < call.width; ++i) x[i] = make_taps<kKind>(columns, i);
        }
      }
      const int j = static_cast<int>(row - sample * call.height);
      T* line = out + sample * kChannels * plane + j * call.width * step;
      const Taps y = readable ? make_taps<kKind>(rows, j) : Taps{};
      for (int i = 0; i < call.width; ++i) {
        const int source = flip && flip[sample] ? call.width - 1 - i : i;
        const Rgb pixel =
            readable ? resample_pixel<kKind>(data + offsets[sample], rows, columns, y, x[source]) : Rgb{};
        for (int c = 0; c < kChannels; ++c) {
          line[i * step + c * channel] = normalize_pixel<T>(pixel.value[c], call.affine.scale[c], call.affine.bias[c]);
        }
      }
    }
  });
}

Tensor resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height, int64_t width,
                     std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip, ScalarType dtype,
                     bool channels_last, int64_t interpolation, bool antialias) {
  const PackedCall call = prepare_packed(data, offsets, sizes, height, width, mean, std, flip, dtype, channels_last,
                                         interpolation, antialias);
  if (call.out.numel() > 0) {
    dispatch_output_type(dtype, [&](auto zero) {
      with_interpolation(call.interpolation,
                         [&](auto kind) { resize_rows<decltype(zero), decltype(kind)::value>(call); });
    });
  }
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) { m.impl("resize_packed", TORCH_BOX(&gpuaug::resize_packed)); }
