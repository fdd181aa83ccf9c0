// soft_nms on CUDA: the op.
#include "../nms.h"
#include "device.h"
#include "soft_nms_kernels.h"

namespace gpuaug {
namespace {

std::tuple<Tensor, Tensor, Tensor> soft_nms_padded(const Tensor& boxes, const Tensor& scores, double iou_threshold,
                                                   int64_t method, double sigma, double min_score) {
  const DeviceGuard guard(boxes.get_device_index());
  const SoftNmsCall call = prepare_soft_nms(boxes, scores, iou_threshold, method, sigma, min_score);
  const SoftWork work{call.boxes.const_data_ptr<float>(),
                      call.scores.mutable_data_ptr<float>(),
                      call.indices.mutable_data_ptr<int64_t>(),
                      call.decayed_scores.mutable_data_ptr<float>(),
                      call.kept.mutable_data_ptr<int64_t>(),
                      static_cast<int32_t>(call.count),
                      call.rule};
  launch_soft_nms(work, current_stream(boxes));
  return {call.indices, call.decayed_scores, call.kept};
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("soft_nms_padded", TORCH_BOX(&gpuaug::soft_nms_padded)); }
