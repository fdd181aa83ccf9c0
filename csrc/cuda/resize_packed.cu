// resize_packed on CUDA: a block makes a band of one image's columns, a thread a few neighbouring rows of one column.
//
// Taps and weights are worked out once a block, in shared memory. Neighbouring output rows need mostly the same source
// rows, so a thread sums each source row along the line once and adds it to every output row it belongs to. The order
// of the additions is that of resample_pixel, and so are the bits. The source window of a group of rows is small and
// stays in the L1 cache; an image's bytes come from memory about once.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "../resize_packed.h"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kColumns = 32;                    // of a band, one a thread
constexpr int kGroups = 8;                      // of rows that are made at the same time
constexpr int kRows = 4;                        // of a group, all of one thread
constexpr int kThreads = kColumns * kGroups;
constexpr int kBandRows = kThreads;             // rows whose taps are kept at a time, one a thread
constexpr int kMost = kMostTaps;                // weights kept of a line; longer lines work theirs out as they go

struct Line {
  Taps taps;
  float weights[kMost];
};

template <Interpolation kKind>
__device__ __forceinline__ void prepare_line(Line& line, const Axis& axis, int output) {
  const Taps taps = make_taps<kKind>(axis, output);
  line.taps = taps;
  const int count = taps.end - taps.begin;
#pragma unroll
  for (int k = 0; k < kMost; ++k) line.weights[k] = k < count ? weight_of<kKind>(axis, taps, k) : 0.0f;
}

template <typename T, Interpolation kKind>
__global__ void __launch_bounds__(kThreads)
    resize_bands(const uint8_t* __restrict__ data, const int64_t* __restrict__ offsets,
                 const int32_t* __restrict__ sizes, const bool* __restrict__ flip, T* __restrict__ out,
                 int64_t samples, int64_t bytes, int height, int width, bool antialias, bool channels_last,
                 ChannelAffine affine) {
  __shared__ Line vertical[kBandRows], horizontal[kColumns];
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  const int i = blockIdx.x * kColumns + threadIdx.x;
  const int64_t plane = static_cast<int64_t>(height) * width;
  for (int64_t sample = blockIdx.z; sample < samples; sample += gridDim.z) {
    const int64_t offset = offsets[sample];
    const int source_height = sizes[2 * sample], source_width = sizes[2 * sample + 1];
    const bool readable = inside_of_data(offset, source_height, source_width, bytes);
    const Axis rows = make_axis(source_height, height, kKind, antialias);
    const Axis columns = make_axis(source_width, width, kKind, antialias);
    const int band = blockIdx.y * kBandRows;  // first row
    __syncthreads();                          // the tables of the sample before have been read
    if (readable) {
      if (band + thread < height) prepare_line<kKind>(vertical[thread], rows, band + thread);
      if (thread < kColumns && i < width) {
        prepare_line<kKind>(horizontal[thread], columns, flip && flip[sample] ? width - 1 - i : i);
      }
    }
    __syncthreads();
    if (i >= width) continue;
    const Taps x = horizontal[threadIdx.x].taps;
    const int count = x.end - x.begin;
    float weights[kMost];
#pragma unroll
    for (int k = 0; k < kMost; ++k) weights[k] = horizontal[threadIdx.x].weights[k];
    const int64_t stride = static_cast<int64_t>(source_width) * kChannels;
    T* image = out + sample * kChannels * plane;
    for (int group = threadIdx.y * kRows; group < kBandRows && band + group < height; group += kGroups * kRows) {
      float sum[kRows][kChannels] = {};
      if (readable) {
        int begin[kRows], most[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const bool there = band + group + r < height;
          begin[r] = there ? vertical[group + r].taps.begin : 0;
          most[r] = there ? vertical[group + r].taps.end - begin[r] : 0;
        }
        int end = begin[0] + most[0];
#pragma unroll
        for (int r = 1; r < kRows; ++r) end = max(end, begin[r] + most[r]);
        const uint8_t* tap = data + offset + begin[0] * stride + static_cast<int64_t>(x.begin) * kChannels;
        for (int source = begin[0]; source < end; ++source, tap += stride) {
          float weight[kRows];
          bool used[kRows], any = false;
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const int k = source - begin[r];
            used[r] = k >= 0 && k < most[r];
            any = any || used[r];
            weight[r] = !used[r]           ? 0.0f
                        : most[r] <= kMost ? vertical[group + r].weights[k]
                                           : weight_of<kKind>(rows, vertical[group + r].taps, k);
          }
          if (!any) continue;  // rows lie apart when an image is shrunk without antialias
          float line[kChannels] = {};
          if (count <= kMost) {
            sum_line(tap, weights, count, line);
          } else {
            sum_line<kKind>(tap, columns, x, line);
          }
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            if (!used[r]) continue;
#pragma unroll
            for (int c = 0; c < kChannels; ++c) sum[r][c] = fmaf(weight[r], limited_line<kKind>(line[c]), sum[r][c]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (band + group + r >= height) break;
        const int64_t at = static_cast<int64_t>(band + group + r) * width + i;
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          image[channels_last ? at * kChannels + c : c * plane + at] =
              normalize_pixel<T>(round_to_byte(sum[r][c]), affine.scale[c], affine.bias[c]);
        }
      }
    }
  }
}

Tensor resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, int64_t height, int64_t width,
                     std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip, ScalarType dtype,
                     bool channels_last, int64_t interpolation, bool antialias) {
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const PackedCall call = prepare_packed(data, offsets, sizes, height, width, mean, std, flip, dtype, channels_last,
                                         interpolation, antialias);
  if (call.out.numel() == 0) return call.out;
  const dim3 block(kColumns, kGroups);
  const dim3 grid((call.width + kColumns - 1) / kColumns, (call.height + kBandRows - 1) / kBandRows,
                  static_cast<unsigned>(std::min<int64_t>(call.samples, 65535)));
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_interpolation(call.interpolation, [&](auto kind) {
      resize_bands<T, decltype(kind)::value><<<grid, block, 0, current_stream(call.data)>>>(
          call.data.const_data_ptr<uint8_t>(), call.offsets.const_data_ptr<int64_t>(),
          call.sizes.const_data_ptr<int32_t>(), call.flip ? call.flip->const_data_ptr<bool>() : nullptr,
          static_cast<T*>(call.out.mutable_data_ptr()), call.samples, call.bytes, call.height, call.width,
          call.antialias, call.channels_last, call.affine);
    });
  });
  check_launch("resize_packed");
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("resize_packed", TORCH_BOX(&gpuaug::resize_packed)); }
