// resize_packed: what the CPU and the CUDA op share on the host: checks, contiguous inputs, output allocation.
#pragma once

#include "images.h"
#include "normalize.h"
#include "resample.h"

namespace gpuaug {

struct PackedCall {
  Tensor data;                 // uint8, all images end to end
  Tensor offsets;              // int64 (N,), first byte of each image
  Tensor sizes;                // int32 (N, 2), height and width of each image
  std::optional<Tensor> flip;  // bool (N,)
  Tensor out;                  // (N, 3, height, width)
  int64_t samples, bytes;
  int height, width;
  ChannelAffine affine;
  Interpolation interpolation;
  bool antialias, channels_last;
};

inline PackedCall prepare_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height,
                                 int64_t width, const std::vector<double>& mean, const std::vector<double>& std,
                                 const std::optional<Tensor>& flip, ScalarType dtype, bool channels_last,
                                 int64_t interpolation, bool antialias) {
  constexpr const char* op = "resize_packed";
  check_strided(op, "data", data);
  check_dtype(op, "data", data, ScalarType::Byte);
  if (data.dim() != 1) fail(op, ": data must have one dimension, got ", shape_name(data));
  check_strided(op, "offsets", offsets);
  check_dtype(op, "offsets", offsets, ScalarType::Long);
  if (offsets.dim() != 1) fail(op, ": offsets must have shape (N,), got ", shape_name(offsets));
  check_same_device(op, "offsets", offsets, data);
  check_strided(op, "sizes", sizes);
  check_dtype(op, "sizes", sizes, ScalarType::Int);
  const int64_t samples = offsets.size(0);
  if (sizes.dim() != 2 || sizes.size(0) != samples || sizes.size(1) != 2) {
    fail(op, ": sizes must have shape (", samples, ", 2), got ", shape_name(sizes));
  }
  check_same_device(op, "sizes", sizes, data);
  if (flip) {
    check_per_sample(op, "flip", *flip, offsets, ScalarType::Bool);
  }
  constexpr int64_t kLongest = 1 << 15;
  if (height < 1 || height > kLongest || width < 1 || width > kLongest) {
    fail(op, ": height and width must be in 1..", kLongest, ", got ", height, " and ", width);
  }
  if (interpolation < 0 || interpolation > 2) fail(op, ": interpolation must be 0, 1 or 2, got ", interpolation);
  if (dtype != ScalarType::Float && dtype != ScalarType::Half && dtype != ScalarType::BFloat16 &&
      dtype != ScalarType::Byte) {
    fail(op, ": dtype must be torch.float32, torch.float16, torch.bfloat16 or torch.uint8, got ", dtype_name(dtype));
  }
  const ChannelAffine affine = checked_affine(op, mean, std);
  const int64_t shape[4] = {samples, kChannels, height, width};
  using torch::headeronly::MemoryFormat;
  Tensor out = torch::stable::empty({shape, 4}, dtype, std::nullopt, data.device(), std::nullopt,
                                    channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
  std::optional<Tensor> dense_flip;
  if (flip) dense_flip = torch::stable::contiguous(*flip);
  const Tensor dense = torch::stable::contiguous(data);
  return {dense, torch::stable::contiguous(offsets), torch::stable::contiguous(sizes), dense_flip, out, samples,
          dense.numel(), static_cast<int>(height), static_cast<int>(width), affine,
          static_cast<Interpolation>(interpolation), antialias, channels_last};
}

}  // namespace gpuaug
