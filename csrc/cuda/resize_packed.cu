// resize_packed on CUDA: every image whole, resized and normalised in one pass (resize.cuh).
#include "../images.h"
#include "resize.cuh"
#include "resize_packed_kernels.h"

namespace gpuaug {
namespace {

__device__ __forceinline__ ResizeJob job_of(const PackedLaunch& launch, int64_t sample) {
  const int64_t offset = launch.offsets[sample];
  const int source_height = launch.sizes[2 * sample], source_width = launch.sizes[2 * sample + 1];
  const bool readable = inside_of_data(offset, source_height, source_width, launch.bytes);
  return {readable ? launch.data + offset : nullptr,
          static_cast<int64_t>(source_width) * kChannels,
          make_axis(source_height, launch.height, launch.interpolation, launch.antialias),
          make_axis(source_width, launch.width, launch.interpolation, launch.antialias),
          launch.interpolation,
          launch.flip && launch.flip[sample],
          false};
}

// What is left to do with a pixel that has been stored.
struct Nothing {
  __device__ __forceinline__ bool wanted() const { return false; }
  __device__ __forceinline__ void operator()(int, int) const {}
};

template <typename T>
__global__ void __launch_bounds__(kResizeThreads, 4) resize_images(const PackedLaunch launch, T* out) {
  __shared__ ResizeShared shared;
  for (int64_t sample = blockIdx.z; sample < launch.samples; sample += gridDim.z) {
    const ResizedImage<T> image{out + sample * kChannels * launch.height * launch.width, launch.height, launch.width,
                                launch.channels_last, launch.affine};
    __syncthreads();  // the image before is done
    if (threadIdx.x + threadIdx.y == 0) shared.job = job_of(launch, sample);
    __syncthreads();
    resize_block(shared, image, Nothing{});
  }
}

}  // namespace

void launch_resize_packed(const PackedLaunch& launch, void* out, Element type, cudaStream_t stream) {
  dispatch_element(type, [&](auto zero) {
    using T = decltype(zero);
    resize_images<T><<<resize_grid(launch.height, launch.width, launch.samples), dim3(kColumns, kRowGroups), 0, stream>>>(
        launch, static_cast<T*>(out));
  });
  check_launch("resize_packed");
}

}  // namespace gpuaug
