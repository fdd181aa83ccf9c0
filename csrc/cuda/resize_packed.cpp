// resize_packed on CUDA: the op.
#include "../resize_packed.h"

#include "device.h"
#include "resize_packed_kernels.h"

namespace gpuaug {
namespace {

Tensor resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height, int64_t width,
                     std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip, ScalarType dtype,
                     bool channels_last, int64_t interpolation, bool antialias) {
  const DeviceGuard guard(data.get_device_index());
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
  launch_resize_packed(launch, call.out.mutable_data_ptr(), element_of(dtype), current_stream(call.data));
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("resize_packed", TORCH_BOX(&gpuaug::resize_packed)); }
