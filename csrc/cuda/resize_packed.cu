// resize_packed on CUDA: a block makes a tile of one image, a thread a few neighbouring rows of one column.
//
// Taps and weights are worked out once a tile, in shared memory. Neighbouring output rows need mostly the same source
// rows, so a thread sums each source row along the line once and adds it to every output row it belongs to. The order
// of the additions is that of resample_pixel, and so are the bits. The source window of a tile is small and stays in
// the L1 cache; an image's bytes come from memory about once.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "../resize_packed.h"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kColumns = 32;       // of a tile, one a thread
constexpr int kGroups = 8;         // of rows in a tile
constexpr int kRows = 4;           // of a group, all of one thread
constexpr int kTileRows = kGroups * kRows;
constexpr int kMost = kMostTaps;   // weights kept; longer lines work theirs out as they go

// What is known of the rows, or of the columns, of a tile.
struct Line {
  Taps taps[kTileRows];
  float weights[kTileRows][kMost];
};

template <Interpolation kKind>
__device__ void prepare_line(Line& line, const Axis& axis, int at, int first, bool mirrored) {
  const int output = min(first + at, axis.output - 1);
  const Taps taps = make_taps<kKind>(axis, mirrored ? axis.output - 1 - output : output);
  line.taps[at] = taps;
  if (taps.end - taps.begin <= kMost) {
    for (int k = 0; k < taps.end - taps.begin; ++k) line.weights[at][k] = weight_of<kKind>(axis, taps, k);
  }
}

template <typename T, Interpolation kKind>
__global__ void __launch_bounds__(kColumns* kGroups)
    resize_tiles(const uint8_t* __restrict__ data, const int64_t* __restrict__ offsets,
                 const int32_t* __restrict__ sizes, const bool* __restrict__ flip, T* __restrict__ out,
                 int64_t samples, int64_t bytes, int height, int width, bool antialias, bool channels_last,
                 ChannelAffine affine) {
  static_assert(kColumns == kTileRows);
  __shared__ Line vertical, horizontal;
  const int i = blockIdx.x * kColumns + threadIdx.x;
  const int group = blockIdx.y * kTileRows + threadIdx.y * kRows;  // first row of the thread
  const int64_t plane = static_cast<int64_t>(height) * width;
  for (int64_t sample = blockIdx.z; sample < samples; sample += gridDim.z) {
    const int source_height = sizes[2 * sample], source_width = sizes[2 * sample + 1];
    const bool readable = inside_of_data(offsets[sample], source_height, source_width, bytes);
    const Axis rows = make_axis(source_height, height, kKind, antialias);
    const Axis columns = make_axis(source_width, width, kKind, antialias);
    __syncthreads();  // the tables of the sample before have been read
    if (readable && threadIdx.y == 0) {
      prepare_line<kKind>(vertical, rows, threadIdx.x, blockIdx.y * kTileRows, false);
    } else if (readable && threadIdx.y == 1) {
      prepare_line<kKind>(horizontal, columns, threadIdx.x, blockIdx.x * kColumns, flip && flip[sample]);
    }
    __syncthreads();
    if (i >= width || group >= height) continue;
    float sum[kRows][kChannels] = {};
    if (readable) {
      const Taps x = horizontal.taps[threadIdx.x];
      const int count = x.end - x.begin;
      float weights[kMost];
#pragma unroll
      for (int k = 0; k < kMost; ++k) weights[k] = k < count && count <= kMost ? horizontal.weights[threadIdx.x][k] : 0;
      const Taps* y = vertical.taps + threadIdx.y * kRows;
      const int begin = y[0].begin, end = y[min(kRows, height - group) - 1].end;
      const int64_t stride = static_cast<int64_t>(source_width) * kChannels;
      const uint8_t* tap = data + offsets[sample] + begin * stride + static_cast<int64_t>(x.begin) * kChannels;
      for (int source = begin; source < end; ++source, tap += stride) {
        float weight[kRows];
        bool used[kRows], any = false;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int k = source - y[r].begin, most = y[r].end - y[r].begin;
          used[r] = k >= 0 && k < most;
          any = any || used[r];
          weight[r] = !used[r]        ? 0.0f
                      : most <= kMost ? vertical.weights[threadIdx.y * kRows + r][k]
                                      : weight_of<kKind>(rows, y[r], k);
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
          for (int c = 0; c < kChannels; ++c) sum[r][c] = fmaf(weight[r], line[c], sum[r][c]);
        }
      }
    }
    T* image = out + sample * kChannels * plane;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (group + r >= height) break;
      const int64_t at = static_cast<int64_t>(group + r) * width + i;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        image[channels_last ? at * kChannels + c : c * plane + at] =
            normalize_pixel<T>(round_to_byte(sum[r][c]), affine.scale[c], affine.bias[c]);
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
  const dim3 grid((call.width + kColumns - 1) / kColumns, (call.height + kTileRows - 1) / kTileRows,
                  static_cast<unsigned>(std::min<int64_t>(call.samples, 65535)));
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    dispatch_interpolation(call.interpolation, [&](auto kind) {
      resize_tiles<T, decltype(kind)::value><<<grid, block, 0, current_stream(call.data)>>>(
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
