// Batches of images that differ in size: packed in one buffer, or a list of tensors. Checks and descriptors.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "augment.h"
#include "images.h"

namespace gpuaug {

struct RaggedCall {
  Tensor data, offsets, sizes, params;
  int64_t samples;

  PackedImages images() const {
    return {data.const_data_ptr<uint8_t>(), offsets.const_data_ptr<int64_t>(), sizes.const_data_ptr<int32_t>(),
            data.numel()};
  }
};

inline void check_out_size(const char* op, int64_t out_h, int64_t out_w) {
  if (out_h < 1 || out_w < 1 || out_h > kLongestSide || out_w > kLongestSide) {
    fail(op, ": out_h and out_w must be 1..", kLongestSide, ", got ", out_h, " and ", out_w);
  }
}

inline RaggedCall prepare_ragged(const char* op, const Tensor& data, const Tensor& offsets, const Tensor& sizes,
                                 const Tensor& params, int64_t out_h, int64_t out_w) {
  check_strided(op, "data", data);
  check_dtype(op, "data", data, ScalarType::Byte);
  if (data.dim() != 1) fail(op, ": data must have one dimension, got ", shape_name(data));
  check_strided(op, "offsets", offsets);
  check_dtype(op, "offsets", offsets, ScalarType::Long);
  if (offsets.dim() != 1) fail(op, ": offsets must have one dimension, got ", shape_name(offsets));
  check_same_device(op, "offsets", offsets, data);
  const int64_t samples = offsets.size(0);
  check_strided(op, "sizes", sizes);
  check_dtype(op, "sizes", sizes, ScalarType::Int);
  if (sizes.dim() != 2 || sizes.size(0) != samples || sizes.size(1) != 2) {
    fail(op, ": sizes must have shape (", samples, ", 2), height and width a sample, got ", shape_name(sizes));
  }
  check_same_device(op, "sizes", sizes, data);
  check_params(op, params, data, samples);
  check_out_size(op, out_h, out_w);
  return {torch::stable::contiguous(data), torch::stable::contiguous(offsets), torch::stable::contiguous(sizes),
          torch::stable::contiguous(params), samples};
}

// The images, contiguous.
inline std::vector<Tensor> prepare_list(const char* op, const std::vector<Tensor>& images, const Tensor& params,
                                        int64_t out_h, int64_t out_w) {
  check_strided(op, "params", params);
  check_dtype(op, "params", params, ScalarType::Int);
  const int64_t samples = static_cast<int64_t>(images.size());
  if (params.dim() != 2 || params.size(0) != samples || params.size(1) != kRecordWords) {
    fail(op, ": params must have shape (", samples, ", ", kRecordWords, "), a record a sample, got ", shape_name(params));
  }
  check_out_size(op, out_h, out_w);
  std::vector<Tensor> dense;
  for (int64_t i = 0; i < samples; ++i) {
    const Tensor& image = images[i];
    check_strided(op, "images", image);
    check_dtype(op, "images", image, ScalarType::Byte);
    if (image.dim() != 3 || image.size(2) != 3 || image.size(0) < 1 || image.size(1) < 1 ||
        image.size(0) > kLongestSide || image.size(1) > kLongestSide) {
      fail(op, ": images must have shape (H, W, 3) with sides of 1..", kLongestSide, ", got ", shape_name(image),
           " for sample ", i);
    }
    check_same_device(op, "images", image, params);
    dense.push_back(torch::stable::contiguous(image));
  }
  return dense;
}

inline RaggedImage ragged_image(const Tensor& image) {
  return {image.const_data_ptr<uint8_t>(), static_cast<int>(image.size(0)), static_cast<int>(image.size(1))};
}

}  // namespace gpuaug
