// roi_align on CUDA.
//
// NCHW: a thread makes one bin of eight channels, so the geometry of a sample is worked out once for eight channels and 32
// independent loads are under way. channels_last: a thread makes one bin of 16 bytes of channels, neighbouring threads
// neighbouring channels, so every load of a warp is one contiguous run. Nothing is copied to another layout.
// A region that is not finite or names no image gives NaN: an exception would need a wait for the device.
#include "launch.h"
#include "roi_align_kernels.h"

namespace gpuaug {
namespace {

constexpr int kThreads = 256;
constexpr int kPlanes = 8;

struct Shape {
  int64_t count, images, channels;
  int32_t height, width;
  RoiOptions options;
  unsigned blocks_per_roi;
  FastDivide by_inner;  // bins (NCHW) or packs of channels (channels_last): the faster running half of an item
  FastDivide by_out_w;

  __host__ __device__ int64_t plane() const { return int64_t{height} * width; }
  __host__ __device__ int32_t bins() const { return options.out_h * options.out_w; }
};

// Where the thread works: a region, and outer * (inner count) + inner in it.
struct Item {
  int64_t region;
  int32_t outer, inner;

  __device__ explicit Item(const Shape& shape) : region(blockIdx.x / shape.blocks_per_roi) {
    const uint32_t index = (blockIdx.x % shape.blocks_per_roi) * kThreads + threadIdx.x;
    outer = static_cast<int32_t>(shape.by_inner(index));
    inner = static_cast<int32_t>(index - outer * shape.by_inner.divisor);
  }
};

// Calls body(pixels, weights) until every pixel of a bin had its weight, four pixels at a time; a weight of 0 is no pixel.
// With kMerge, bins of at most 2 x 2 samples have each pixel once: samples closer than a pixel share some. That halves
// the atomics of a gradient; reading planes it costs more than it saves (float32, adaptive, an H200, two
// runs: 0.49 ms without, 0.73 ms with).
template <bool kMerge, typename Body>
__device__ __forceinline__ void for_each_pixel(const Roi<float>& roi, const Shape& shape, int32_t bin, const Body& body) {
  const int32_t ph = static_cast<int32_t>(shape.by_out_w(bin)), pw = bin - ph * shape.options.out_w;
  if (kMerge && roi.y.grid <= 2 && roi.x.grid <= 2) {
    const MergedTaps<float> y(roi.y, ph, shape.height), x(roi.x, pw, shape.width);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (y.weight[r] == 0.0f) continue;
      const int64_t row = int64_t{y.at[r]} * shape.width;
      const int64_t pixels[4] = {row + x.at[0], row + x.at[1], row + x.at[2], row + x.at[3]};
      const float weights[4] = {y.weight[r] * x.weight[0], y.weight[r] * x.weight[1], y.weight[r] * x.weight[2],
                                y.weight[r] * x.weight[3]};
      body(pixels, weights);
    }
    return;
  }
  int32_t y_begin, y_end, x_begin, x_end;
  roi.y.range(ph, shape.height, y_begin, y_end);
  roi.x.range(pw, shape.width, x_begin, x_end);
  for (int32_t iy = y_begin; iy < y_end; ++iy) {
    AxisTap<float> y;
    if (!axis_tap(roi.y.sample(ph, iy), shape.height, y)) continue;
    const int64_t top = int64_t{y.low} * shape.width, bottom = int64_t{y.high} * shape.width;
    for (int32_t ix = x_begin; ix < x_end; ++ix) {
      AxisTap<float> x;
      if (!axis_tap(roi.x.sample(pw, ix), shape.width, x)) continue;
      const int64_t pixels[4] = {top + x.low, top + x.high, bottom + x.low, bottom + x.high};
      const float weights[4] = {y.low_weight * x.low_weight, y.low_weight * x.high_weight, y.high_weight * x.low_weight,
                                y.high_weight * x.high_weight};
      body(pixels, weights);
    }
  }
}

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fc00000); }

template <typename T>
__global__ void __launch_bounds__(kThreads) pool_planes(const T* __restrict__ x, const float* __restrict__ rois,
                                                        T* __restrict__ out, const Shape shape) {
  const Item item(shape);
  const int32_t bins = shape.bins(), bin = item.inner;
  const int64_t channel = int64_t{item.outer} * kPlanes;
  if (channel >= shape.channels) return;
  const int32_t planes = static_cast<int32_t>(min(int64_t{kPlanes}, shape.channels - channel));
  const Roi<float> roi = make_roi(rois + 5 * item.region, shape.images, shape.options);
  const int64_t plane = shape.plane();
  const T* first = x + (roi.batch * shape.channels + channel) * plane;
  float sum[kPlanes] = {};
  if (roi.good) {
    for_each_pixel<false>(roi, shape, bin, [&](const int64_t(&pixels)[4], const float(&weights)[4]) {
#pragma unroll
      for (int c = 0; c < kPlanes; ++c) {
        if (c < planes) {
          const T* from = first + c * plane;
#pragma unroll
          for (int t = 0; t < 4; ++t) sum[c] = fmaf(weights[t], static_cast<float>(__ldg(from + pixels[t])), sum[c]);
        }
      }
    });
  }
  const float factor = roi.good ? roi.mean_factor : not_a_number();
  T* to = out + (item.region * shape.channels + channel) * bins + bin;
#pragma unroll
  for (int c = 0; c < kPlanes; ++c) {
    if (c < planes) to[int64_t{c} * bins] = static_cast<T>(sum[c] * factor);
  }
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T value[kCount];
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) pool_pixels(const T* __restrict__ x, const float* __restrict__ rois,
                                                        T* __restrict__ out, const Shape shape) {
  using Values = Pack<T, kCount>;
  const Item item(shape);
  const int32_t bin = item.outer;
  const int64_t channel = int64_t{item.inner} * kCount;
  if (bin >= shape.bins()) return;
  const Roi<float> roi = make_roi(rois + 5 * item.region, shape.images, shape.options);
  const T* first = x + roi.batch * shape.channels * shape.plane() + channel;
  float sum[kCount] = {};
  if (roi.good) {
    for_each_pixel<true>(roi, shape, bin, [&](const int64_t(&pixels)[4], const float(&weights)[4]) {
      Values v[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        if (weights[t] != 0.0f) v[t] = *reinterpret_cast<const Values*>(first + pixels[t] * shape.channels);
      }
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        if (weights[t] == 0.0f) continue;
#pragma unroll
        for (int c = 0; c < kCount; ++c) sum[c] = fmaf(weights[t], static_cast<float>(v[t].value[c]), sum[c]);
      }
    });
  }
  const float factor = roi.good ? roi.mean_factor : not_a_number();
  Values result;
#pragma unroll
  for (int c = 0; c < kCount; ++c) result.value[c] = static_cast<T>(sum[c] * factor);
  *reinterpret_cast<Values*>(out + (item.region * shape.bins() + bin) * shape.channels + channel) = result;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) spread_planes(const T* __restrict__ grad, const float* __restrict__ rois,
                                                          float* __restrict__ summed, const Shape shape) {
  const Item item(shape);
  const int32_t bins = shape.bins(), bin = item.inner;
  const int64_t channel = int64_t{item.outer} * kPlanes;
  if (channel >= shape.channels) return;
  const int32_t planes = static_cast<int32_t>(min(int64_t{kPlanes}, shape.channels - channel));
  const Roi<float> roi = make_roi(rois + 5 * item.region, shape.images, shape.options);
  if (!roi.good) return;
  const int64_t plane = shape.plane();
  const T* from = grad + (item.region * shape.channels + channel) * bins + bin;
  float g[kPlanes];
#pragma unroll
  for (int c = 0; c < kPlanes; ++c) {
    g[c] = c < planes ? static_cast<float>(__ldg(from + int64_t{c} * bins)) * roi.mean_factor : 0.0f;
  }
  float* first = summed + (roi.batch * shape.channels + channel) * plane;
  for_each_pixel<true>(roi, shape, bin, [&](const int64_t(&pixels)[4], const float(&weights)[4]) {
#pragma unroll
    for (int c = 0; c < kPlanes; ++c) {
      if (c < planes) {
        float* to = first + c * plane;
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          if (weights[t] != 0.0f) atomicAdd(to + pixels[t], weights[t] * g[c]);
        }
      }
    }
  });
}

template <int kCount>
__device__ __forceinline__ void add_to(float* to, const float (&values)[kCount], float weight) {
#if __CUDA_ARCH__ >= 900
  constexpr bool kVector = kCount == 4;
#else
  constexpr bool kVector = false;
#endif
  if constexpr (kVector) {
#if __CUDA_ARCH__ >= 900
    atomicAdd(reinterpret_cast<float4*>(to),
              make_float4(weight * values[0], weight * values[1], weight * values[2], weight * values[3]));
#endif
  } else {
#pragma unroll
    for (int c = 0; c < kCount; ++c) atomicAdd(to + c, weight * values[c]);
  }
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) spread_pixels(const T* __restrict__ grad, const float* __restrict__ rois,
                                                          float* __restrict__ summed, const Shape shape) {
  const Item item(shape);
  const int32_t bin = item.outer;
  const int64_t channel = int64_t{item.inner} * kCount;
  if (bin >= shape.bins()) return;
  const Roi<float> roi = make_roi(rois + 5 * item.region, shape.images, shape.options);
  if (!roi.good) return;
  const auto from = *reinterpret_cast<const Pack<T, kCount>*>(
      grad + (item.region * shape.bins() + bin) * shape.channels + channel);
  float g[kCount];
#pragma unroll
  for (int c = 0; c < kCount; ++c) g[c] = static_cast<float>(from.value[c]) * roi.mean_factor;
  float* first = summed + roi.batch * shape.channels * shape.plane() + channel;
  for_each_pixel<true>(roi, shape, bin, [&](const int64_t(&pixels)[4], const float(&weights)[4]) {
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      if (weights[t] != 0.0f) add_to(first + pixels[t] * shape.channels, g, weights[t]);
    }
  });
}

// Fills in how items are counted: outer * inner of them a region. Gives the grid.
unsigned grid_for(Shape& shape, int64_t outer, int64_t inner) {
  const int64_t per_roi = (outer * inner + kThreads - 1) / kThreads;
  if (outer * inner > INT32_MAX - kThreads || per_roi * shape.count > INT32_MAX) {
    fail("roi_align: too many values for one call: ", shape.count, " regions of ", shape.channels, " channels");
  }
  shape.blocks_per_roi = static_cast<unsigned>(per_roi);
  shape.by_inner = FastDivide(static_cast<uint32_t>(inner));
  return static_cast<unsigned>(per_roi * shape.count);
}

unsigned grid_of_planes(Shape& shape) {
  return grid_for(shape, (shape.channels + kPlanes - 1) / kPlanes, shape.bins());
}

unsigned grid_of_packs(Shape& shape, int count) { return grid_for(shape, shape.bins(), shape.channels / count); }

// Packs of `bytes` bytes, `count` channels each.
bool can_pack(const RoiAlignLaunch& launch, int count, size_t bytes) {
  return launch.channels % count == 0 && reinterpret_cast<uintptr_t>(launch.in) % bytes == 0;
}

Shape shape_of(const RoiAlignLaunch& launch) {
  return {launch.count,   launch.images, launch.channels, launch.height, launch.width,
          launch.options, 0,             FastDivide(1),   FastDivide(static_cast<uint32_t>(launch.options.out_w))};
}

}  // namespace

void launch_roi_align(const RoiAlignLaunch& launch, cudaStream_t stream) {
  Shape shape = shape_of(launch);
  dispatch_floating(launch.type, [&](auto zero) {
    using T = decltype(zero);
    const T* in = static_cast<const T*>(launch.in);
    T* out = static_cast<T*>(launch.out);
    constexpr int kCount = 16 / sizeof(T);
    if (!launch.channels_last) {
      const unsigned grid = grid_of_planes(shape);
      pool_planes<T><<<grid, kThreads, 0, stream>>>(in, launch.rois, out, shape);
    } else if (can_pack(launch, kCount, kCount * sizeof(T))) {
      const unsigned grid = grid_of_packs(shape, kCount);
      pool_pixels<T, kCount><<<grid, kThreads, 0, stream>>>(in, launch.rois, out, shape);
    } else {
      const unsigned grid = grid_of_packs(shape, 1);
      pool_pixels<T, 1><<<grid, kThreads, 0, stream>>>(in, launch.rois, out, shape);
    }
  });
  check_launch("roi_align");
}

void launch_roi_align_backward(const RoiAlignLaunch& launch, cudaStream_t stream) {
  Shape shape = shape_of(launch);
  dispatch_floating(launch.type, [&](auto zero) {
    using T = decltype(zero);
    const T* in = static_cast<const T*>(launch.in);
    float* summed = static_cast<float*>(launch.out);
    constexpr int kCount = 4;  // of the sums: 16 bytes
    if (!launch.channels_last) {
      const unsigned grid = grid_of_planes(shape);
      spread_planes<T><<<grid, kThreads, 0, stream>>>(in, launch.rois, summed, shape);
    } else if (can_pack(launch, kCount, kCount * sizeof(T))) {
      const unsigned grid = grid_of_packs(shape, kCount);
      spread_pixels<T, kCount><<<grid, kThreads, 0, stream>>>(in, launch.rois, summed, shape);
    } else {
      const unsigned grid = grid_of_packs(shape, 1);
      spread_pixels<T, 1><<<grid, kThreads, 0, stream>>>(in, launch.rois, summed, shape);
    }
  });
  check_launch("roi_align");
}

}  // namespace gpuaug
