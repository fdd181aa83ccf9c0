// Crop and resize of ragged images on CUDA, as their records say (resize.cuh): to uint8 pixels for the programs, or, where
// no record has a program or a mix, straight to the result.
#include <torch/csrc/stable/library.h>

#include "../ragged.h"
#include "resize.cuh"

namespace gpuaug {
namespace {

constexpr int kListImages = 200;  // descriptors that fit a kernel's arguments

struct ListImages {
  RaggedImage image[kListImages];

  __device__ __forceinline__ RaggedImage at(int64_t i) const { return image[i]; }
  // Tensors of their own: nothing around an image may be read.
  __device__ __forceinline__ ByteRange range(const RaggedImage& i) const {
    return {i.data, i.data + int64_t{kChannels} * i.height * i.width};
  }
};

struct PackedDeviceImages : PackedImages {
  __device__ __forceinline__ ByteRange range(const RaggedImage&) const { return {data, data + bytes}; }
};

template <typename Images>
struct RecordLaunch {
  Images images;
  const int32_t* records;
  int64_t samples;
  int height, width;
  bool finish, channels_last;  // finish: flips and erasing, as the records say
  ChannelAffine affine, unit;

  __device__ __forceinline__ ResizeJob job(const int32_t* record, int64_t sample) const {
    const RaggedImage source = images.at(sample);
    const int64_t stride = static_cast<int64_t>(source.width) * kChannels;
    const Window window = source.height > 0 ? window_of(record, source.height, source.width) : Window{0, 0, 1, 1};
    const Filter filter = filter_of(record);
    const int32_t flags = finish && has_version(record) ? record[kWordFlags] : 0;
    return {source.height > 0 ? source.data + window.top * stride + static_cast<int64_t>(window.left) * kChannels : nullptr,
            images.range(source),
            stride,
            make_axis(window.height, height, filter.interpolation, filter.antialias),
            make_axis(window.width, width, filter.interpolation, filter.antialias),
            filter.interpolation,
            (flags & kFlagFlipHorizontal) != 0,
            (flags & kFlagFlipVertical) != 0};
  }
};

__device__ __noinline__ float erasing_noise(const int32_t* record, uint32_t pixel, int channel) {
  const Noise noise = noise_of_pixel(record, pixel);
  return channel == 0 ? noise.channel[0] : channel == 1 ? noise.channel[1] : noise.channel[2];
}

template <typename T, typename Images>
__global__ void __launch_bounds__(kResizeThreads, 4)
    resize_windows(const __grid_constant__ RecordLaunch<Images> launch, T* out) {
  __shared__ ResizeShared shared;
  __shared__ int32_t record[kRecordWords];
  __shared__ Erase erase;
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  for (int64_t sample = blockIdx.z; sample < launch.samples; sample += gridDim.z) {
    __syncthreads();  // the record before has been read
    if (thread < kRecordWords) record[thread] = __ldg(launch.records + sample * kRecordWords + thread);
    __syncthreads();
    if (thread == 0) {
      erase = Erase(record, launch.height, launch.width, launch.unit);
      if (!launch.finish) erase.mode = EraseMode::kNone;
    }
    const ResizedImage<T> image{out + sample * kChannels * launch.height * launch.width, launch.height, launch.width,
                                launch.channels_last, launch.affine};
    resize_block(shared, launch.job(record, sample), image, [&](int x, int y, float (&value)[kChannels]) {
      const Rectangle& where = erase.where;
      if (erase.mode == EraseMode::kNone || y < where.top || y >= where.bottom || x < where.left || x >= where.right) return;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        value[c] = erase.mode == EraseMode::kConstant
                       ? erase.value[c]
                       : fmaf(erasing_noise(record, static_cast<uint32_t>(y) * launch.width + x, c), launch.unit.scale[c],
                              launch.unit.bias[c]);
      }
    });
  }
}

template <typename T, typename Images>
void start(const char* op, const RecordLaunch<Images>& launch, T* out, cudaStream_t stream) {
  resize_windows<T, Images><<<resize_grid(launch.height, launch.width, launch.samples), dim3(kColumns, kRowGroups), 0,
                              stream>>>(launch, out);
  check_launch(op);
}

// Calls body(launch, first sample) for as many images at a time as fit a launch.
template <typename Body>
void for_parts_of_list(const std::vector<Tensor>& images, RecordLaunch<ListImages> launch, const int32_t* records,
                       const Body& body) {
  const int64_t samples = static_cast<int64_t>(images.size());
  for (int64_t begin = 0; begin < samples; begin += kListImages) {
    launch.samples = std::min<int64_t>(kListImages, samples - begin);
    launch.records = records + begin * kRecordWords;
    for (int64_t i = 0; i < kListImages; ++i) {
      launch.images.image[i] = ragged_image(images[begin + std::min(i, launch.samples - 1)]);
    }
    body(launch, begin);
  }
}

// uint8 pixels, for the programs.

constexpr ChannelAffine kIdentity = {{1, 1, 1}, {0, 0, 0}};

Tensor new_pixels(const Tensor& like, int64_t samples, int64_t out_h, int64_t out_w) {
  return torch::stable::empty({samples, out_h, out_w, kChannels}, ScalarType::Byte, std::nullopt, like.device());
}

template <typename Images>
RecordLaunch<Images> pixel_launch(const Images& images, const int32_t* records, int64_t samples, int64_t out_h, int64_t out_w) {
  return {images, records, samples, static_cast<int>(out_h), static_cast<int>(out_w), false, true, kIdentity, kIdentity};
}

Tensor crop_resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_packed";
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const RaggedCall call = prepare_ragged(op, data, offsets, sizes, params, out_h, out_w);
  Tensor out = new_pixels(data, call.samples, out_h, out_w);
  if (out.numel() == 0) return out;
  const auto launch = pixel_launch(PackedDeviceImages{call.images()}, call.params.const_data_ptr<int32_t>(), call.samples,
                                   out_h, out_w);
  start(op, launch, out.mutable_data_ptr<uint8_t>(), current_stream(data));
  return out;
}

Tensor crop_resize_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_list";
  const torch::stable::accelerator::DeviceGuard guard(params.get_device_index());
  const std::vector<Tensor> dense = prepare_list(op, images, params, out_h, out_w);
  const Tensor records = torch::stable::contiguous(params);
  Tensor out = new_pixels(params, params.size(0), out_h, out_w);
  for_parts_of_list(dense, pixel_launch(ListImages{}, nullptr, 0, out_h, out_w), records.const_data_ptr<int32_t>(),
                    [&](const RecordLaunch<ListImages>& launch, int64_t begin) {
                      start(op, launch, out.mutable_data_ptr<uint8_t>() + begin * out_h * out_w * kChannels,
                            current_stream(params));
                    });
  return out;
}

// The result itself.

template <typename Images>
RecordLaunch<Images> finishing_launch(const Images& images, const FinishCall& call, const int32_t* records) {
  return {images, records, call.samples, call.height, call.width, true, call.channels_last, call.affine, call.unit};
}

Tensor crop_finish_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w, std::vector<double> mean, std::vector<double> std, ScalarType dtype,
                          bool channels_last) {
  constexpr const char* op = "crop_finish_packed";
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const RaggedCall call = prepare_ragged(op, data, offsets, sizes, params, out_h, out_w);
  const FinishCall finish = prepare_finish(op, data, call.samples, out_h, out_w, mean, std, dtype, channels_last);
  if (finish.out.numel() == 0) return finish.out;
  const auto launch = finishing_launch(PackedDeviceImages{call.images()}, finish, call.params.const_data_ptr<int32_t>());
  dispatch_output_type(dtype, [&](auto zero) {
    start(op, launch, static_cast<decltype(zero)*>(finish.out.mutable_data_ptr()), current_stream(data));
  });
  return finish.out;
}

Tensor crop_finish_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w,
                        std::vector<double> mean, std::vector<double> std, ScalarType dtype, bool channels_last) {
  constexpr const char* op = "crop_finish_list";
  const torch::stable::accelerator::DeviceGuard guard(params.get_device_index());
  const std::vector<Tensor> dense = prepare_list(op, images, params, out_h, out_w);
  const FinishCall finish = prepare_finish(op, params, params.size(0), out_h, out_w, mean, std, dtype, channels_last);
  const Tensor records = torch::stable::contiguous(params);
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for_parts_of_list(dense, finishing_launch(ListImages{}, finish, nullptr), records.const_data_ptr<int32_t>(),
                      [&](const RecordLaunch<ListImages>& launch, int64_t begin) {
                        start(op, launch, static_cast<T*>(finish.out.mutable_data_ptr()) + begin * kChannels * out_h * out_w,
                              current_stream(params));
                      });
  });
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
