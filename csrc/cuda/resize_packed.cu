// resize_packed on CUDA: every image whole, resized and normalised in one pass (resize.cuh).
#include <torch/csrc/stable/library.h>

#include "../resize_packed.h"
#include "resize.cuh"

namespace gpuaug {
namespace {

struct PackedLaunch {
  const uint8_t* data;
  const int64_t* offsets;
  const int32_t* sizes;
  const bool* flip;
  int64_t samples, bytes;
  int height, width;
  Interpolation interpolation;
  bool antialias, channels_last;
  ChannelAffine affine;

  __device__ __forceinline__ ResizeJob job(int64_t sample) const {
    const int64_t offset = offsets[sample];
    const int source_height = sizes[2 * sample], source_width = sizes[2 * sample + 1];
    const bool readable = inside_of_data(offset, source_height, source_width, bytes);
    return {readable ? data + offset : nullptr,
            {data, data + bytes},
            static_cast<int64_t>(source_width) * kChannels,
            make_axis(source_height, height, interpolation, antialias),
            make_axis(source_width, width, interpolation, antialias),
            interpolation,
            flip && flip[sample],
            false};
  }
};

template <typename T>
__global__ void __launch_bounds__(kResizeThreads, 4) resize_images(const PackedLaunch launch, T* out) {
  __shared__ ResizeShared shared;
  const auto unchanged = [](int, int, float (&)[kChannels]) {};
  for (int64_t sample = blockIdx.z; sample < launch.samples; sample += gridDim.z) {
    const ResizedImage<T> image{out + sample * kChannels * launch.height * launch.width, launch.height, launch.width,
                                launch.channels_last, launch.affine};
    resize_block(shared, launch.job(sample), image, unchanged);
  }
}

Tensor resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height, int64_t width,
                     std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip, ScalarType dtype,
                     bool channels_last, int64_t interpolation, bool antialias) {
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const PackedCall call = prepare_packed(data, offsets, sizes, height, width, mean, std, flip, dtype, channels_last,
                                         interpolation, antialias);
  if (call.out.numel() == 0) return call.out;
  const PackedLaunch launch{call.data.const_data_ptr<uint8_t>(),
                            call.offsets.const_data_ptr<int64_t>(),
                            call.sizes.const_data_ptr<int32_t>(),
                            call.flip ? call.flip->const_data_ptr<bool>() : nullptr,
                            call.samples,
                            call.bytes,
                            call.height,
                            call.width,
                            call.interpolation,
                            call.antialias,
                            call.channels_last,
                            dtype == ScalarType::Byte ? ChannelAffine{{1, 1, 1}, {0, 0, 0}} : call.affine};
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    resize_images<T><<<resize_grid(call.height, call.width, call.samples), dim3(kColumns, kRowGroups), 0,
                       current_stream(call.data)>>>(launch, static_cast<T*>(call.out.mutable_data_ptr()));
  });
  check_launch("resize_packed");
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("resize_packed", TORCH_BOX(&gpuaug::resize_packed)); }
