// nms on CUDA: the op.
#include "../nms.h"

#include "device.h"
#include "nms_kernels.h"

namespace gpuaug {
namespace {

std::tuple<Tensor, Tensor> nms_padded(const Tensor& boxes, const Tensor& scores, std::optional<Tensor> classes,
                                      double iou_threshold, int64_t max_out) {
  const DeviceGuard guard(boxes.get_device_index());
  const NmsCall call = prepare_nms(boxes, scores, classes, iou_threshold, max_out);
  if (max_out > INT32_MAX - 1024) fail("nms: max_out must be below 2**31 - 1024 on CUDA, got ", max_out);
  const NmsLaunch launch{call.boxes.const_data_ptr<float>(),
                         call.scores.const_data_ptr<float>(),
                         call.order.const_data_ptr<int64_t>(),
                         call.classes ? call.classes->const_data_ptr<int64_t>() : nullptr,
                         call.count,
                         call.max_out,
                         call.threshold,
                         call.indices.mutable_data_ptr<int64_t>(),
                         call.kept.mutable_data_ptr<int64_t>()};
  const std::array<int64_t, 1> bytes{nms_scratch_bytes(launch)};
  const Tensor scratch = torch::stable::empty({bytes.data(), 1}, ScalarType::Byte, std::nullopt, boxes.device());
  launch_nms(launch, scratch.mutable_data_ptr<uint8_t>(), current_stream(boxes));
  return {call.indices, call.kept};
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("nms_padded", TORCH_BOX(&gpuaug::nms_padded)); }
