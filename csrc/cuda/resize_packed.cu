// resize_packed on CUDA: a thread makes one output pixel; a block makes a tile of one image.
//
// The source window of a tile is small and read several times, so it stays in the L1 cache; an image's bytes come from
// memory about once.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "../resize_packed.h"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kTileWidth = 32, kTileHeight = 8;

template <typename T, Interpolation kKind>
__global__ void __launch_bounds__(kTileWidth* kTileHeight)
    resize_tiles(const uint8_t* __restrict__ data, const int64_t* __restrict__ offsets,
                 const int32_t* __restrict__ sizes, const bool* __restrict__ flip, T* __restrict__ out,
                 int64_t samples, int64_t bytes, int height, int width, bool antialias, bool channels_last,
                 ChannelAffine affine) {
  const int i = blockIdx.x * kTileWidth + threadIdx.x, j = blockIdx.y * kTileHeight + threadIdx.y;
  if (i >= width || j >= height) return;
  const int64_t plane = static_cast<int64_t>(height) * width;
  for (int64_t sample = blockIdx.z; sample < samples; sample += gridDim.z) {
    const int64_t offset = offsets[sample];
    const int source_height = sizes[2 * sample], source_width = sizes[2 * sample + 1];
    Rgb pixel{};
    if (inside_of_data(offset, source_height, source_width, bytes)) {
      const Axis rows = make_axis(source_height, height, kKind, antialias);
      const Axis columns = make_axis(source_width, width, kKind, antialias);
      const int column = flip && flip[sample] ? width - 1 - i : i;
      pixel = resample_pixel<kKind>(data + offset, rows, columns, make_taps<kKind>(rows, j),
                                    make_taps<kKind>(columns, column));
    }
    T* image = out + sample * kChannels * plane;
    const int64_t at = static_cast<int64_t>(j) * width + i;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      image[channels_last ? at * kChannels + c : c * plane + at] =
          normalize_pixel<T>(pixel.value[c], affine.scale[c], affine.bias[c]);
    }
  }
}

Tensor resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height, int64_t width,
                     std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip, ScalarType dtype,
                     bool channels_last, int64_t interpolation, bool antialias) {
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const PackedCall call = prepare_packed(data, offsets, sizes, height, width, mean, std, flip, dtype, channels_last,
                                         interpolation, antialias);
  if (call.out.numel() == 0) return call.out;
  const dim3 block(kTileWidth, kTileHeight);
  const dim3 grid((call.width + kTileWidth - 1) / kTileWidth, (call.height + kTileHeight - 1) / kTileHeight,
                  static_cast<unsigned>(std::min<int64_t>(call.samples, 65535)));
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_interpolation(call.interpolation, [&](auto kind) {
      resize_tiles<T, decltype(kind)::value><<<grid, block, 0, current_stream(call.data)>>>(
          call.data.const_data_ptr<uint8_t>(), call.offsets.const_data_ptr<int64_t>(),
          call.sizes.const_data_ptr<int32_t>(), call.flip ? call.flip->const_data_ptr<bool>() : nullptr,
          static_cast<T*>(call.out.mutable_data_ptr()), call.samples, call.bytes, call.height, call.width,
          call.antialias, call.channels_last, call.affine);
    });
  });
  check_launch("resize_packed");
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("resize_packed", TORCH_BOX(&gpuaug::resize_packed)); }
