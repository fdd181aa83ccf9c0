// Crop and resize of ragged images on the CPU: a sample a task, filtered along x and then along y.
//
// The sums have the order of resample_pixel, so the results are those of resize_packed, bit for bit.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "../ragged.h"
#include "../window.h"

namespace gpuaug {
namespace {

struct Workspace {
  std::vector<Taps> taps;
  std::vector<float> weights, middle, sum;
};

template <Interpolation kKind>
void resize_window(const uint8_t* origin, int64_t source_row, const Axis& rows, const Axis& columns, uint8_t* out,
                   Workspace& work) {
  const int out_w = columns.output, most = most_taps(columns);
  const int64_t row_values = static_cast<int64_t>(kChannels) * out_w;
  work.taps.resize(out_w);
  work.weights.resize(static_cast<size_t>(out_w) * most);
  for (int x = 0; x < out_w; ++x) {
    const Taps t = work.taps[x] = make_taps<kKind>(columns, x);
    for (int k = 0; k < t.end - t.begin; ++k) work.weights[static_cast<size_t>(x) * most + k] = weight_of<kKind>(columns, t, k);
  }
  work.middle.resize(static_cast<size_t>(row_values) * rows.length);
  for (int y = 0; y < rows.length; ++y) {
    const uint8_t* row = origin + y * source_row;
    float* to = work.middle.data() + y * row_values;
    for (int x = 0; x < out_w; ++x, to += kChannels) {
      const Taps& t = work.taps[x];
      const float* weight = work.weights.data() + static_cast<size_t>(x) * most;
      const uint8_t* p = row + kChannels * static_cast<int64_t>(t.begin);
      float r = 0.0f, g = 0.0f, b = 0.0f;
      for (int k = 0; k < t.end - t.begin; ++k, p += kChannels) {
        r = fmaf(weight[k], p[0], r), g = fmaf(weight[k], p[1], g), b = fmaf(weight[k], p[2], b);
      }
      to[0] = limited_line<kKind>(r), to[1] = limited_line<kKind>(g), to[2] = limited_line<kKind>(b);
    }
  }
  work.sum.resize(row_values);
  for (int y = 0; y < rows.output; ++y) {
    const Taps t = make_taps<kKind>(rows, y);
    std::fill(work.sum.begin(), work.sum.end(), 0.0f);
    for (int k = 0; k < t.end - t.begin; ++k) {
      const float weight = weight_of<kKind>(rows, t, k);
      const float* line = work.middle.data() + (t.begin + k) * row_values;
      for (int64_t i = 0; i < row_values; ++i) work.sum[i] = fmaf(weight, line[i], work.sum[i]);
    }
    for (int64_t i = 0; i < row_values; ++i) out[y * row_values + i] = round_to_byte(work.sum[i]);
  }
}

void crop_resize(const RaggedImage& source, const int32_t* record, int out_h, int out_w, uint8_t* out, Workspace& work) {
  if (source.height <= 0) {
    std::fill(out, out + static_cast<int64_t>(out_h) * out_w * kChannels, uint8_t{0});
    return;
  }
  const Window window = window_of(record, source.height, source.width);
  const Filter filter = filter_of(record);
  const Axis rows = make_axis(window.height, out_h, filter.interpolation, filter.antialias);
  const Axis columns = make_axis(window.width, out_w, filter.interpolation, filter.antialias);
  const int64_t source_row = kChannels * static_cast<int64_t>(source.width);
  const uint8_t* origin = source.data + window.top * source_row + kChannels * static_cast<int64_t>(window.left);
  with_interpolation(filter.interpolation, [&](auto kind) {
    resize_window<decltype(kind)::value>(origin, source_row, rows, columns, out, work);
  });
}

template <typename ImageOf>
Tensor resize_all(const Tensor& params, int64_t out_h, int64_t out_w, const ImageOf& image_of) {
  const int64_t samples = params.size(0);
  Tensor out = torch::stable::empty({samples, out_h, out_w, kChannels}, ScalarType::Byte, std::nullopt, params.device());
  if (out.numel() == 0) return out;
  const int32_t* records = params.const_data_ptr<int32_t>();
  uint8_t* pixels = out.mutable_data_ptr<uint8_t>();
  torch::stable::parallel_for(0, samples, 1, [&](int64_t begin, int64_t end) {
    Workspace work;
    for (int64_t i = begin; i < end; ++i) {
      crop_resize(image_of(i), records + i * kRecordWords, static_cast<int>(out_h), static_cast<int>(out_w),
                  pixels + i * out_h * out_w * kChannels, work);
    }
  });
  return out;
}

Tensor crop_resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w) {
  const RaggedCall call = prepare_ragged("crop_resize_packed", data, offsets, sizes, params, out_h, out_w);
  const PackedImages images = call.images();
  return resize_all(call.params, out_h, out_w, [&](int64_t i) { return images.at(i); });
}

Tensor crop_resize_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w) {
  const std::vector<Tensor> dense = prepare_list("crop_resize_list", images, params, out_h, out_w);
  return resize_all(torch::stable::contiguous(params), out_h, out_w, [&](int64_t i) { return ragged_image(dense[i]); });
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("crop_resize_packed", TORCH_BOX(&gpuaug::crop_resize_packed));
  m.impl("crop_resize_list", TORCH_BOX(&gpuaug::crop_resize_list));
}
