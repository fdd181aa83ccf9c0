// roi_align on CUDA: the op and its gradient.
#include "../roi_align.h"

#include "device.h"
#include "roi_align_kernels.h"

namespace gpuaug {
namespace {

Element checked_element(ScalarType type) {
  if (type != ScalarType::Float && type != ScalarType::Half && type != ScalarType::BFloat16) {
    fail("roi_align: on CUDA x must be torch.float32, torch.float16 or torch.bfloat16, got ", dtype_name(type));
  }
  return element_of(type);
}

Tensor roi_align(const Tensor& x, const Tensor& rois, int64_t out_h, int64_t out_w, double scale,
                 int64_t sampling_ratio, bool aligned) {
  const DeviceGuard guard(x.get_device_index());
  const RoiAlignCall call = prepare_roi_align(x, rois, out_h, out_w, scale, sampling_ratio, aligned);
  if (call.out.numel() == 0) return call.out;
  const Element type = checked_element(x.scalar_type());
  const RoiAlignLaunch launch{call.x.const_data_ptr(),
                              call.rois.const_data_ptr<float>(),
                              call.out.mutable_data_ptr(),
                              type,
                              call.count,
                              call.images,
                              call.channels,
                              call.height,
                              call.width,
                              call.channels_last,
                              call.options};
  launch_roi_align(launch, current_stream(x));
  return call.out;
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, int64_t images, int64_t height, int64_t width,
                          double scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  const DeviceGuard guard(grad.get_device_index());
  const RoiAlignBackwardCall call =
      prepare_roi_align_backward(grad, rois, images, height, width, scale, sampling_ratio, aligned, channels_last);
  if (call.grad.numel() == 0 || call.summed.numel() == 0) return call.result();
  const Element type = checked_element(grad.scalar_type());
  const RoiAlignLaunch launch{call.grad.const_data_ptr(),
                              call.rois.const_data_ptr<float>(),
                              call.summed.mutable_data_ptr<float>(),
                              type,
                              call.count,
                              call.images,
                              call.channels,
                              call.height,
                              call.width,
                              call.channels_last,
                              call.options};
  launch_roi_align_backward(launch, current_stream(grad));
  return call.result();
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) {
  m.impl("roi_align", TORCH_BOX(&gpuaug::roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&gpuaug::roi_align_backward));
}
