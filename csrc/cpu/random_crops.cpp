// random_crops: the random resized crops and flips of a batch, in one call: by NumPy they were some forty, which cost the
// thread that makes batches a quarter of its Python.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "../check.h"
#include "../random.h"

namespace gpuaug {
namespace {

constexpr int kAttempts = 10;  // slots 0..9, as ops/_random_crops.py has it
constexpr int kFlipSlot = 10;

std::array<double, 4> uniforms_of(int64_t key, int64_t epoch, int64_t seed, uint32_t slot) {
  const uint64_t wide = static_cast<uint64_t>(key);
  const Words4 counter = {{static_cast<uint32_t>(wide), static_cast<uint32_t>(wide >> 32), slot, 0}};
  const Words4 words = philox4x32(static_cast<uint32_t>(seed), static_cast<uint32_t>(epoch), counter);
  std::array<double, 4> u;
  for (int w = 0; w < 4; ++w) u[w] = (words.word[w] >> 8) * 0x1p-24;
  return u;
}

struct Crop {
  double top, left, height, width;
};

struct RandomCrop {
  double low, high, narrow, wide;

  // The first of the drawn windows that fits the image, or the largest centred one within the ratios.
  Crop of(double height, double width, int64_t key, int64_t epoch, int64_t seed) const {
    const double log_narrow = std::log(narrow), log_wide = std::log(wide), root = std::sqrt(height * width);
    for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
      const std::array<double, 4> u = uniforms_of(key, epoch, seed, attempt);
      const double side = std::sqrt(low + (high - low) * u[0]);
      const double half_ratio = std::exp(0.5 * (log_narrow + (log_wide - log_narrow) * u[1]));  // sqrt(width / height)
      const double h = std::floor(side / half_ratio * root + 0.5), w = std::floor(side * half_ratio * root + 0.5);
      if (h >= 1 && h <= height && w >= 1 && w <= width) {
        return {std::floor(u[2] * (height - h + 1)), std::floor(u[3] * (width - w + 1)), h, w};
      }
    }
    const double h = std::max(1.0, std::min(height, std::floor(width / narrow + 0.5)));
    const double w = std::max(1.0, std::min(width, std::floor(height * wide + 0.5)));
    return {std::floor((height - h) / 2), std::floor((width - w) / 2), h, w};
  }
};

std::tuple<Tensor, Tensor, Tensor> random_crops(const Tensor& keys, const Tensor& sizes, std::vector<double> scale,
                                                std::vector<double> ratio, double hflip, int64_t epoch, int64_t seed) {
  constexpr const char* kOp = "random_crops";
  check_strided(kOp, "keys", keys);
  check_dtype(kOp, "keys", keys, ScalarType::Long);
  if (keys.dim() != 1) fail(kOp, ": keys must have one dimension, got ", shape_name(keys));
  const int64_t count = keys.size(0);
  check_strided(kOp, "sizes", sizes);
  check_dtype(kOp, "sizes", sizes, ScalarType::Int);
  if (sizes.dim() != 2 || sizes.size(0) != count || sizes.size(1) != 2) {
    fail(kOp, ": sizes must have shape (", count, ", 2), got ", shape_name(sizes));
  }
  if (scale.size() != 2 || ratio.size() != 2) fail(kOp, ": scale and ratio must be two numbers each");
  const Tensor key_row = torch::stable::contiguous(keys), size_rows = torch::stable::contiguous(sizes);
  const int64_t* key = key_row.const_data_ptr<int64_t>();
  const int32_t* size = size_rows.const_data_ptr<int32_t>();
  Tensor starts = torch::stable::new_empty(sizes, {count, 2}), extents = torch::stable::new_empty(sizes, {count, 2});
  Tensor flips = torch::stable::new_empty(sizes, {count}, ScalarType::Bool);
  int32_t* start = starts.mutable_data_ptr<int32_t>();
  int32_t* extent = extents.mutable_data_ptr<int32_t>();
  bool* flip = flips.mutable_data_ptr<bool>();
  const RandomCrop crop{scale[0], scale[1], ratio[0], ratio[1]};
  for (int64_t i = 0; i < count; ++i) {
    const Crop drawn = crop.of(std::max(1, size[2 * i]), std::max(1, size[2 * i + 1]), key[i], epoch, seed);
    start[2 * i] = static_cast<int32_t>(drawn.top);
    start[2 * i + 1] = static_cast<int32_t>(drawn.left);
    extent[2 * i] = static_cast<int32_t>(drawn.height);
    extent[2 * i + 1] = static_cast<int32_t>(drawn.width);
    flip[i] = uniforms_of(key[i], epoch, seed, kFlipSlot)[0] < hflip;
  }
  return {starts, extents, flips};
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) { m.impl("random_crops", TORCH_BOX(&gpuaug::random_crops)); }
