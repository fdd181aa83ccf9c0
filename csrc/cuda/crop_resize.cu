// The kernel of crop and resize: ragged images as their records say (resize.cuh).
#include <algorithm>

#include "crop_resize_kernels.h"
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

template <typename Images>
RecordLaunch<Images> record_launch(const CropLaunch& launch, const Images& images) {
  return {images,        launch.records,       launch.samples, launch.height, launch.width,
          launch.finish, launch.channels_last, launch.affine,  launch.unit};
}

template <typename T, typename Images>
void start(const char* op, const RecordLaunch<Images>& launch, T* out, cudaStream_t stream) {
  resize_windows<T, Images><<<resize_grid(launch.height, launch.width, launch.samples), dim3(kColumns, kRowGroups), 0,
                              stream>>>(launch, out);
  check_launch(op);
}

}  // namespace

void launch_crop(const CropLaunch& launch, const PackedImages& images, cudaStream_t stream) {
  dispatch_element(launch.type, [&](auto zero) {
    start(launch.op, record_launch(launch, PackedDeviceImages{images}), static_cast<decltype(zero)*>(launch.out), stream);
  });
}

// As many images at a time as fit a kernel's arguments.
void launch_crop(const CropLaunch& launch, const RaggedImage* images, cudaStream_t stream) {
  RecordLaunch<ListImages> part = record_launch(launch, ListImages{});
  for (int64_t begin = 0; begin < launch.samples; begin += kListImages) {
    part.samples = std::min<int64_t>(kListImages, launch.samples - begin);
    part.records = launch.records + begin * kRecordWords;
    for (int64_t i = 0; i < kListImages; ++i) part.images.image[i] = images[begin + std::min(i, part.samples - 1)];
    dispatch_element(launch.type, [&](auto zero) {
      using T = decltype(zero);
      start(launch.op, part, static_cast<T*>(launch.out) + begin * kChannels * launch.height * launch.width, stream);
    });
  }
}

}  // namespace gpuaug
