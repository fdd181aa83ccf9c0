// normalize on CUDA: the op.
#include "../normalize.h"

#include "device.h"
#include "normalize_kernels.h"

namespace gpuaug {
namespace {

Tensor normalize(const Tensor& x, std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip,
                 ScalarType dtype, bool channels_last) {
  const DeviceGuard guard(x.get_device_index());
  const NormalizeCall call = prepare_normalize(x, mean, std, flip, dtype, channels_last);
  if (call.out.numel() == 0) return call.out;
  constexpr int64_t kMostPixels = int64_t{1} << 29;  // positions in a sample and a tile are 32-bit
  if (call.height > kMostPixels / call.width) {
    fail("normalize: x must have at most 2**29 pixels a sample on CUDA, got ", shape_name(x));
  }
  const NormalizeLaunch launch{call.x.const_data_ptr<uint8_t>(),
                               call.flip ? call.flip->const_data_ptr<bool>() : nullptr,
                               call.out.mutable_data_ptr(),
                               element_of(dtype),
                               call.samples,
                               call.height,
                               call.width,
                               call.affine,
                               call.channels_last};
  launch_normalize(launch, current_stream(x));
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("normalize", TORCH_BOX(&gpuaug::normalize)); }
