// Crop and resize of ragged images on CUDA: a block a strip of output rows of one sample.
//
// A block filters the source rows that its strip needs along x into shared memory and then along y from there, in the
// order of resample_pixel: the results are those of resize_packed, bit for bit. Weights are made once a block. A strip whose
// source rows do not fit (strong shrinking) is done in several smaller ones; a row that does not fit alone is left to
// resample_pixel's way, tap by tap.
#include <torch/csrc/stable/library.h>

#include "../ragged.h"
#include "../window.h"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kResizeThreads = 256;
constexpr int kStrip = 8;                 // output rows a block
constexpr int kColumnWeights = 2 * 1024;  // in shared memory, which is 64 KB a block on the smallest cards
constexpr int kRowWeights = 32;           // in shared memory, of each output row
constexpr int kMiddle = 12800;            // values filtered along x
constexpr int kListImages = 200;          // descriptors that fit a kernel's arguments

struct ListImages {
  RaggedImage image[kListImages];
  GPUAUG_HOST_DEVICE RaggedImage at(int64_t i) const { return image[i]; }
};

struct ResizeShared {
  int32_t record[kRecordWords];
  Taps row_taps[kStrip];
  float row_weight[kStrip * kRowWeights];
  float column_weight[kColumnWeights];  // [tap][column]
  float middle[kMiddle];                // [source row][column][channel]
};

static_assert(sizeof(ResizeShared) <= 64 * 1024);

template <typename Images>
struct ResizeLaunch {
  Images images;
  const int32_t* records;
  uint8_t* out;
  int out_h, out_w;
  uint32_t strips;  // of a sample
  FastDivide by_width;
};

struct Line {
  float r, g, b;
};

template <Interpolation kKind>
struct Strip {
  ResizeShared& shared;
  const uint8_t* origin;  // of the window
  int64_t source_row;
  Axis rows, columns;
  bool columns_known, rows_known;  // weights are in shared memory

  __device__ void make_weights(int top, int count) {
    columns_known = most_taps(columns) * columns.output <= kColumnWeights;
    rows_known = most_taps(rows) <= kRowWeights;
    if (columns_known) {
      for (int x = threadIdx.x; x < columns.output; x += kResizeThreads) {
        const Taps t = make_taps<kKind>(columns, x);
        for (int k = 0; k < t.end - t.begin; ++k) {
          shared.column_weight[k * columns.output + x] = weight_of<kKind>(columns, t, k);
        }
      }
    }
    if (static_cast<int>(threadIdx.x) < count) {
      const Taps t = make_taps<kKind>(rows, top + threadIdx.x);
      shared.row_taps[threadIdx.x] = t;
      if (rows_known) {
        for (int k = 0; k < t.end - t.begin; ++k) {
          shared.row_weight[threadIdx.x * kRowWeights + k] = weight_of<kKind>(rows, t, k);
        }
      }
    }
  }

  __device__ __forceinline__ float row_weight(int row, const Taps& t, int k) const {
    return rows_known ? shared.row_weight[row * kRowWeights + k] : weight_of<kKind>(rows, t, k);
  }

  // Source row y, filtered along x.
  __device__ __forceinline__ Line line(int y, int x) const {
    // Without the sum of the weights where they are known: only the taps are needed.
    const Taps t = columns_known ? place_taps<kKind>(columns, x) : make_taps<kKind>(columns, x);
    const uint8_t* p = origin + y * source_row + kChannels * t.begin;
    Line sum = {0.0f, 0.0f, 0.0f};
    for (int k = 0; k < t.end - t.begin; ++k, p += kChannels) {
      const float weight = columns_known ? shared.column_weight[k * columns.output + x] : weight_of<kKind>(columns, t, k);
      sum.r = fmaf(weight, byte_to_float(__ldg(p)), sum.r);
      sum.g = fmaf(weight, byte_to_float(__ldg(p + 1)), sum.g);
      sum.b = fmaf(weight, byte_to_float(__ldg(p + 2)), sum.b);
    }
    return {limited_line<kKind>(sum.r), limited_line<kKind>(sum.g), limited_line<kKind>(sum.b)};
  }

  // One output row without the middle.
  __device__ void row_alone(int row, uint8_t* out) const {
    const Taps t = shared.row_taps[row];
    for (int x = threadIdx.x; x < columns.output; x += kResizeThreads) {
      Line sum = {0.0f, 0.0f, 0.0f};
      for (int k = 0; k < t.end - t.begin; ++k) {
        const Line value = line(t.begin + k, x);
        const float weight = row_weight(row, t, k);
        sum = {fmaf(weight, value.r, sum.r), fmaf(weight, value.g, sum.g), fmaf(weight, value.b, sum.b)};
      }
      out[3 * x] = round_to_byte(sum.r), out[3 * x + 1] = round_to_byte(sum.g), out[3 * x + 2] = round_to_byte(sum.b);
    }
  }

  __device__ __forceinline__ uint8_t value_at(int row, const Taps& t, int first, int i) const {
    float sum = 0.0f;
    const float* middle = shared.middle + (t.begin - first) * kChannels * columns.output + i;
    for (int k = 0; k < t.end - t.begin; ++k, middle += kChannels * columns.output) {
      sum = fmaf(row_weight(row, t, k), *middle, sum);
    }
    return round_to_byte(sum);
  }

  __device__ void run(const FastDivide& by_width, int count, uint8_t* out) {
    const int row_values = kChannels * columns.output;
    const int capacity = kMiddle / row_values;
    const bool words = row_values % 4 == 0 && reinterpret_cast<uintptr_t>(out) % 4 == 0;
    int row = 0;
    while (row < count) {
      const int first = shared.row_taps[row].begin;
      int end = row;  // as many output rows as their source rows fit
      while (end < count && shared.row_taps[end].end - first <= capacity) ++end;
      if (end == row) {
        row_alone(row, out + row * row_values);
        ++row;
        continue;
      }
      const int needed = shared.row_taps[end - 1].end - first;
      for (int i = threadIdx.x; i < needed * columns.output; i += kResizeThreads) {
        const int y = static_cast<int>(by_width(static_cast<uint32_t>(i)));
        const Line value = line(first + y, i - y * columns.output);
        float* to = shared.middle + kChannels * i;
        to[0] = value.r, to[1] = value.g, to[2] = value.b;
      }
      __syncthreads();
      for (int r = row; r < end; ++r) {
        const Taps t = shared.row_taps[r];
        uint8_t* to = out + r * row_values;
        if (words) {
          for (int i = threadIdx.x; i < row_values / 4; i += kResizeThreads) {
            uint32_t packed = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) packed |= static_cast<uint32_t>(value_at(r, t, first, 4 * i + j)) << (8 * j);
            reinterpret_cast<uint32_t*>(to)[i] = packed;
          }
        } else {
          for (int i = threadIdx.x; i < row_values; i += kResizeThreads) to[i] = value_at(r, t, first, i);
        }
      }
      __syncthreads();
      row = end;
    }
  }
};

template <typename Images>
__global__ void __launch_bounds__(kResizeThreads) crop_resize(const __grid_constant__ ResizeLaunch<Images> launch) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  ResizeShared& shared = *reinterpret_cast<ResizeShared*>(dynamic_shared);
  const int64_t sample = blockIdx.x / launch.strips;
  const int top = static_cast<int>(blockIdx.x - sample * launch.strips) * kStrip;
  const int count = min(kStrip, launch.out_h - top);
  const int64_t row_values = kChannels * static_cast<int64_t>(launch.out_w);
  if (threadIdx.x < kRecordWords) shared.record[threadIdx.x] = __ldg(launch.records + sample * kRecordWords + threadIdx.x);
  __syncthreads();

  const RaggedImage source = launch.images.at(sample);
  uint8_t* const out = launch.out + (sample * launch.out_h + top) * row_values;
  if (source.height <= 0) {
    for (int64_t i = threadIdx.x; i < count * row_values; i += kResizeThreads) out[i] = 0;
    return;
  }
  const Window window = window_of(shared.record, source.height, source.width);
  const Filter filter = filter_of(shared.record);
  const Axis rows = make_axis(window.height, launch.out_h, filter.interpolation, filter.antialias);
  const Axis columns = make_axis(window.width, launch.out_w, filter.interpolation, filter.antialias);
  const int64_t source_row = kChannels * static_cast<int64_t>(source.width);
  const uint8_t* const origin = source.data + window.top * source_row + kChannels * static_cast<int64_t>(window.left);
  with_interpolation(filter.interpolation, [&](auto kind) {
    Strip<decltype(kind)::value> strip{shared, origin, source_row, rows, columns, false, false};
    strip.make_weights(top, count);
    __syncthreads();
    strip.run(launch.by_width, count, out);
  });
}

template <typename Images>
void start(const char* op, const Images& images, int64_t samples, const int32_t* records, uint8_t* out, int64_t out_h,
           int64_t out_w, cudaStream_t stream) {
  const uint32_t strips = static_cast<uint32_t>((out_h + kStrip - 1) / kStrip);
  const int64_t blocks = samples * strips;
  if (blocks > INT32_MAX) fail(op, ": too many samples for one call: ", samples);
  const ResizeLaunch<Images> launch{images,      records, out, static_cast<int>(out_h), static_cast<int>(out_w), strips,
                                    FastDivide(static_cast<uint32_t>(out_w))};
  const cudaError_t error = cudaFuncSetAttribute(crop_resize<Images>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(sizeof(ResizeShared)));
  if (error != cudaSuccess) fail(op, ": ", cudaGetErrorString(error));
  crop_resize<Images><<<static_cast<unsigned>(blocks), kResizeThreads, sizeof(ResizeShared), stream>>>(launch);
  check_launch(op);
}

Tensor new_batch(const Tensor& like, int64_t samples, int64_t out_h, int64_t out_w) {
  return torch::stable::empty({samples, out_h, out_w, kChannels}, ScalarType::Byte, std::nullopt, like.device());
}

Tensor crop_resize_packed(const Tensor& data, const Tensor& offsets, const Tensor& sizes, const Tensor& params,
                          int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_packed";
  const torch::stable::accelerator::DeviceGuard guard(data.get_device_index());
  const RaggedCall call = prepare_ragged(op, data, offsets, sizes, params, out_h, out_w);
  Tensor out = new_batch(data, call.samples, out_h, out_w);
  if (out.numel() == 0) return out;
  start(op, call.images(), call.samples, call.params.const_data_ptr<int32_t>(), out.mutable_data_ptr<uint8_t>(), out_h,
        out_w, current_stream(data));
  return out;
}

Tensor crop_resize_list(std::vector<Tensor> images, const Tensor& params, int64_t out_h, int64_t out_w) {
  constexpr const char* op = "crop_resize_list";
  const torch::stable::accelerator::DeviceGuard guard(params.get_device_index());
  const std::vector<Tensor> dense = prepare_list(op, images, params, out_h, out_w);
  const Tensor records = torch::stable::contiguous(params);
  const int64_t samples = params.size(0);
  Tensor out = new_batch(params, samples, out_h, out_w);
  for (int64_t begin = 0; begin < samples; begin += kListImages) {
    const int64_t count = std::min<int64_t>(kListImages, samples - begin);
    ListImages list;
    for (int64_t i = 0; i < kListImages; ++i) list.image[i] = ragged_image(dense[begin + std::min(i, count - 1)]);
    start(op, list, count, records.const_data_ptr<int32_t>() + begin * kRecordWords,
          out.mutable_data_ptr<uint8_t>() + begin * out_h * out_w * kChannels, out_h, out_w, current_stream(params));
  }
  return out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) {
  m.impl("crop_resize_packed", TORCH_BOX(&gpuaug::crop_resize_packed));
  m.impl("crop_resize_list", TORCH_BOX(&gpuaug::crop_resize_list));
}
