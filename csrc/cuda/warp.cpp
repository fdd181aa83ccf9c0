// warp on CUDA: the op and its gradient.
#include "../warp.h"

#include "device.h"
#include "warp_kernels.h"

namespace gpuaug {
namespace {

Element checked_element(ScalarType type) {
  if (type != ScalarType::Byte && type != ScalarType::Float && type != ScalarType::Half &&
      type != ScalarType::BFloat16) {
    fail("warp: on CUDA x must be torch.uint8, torch.float32, torch.float16 or torch.bfloat16, got ", dtype_name(type));
  }
  return element_of(type);
}

Tensor warp(const Tensor& x, const Tensor& matrix, int64_t out_h, int64_t out_w, int64_t interpolation, int64_t border,
            std::vector<double> fill, bool half_pixel) {
  const DeviceGuard guard(x.get_device_index());
  const WarpCall call = prepare_warp(x, matrix, out_h, out_w, interpolation, border, fill, half_pixel);
  if (call.out.numel() == 0) return call.out;
  const Element type = checked_element(x.scalar_type());
  launch_warp({call.x.const_data_ptr(), call.matrix.const_data_ptr<float>(), call.out.mutable_data_ptr(), type,
               call.interpolation, call.shape},
              current_stream(x));
  return call.out;
}

Tensor warp_backward(const Tensor& grad, const Tensor& matrix, int64_t height, int64_t width, int64_t interpolation,
                     int64_t border, bool half_pixel, bool channels_last) {
  const DeviceGuard guard(grad.get_device_index());
  const WarpBackwardCall call =
      prepare_warp_backward(grad, matrix, height, width, interpolation, border, half_pixel, channels_last);
  if (call.grad.numel() == 0) return call.result();
  const Element type = checked_element(grad.scalar_type());
  if (type == Element::kByte) fail("warp: grad must be a floating tensor, got torch.uint8");
  launch_warp_backward({call.grad.const_data_ptr(), call.matrix.const_data_ptr<float>(),
                        call.summed.mutable_data_ptr<float>(), type, call.interpolation, call.shape},
                       current_stream(grad));
  return call.result();
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) {
  m.impl("warp", TORCH_BOX(&gpuaug::warp));
  m.impl("warp_backward", TORCH_BOX(&gpuaug::warp_backward));
}
