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
};

template <typename Images>
struct RecordLaunch {
  Images images;
  const int32_t* records;
  int64_t samples;
  int height, width;
  bool finish, channels_last;  // finish: flips and erasing, as the records say
  ChannelAffine affine, unit;

  __device__ __forceinline__ ResizeJob job(const int32_t* record, const RaggedImage& source) const {
    const int64_t stride = static_cast<int64_t>(source.width) * kChannels;
    const Window window = source.height > 0 ? window_of(record, source.height, source.width) : Window{0, 0, 1, 1};
    const Filter filter = filter_of(record);
    const int32_t flags = finish && has_version(record) ? record[kWordFlags] : 0;
    return {source.height > 0 ? source.data + window.top * stride + static_cast<int64_t>(window.left) * kChannels : nullptr,
            stride,
            make_axis(window.height, height, filter.interpolation, filter.antialias),
            make_axis(window.width, width, filter.interpolation, filter.antialias),
            filter.interpolation,
            (flags & kFlagFlipHorizontal) != 0,
            (flags & kFlagFlipVertical) != 0};
  }
};

// Overwrites the pixels that a record erases.
template <typename T>
struct Eraser {
  const ResizedImage<T>& image;
  const int32_t* record;
  const Erase& erase;
  const ChannelAffine& unit;

  __device__ __forceinline__ bool wanted() const { return erase.mode != EraseMode::kNone; }

  __device__ __forceinline__ void operator()(int x, int y) const {
    const Rectangle& where = erase.where;
    if (y < where.top || y >= where.bottom || x < where.left || x >= where.right) return;
    const int64_t pixel = static_cast<int64_t>(y) * image.width + x;
    const int64_t plane = static_cast<int64_t>(image.height) * image.width;
    Noise noise;
    if (erase.mode == EraseMode::kNoise) noise = noise_of_pixel(record, static_cast<uint32_t>(pixel));
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const float value = erase.mode == EraseMode::kNoise ? noise_value(noise, c, unit) : erase.value[c];
      image.values[image.channels_last ? kChannels * pixel + c : c * plane + pixel] = finished<T>(value);
    }
  }
};

template <typename T, typename Images>
__global__ void __launch_bounds__(kResizeThreads, 4)
    resize_windows(const __grid_constant__ RecordLaunch<Images> launch, T* out) {
  __shared__ ResizeShared shared;
  __shared__ int32_t record[kRecordWords];
  __shared__ Erase erase;
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  for (int64_t sample = blockIdx.z; sample < launch.samples; sample += gridDim.z) {
    __syncthreads();  // the image before is done
    RaggedImage source;
    if (thread == 0) source = launch.images.at(sample);
    if (thread < kRecordWords) record[thread] = __ldg(launch.records + sample * kRecordWords + thread);
    __syncthreads();
    if (thread == 0) shared.job = launch.job(record, source);
    if (thread == kColumns) {
      erase = Erase(record, launch.height, launch.width, launch.unit);
      if (!launch.finish) erase.mode = EraseMode::kNone;
    }
    __syncthreads();
    const ResizedImage<T> image{out + sample * kChannels * launch.height * launch.width, launch.height, launch.width,
                                launch.channels_last, launch.affine};
    resize_block(shared, image, Eraser<T>{image, record, erase, launch.unit});
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
    start(launch.op, record_launch(launch, images), static_cast<decltype(zero)*>(launch.out), stream);
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
