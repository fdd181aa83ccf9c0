// Crop and resize of ragged images on CUDA: the ops. To uint8 pixels for the programs, or, where no record has a
// program or a mix, straight to the result.
#include "../ragged.h"
#include "crop_resize_kernels.h"
#include "device.h"

namespace gpuaug {
namespace {

std::vector<RaggedImage> descriptors(const std::vector<Tensor>& images) {
  std::vector<RaggedImage> all;
  for (const Tensor& image : images) all.push_back(ragged_image(image));
  return all;
}

Tensor new_pixels(const Tensor& like, int64_t samples, int64_t out_h, int64_t out_w) {
  return torch::stable::empty({samples, out_h, out_w, kChannels}, ScalarType::Byte, std::nullopt, like.device());
}

// uint8 pixels (N, out_h, out_w, 3), for the programs.
CropLaunch to_pixels(const char* op, const Tensor& records, const Tensor& out) {
  constexpr ChannelAffine kIdentity = {{1, 1, 1}, {0, 0, 0}};
  return {op,
          records.const_data_ptr<int32_t>(),
          out.size(0),
          static_cast<int>(out.size(1)),
          static_cast<int>(out.size(2)),
          false,
          true,
          kIdentity,
          kIdentity,
          out.mutable_data_ptr(),
          Element::kByte};
}

// The result itself.
CropLaunch to_result(const char* op, const Tensor& records, const FinishCall& call) {
  return {op,
          records.const_data_ptr<int32_t>(),
          call.samples,
          call.height,
          call.width,
          true,
          call.channels_last,
          call.affine,
          call.unit,
          call.out.mutable_data_ptr(),
          element_of(call.out.scalar_type())};
}

Tensor crop_resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_packed";
  const DeviceGuard guard(data.get_device_index());
  const RaggedCall call = prepare_ragged(op, data, offsets, sizes, params, out_h, out_w);
  Tensor out = new_pixels(data, call.samples, out_h, out_w);
  if (out.numel() == 0) return out;
  launch_crop(to_pixels(op, call.params, out), call.images(), current_stream(data));
  return out;
}

Tensor crop_resize_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_list";
  const DeviceGuard guard(params.get_device_index());
  const std::vector<Tensor> dense = prepare_list(op, images, params, out_h, out_w);
  const Tensor records = torch::stable::contiguous(params);
  Tensor out = new_pixels(params, params.size(0), out_h, out_w);
  launch_crop(to_pixels(op, records, out), descriptors(dense).data(), current_stream(params));
  return out;
}

Tensor crop_finish_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w, std::vector<double> mean, std::vector<double> std,
                          ScalarType dtype, bool channels_last) {
  constexpr const char* op = "crop_finish_packed";
  const DeviceGuard guard(data.get_device_index());
  const RaggedCall call = prepare_ragged(op, data, offsets, sizes, params, out_h, out_w);
  const FinishCall finish = prepare_finish(op, data, call.samples, out_h, out_w, mean, std, dtype, channels_last);
  if (finish.out.numel() == 0) return finish.out;
  launch_crop(to_result(op, call.params, finish), call.images(), current_stream(data));
  return finish.out;
}

Tensor crop_finish_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w,
                        std::vector<double> mean, std::vector<double> std, ScalarType dtype, bool channels_last) {
  constexpr const char* op = "crop_finish_list";
  const DeviceGuard guard(params.get_device_index());
  const std::vector<Tensor> dense = prepare_list(op, images, params, out_h, out_w);
  const FinishCall finish = prepare_finish(op, params, params.size(0), out_h, out_w, mean, std, dtype, channels_last);
  const Tensor records = torch::stable::contiguous(params);
  launch_crop(to_result(op, records, finish), descriptors(dense).data(), current_stream(params));
  return finish.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) {
  m.impl("crop_resize_packed", TORCH_BOX(&gpuaug::crop_resize_packed));
  m.impl("crop_resize_list", TORCH_BOX(&gpuaug::crop_resize_list));
  m.impl("crop_finish_packed", TORCH_BOX(&gpuaug::crop_finish_packed));
  m.impl("crop_finish_list", TORCH_BOX(&gpuaug::crop_finish_list));
}
