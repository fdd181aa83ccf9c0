// Crop and resize of ragged images on the CPU: a sample a task.
#include "../resize.h"

#include <torch/csrc/stable/library.h>

#include <vector>

#include "../ragged.h"

namespace gpuaug {
namespace {

struct AxisTable {
  std::vector<Taps> taps;
  std::vector<int> weight;  // [position][most taps]
  int most;

  void fill(const Axis& axis, int out) {
    most = axis.most_taps();
    taps.resize(out);
    weight.assign(static_cast<size_t>(out) * most, 0);
    for (int i = 0; i < out; ++i) {
      taps[i] = axis.taps(i);
      if (taps[i].count > most) taps[i].count = most;
      const float unit = axis.unit(taps[i]);
      for (int k = 0; k < taps[i].count; ++k) weight[static_cast<size_t>(i) * most + k] = axis.weight(taps[i], k, unit);
    }
  }
};

struct Workspace {
  AxisTable columns, rows;
  std::vector<uint8_t> middle;  // window height x out width
};

void resize(const RaggedImage& source, const int32_t* record, int out_h, int out_w, uint8_t* out, Workspace& work) {
  if (source.height <= 0 || source.width <= 0) {
    std::fill(out, out + static_cast<int64_t>(out_h) * out_w * kChannels, uint8_t{0});
    return;
  }
  const Window window = window_of(record, source.height, source.width);
  const Axis x_axis(record, window.width, out_w), y_axis(record, window.height, out_h);
  work.columns.fill(x_axis, out_w);
  work.rows.fill(y_axis, out_h);
  const int64_t row_bytes = static_cast<int64_t>(kChannels) * out_w;
  work.middle.resize(static_cast<size_t>(row_bytes) * window.height);
  for (int y = 0; y < window.height; ++y) {
    const uint8_t* row = source.data + (static_cast<int64_t>(window.top + y) * source.width + window.left) * kChannels;
    uint8_t* to = work.middle.data() + y * row_bytes;
    for (int x = 0; x < out_w; ++x, to += kChannels) {
      const Taps& t = work.columns.taps[x];
      const int* weight = work.columns.weight.data() + static_cast<size_t>(x) * work.columns.most;
      int r = kWeightHalf, g = kWeightHalf, b = kWeightHalf;
      for (int k = 0; k < t.count; ++k) {
        const uint8_t* p = row + kChannels * x_axis.index(t, k);
        r += weight[k] * p[0], g += weight[k] * p[1], b += weight[k] * p[2];
      }
      to[0] = static_cast<uint8_t>(weighted_byte(r)), to[1] = static_cast<uint8_t>(weighted_byte(g));
      to[2] = static_cast<uint8_t>(weighted_byte(b));
    }
  }
  std::vector<int> sum(row_bytes);
  for (int y = 0; y < out_h; ++y) {
    const Taps& t = work.rows.taps[y];
    const int* weight = work.rows.weight.data() + static_cast<size_t>(y) * work.rows.most;
    std::fill(sum.begin(), sum.end(), kWeightHalf);
    for (int k = 0; k < t.count; ++k) {
      const uint8_t* row = work.middle.data() + y_axis.index(t, k) * row_bytes;
      for (int64_t i = 0; i < row_bytes; ++i) sum[i] += weight[k] * row[i];
    }
    for (int64_t i = 0; i < row_bytes; ++i) out[y * row_bytes + i] = static_cast<uint8_t>(weighted_byte(sum[i]));
  }
}

template <typename ImageOf>
Tensor resize_all(const Tensor& like, const Tensor& params, int64_t samples, int64_t out_h, int64_t out_w,
                  const ImageOf& image_of) {
  Tensor out = torch::stable::empty({samples, out_h, out_w, kChannels}, ScalarType::Byte, std::nullopt, like.device());
  const Tensor records = torch::stable::contiguous(params);
  const int32_t* record = records.const_data_ptr<int32_t>();
  uint8_t* pixels = out.mutable_data_ptr<uint8_t>();
  if (out.numel() == 0) return out;
  torch::stable::parallel_for(0, samples, 1, [&](int64_t begin, int64_t end) {
    Workspace work;
    for (int64_t i = begin; i < end; ++i) {
      resize(image_of(i), record + i * kRecordWords, static_cast<int>(out_h), static_cast<int>(out_w),
             pixels + i * out_h * out_w * kChannels, work);
    }
  });
  return out;
}

Tensor crop_resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w) {
  const PackedCall call = prepare_packed("crop_resize_packed", data, offsets, sizes, params, out_h, out_w);
  const PackedImages images = call.images();
  return resize_all(data, params, call.samples, out_h, out_w, [&](int64_t i) { return images.at(i); });
}

Tensor crop_resize_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w) {
  const std::vector<Tensor> dense = prepare_list("crop_resize_list", images, params, out_h, out_w);
  return resize_all(params, params, params.size(0), out_h, out_w, [&](int64_t i) { return ragged_image(dense[i]); });
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("crop_resize_packed", TORCH_BOX(&gpuaug::crop_resize_packed));
  m.impl("crop_resize_list", TORCH_BOX(&gpuaug::crop_resize_list));
}
