// Crop and resize of ragged images on CUDA: a block a strip of output rows of one sample.
//
// A block filters the source rows that its strip needs along x into shared memory (uint8, as Pillow rounds them) and then
// along y from there. Weights of the columns are made once a block. A strip whose source rows do not fit (strong shrinking)
// is done in several smaller ones; a single row that does not fit is filtered tap by tap.
#include <torch/csrc/stable/library.h>

#include "../ragged.h"
#include "../resize.h"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kResizeThreads = 256;
constexpr int kStrip = 16;               // output rows a block
constexpr int kWeightWords = 6 * 1024;   // column weights in shared memory
constexpr int kMiddleBytes = 48 * 1024;  // rows filtered along x
constexpr int kRowTaps = 64;             // row weights in shared memory, of each output row
constexpr int kListImages = 200;         // descriptors that fit a kernel's arguments

struct ListImages {
  RaggedImage image[kListImages];
  GPUAUG_HOST_DEVICE RaggedImage at(int64_t i) const { return image[i]; }
};

struct ResizeShared {
  int32_t record[kRecordWords];
  int row_weight[kStrip * kRowTaps];
  Taps row_taps[kStrip];
  int column_weight[kWeightWords];  // [tap][column]
  uint8_t middle[kMiddleBytes];
};

template <typename Images>
struct ResizeLaunch {
  Images images;
  const int32_t* records;
  uint8_t* out;
  int out_h, out_w;
  uint32_t strips;  // of a sample
  FastDivide by_width;
};

// One value along x, its weights from the table or made on the way.
__device__ __forceinline__ Rgb filtered_pixel(const Axis& axis, const Taps& t, const uint8_t* row, const int* weights,
                                              int stride) {
  int r = kWeightHalf, g = kWeightHalf, b = kWeightHalf;
  const float unit = weights ? 0.0f : axis.unit(t);
  for (int k = 0; k < t.count; ++k) {
    const int weight = weights ? weights[k * stride] : axis.weight(t, k, unit);
    const uint8_t* p = row + 3 * axis.index(t, k);
    r += weight * __ldg(p), g += weight * __ldg(p + 1), b += weight * __ldg(p + 2);
  }
  return {weighted_byte(r), weighted_byte(g), weighted_byte(b)};
}

template <typename Images>
__global__ void __launch_bounds__(kResizeThreads) crop_resize(const __grid_constant__ ResizeLaunch<Images> launch) {
  extern __shared__ __align__(16) uint8_t dynamic_shared[];
  ResizeShared& shared = *reinterpret_cast<ResizeShared*>(dynamic_shared);
  const int64_t sample = blockIdx.x / launch.strips;
  const int strip_top = static_cast<int>(blockIdx.x - sample * launch.strips) * kStrip;
  const int strip_rows = min(kStrip, launch.out_h - strip_top);
  const int out_w = launch.out_w, row_bytes = 3 * out_w;
  if (threadIdx.x < kRecordWords) shared.record[threadIdx.x] = __ldg(launch.records + sample * kRecordWords + threadIdx.x);
  __syncthreads();

  const RaggedImage source = launch.images.at(sample);
  uint8_t* const out = launch.out + (sample * launch.out_h + strip_top) * row_bytes;
  if (source.height <= 0 || source.width <= 0) {
    for (int i = threadIdx.x; i < strip_rows * row_bytes; i += kResizeThreads) out[i] = 0;
    return;
  }
  const Window window = window_of(shared.record, source.height, source.width);
  const Axis x_axis(shared.record, window.width, out_w), y_axis(shared.record, window.height, launch.out_h);
  const uint8_t* const origin = source.data + 3 * (static_cast<int64_t>(window.top) * source.width + window.left);
  const int64_t source_row = 3 * static_cast<int64_t>(source.width);

  const bool tabled = static_cast<int64_t>(x_axis.most_taps()) * out_w <= kWeightWords;
  if (tabled) {
    for (int x = threadIdx.x; x < out_w; x += kResizeThreads) {
      Taps t = x_axis.taps(x);
      t.count = min(t.count, x_axis.most_taps());
      const float unit = x_axis.unit(t);
      for (int k = 0; k < t.count; ++k) shared.column_weight[k * out_w + x] = x_axis.weight(t, k, unit);
    }
  }
  const bool rows_tabled = y_axis.most_taps() <= kRowTaps;
  if (threadIdx.x < strip_rows) {
    Taps t = y_axis.taps(strip_top + threadIdx.x);
    t.count = min(t.count, y_axis.most_taps());
    shared.row_taps[threadIdx.x] = t;
    const float unit = y_axis.unit(t);
    if (rows_tabled) {
      for (int k = 0; k < t.count; ++k) shared.row_weight[threadIdx.x * kRowTaps + k] = y_axis.weight(t, k, unit);
    }
  }
  __syncthreads();

  const auto column_taps = [&](int x) {
    Taps t = x_axis.taps(x);
    t.count = min(t.count, x_axis.most_taps());
    return t;
  };
  const int capacity = kMiddleBytes / row_bytes;
  int row = 0;
  while (row < strip_rows) {
    // As many output rows as their source rows fit.
    const int first = y_axis.index(shared.row_taps[row], 0);
    const auto last_of = [&](int r) { return y_axis.index(shared.row_taps[r], shared.row_taps[r].count - 1); };
    int end = row;
    while (end < strip_rows && last_of(end) - first < capacity) ++end;
    if (end == row || !rows_tabled) {  // not even one
      const Taps t = shared.row_taps[row];
      const float unit = y_axis.unit(t);
      for (int x = threadIdx.x; x < out_w; x += kResizeThreads) {
        const Taps columns = column_taps(x);
        int r = kWeightHalf, g = kWeightHalf, b = kWeightHalf;
        for (int k = 0; k < t.count; ++k) {
          const int weight = y_axis.weight(t, k, unit);
          const Rgb p = filtered_pixel(x_axis, columns, origin + y_axis.index(t, k) * source_row,
                                       tabled ? shared.column_weight + x : nullptr, out_w);
          r += weight * p.r, g += weight * p.g, b += weight * p.b;
        }
        uint8_t* to = out + row * row_bytes + 3 * x;
        to[0] = static_cast<uint8_t>(weighted_byte(r)), to[1] = static_cast<uint8_t>(weighted_byte(g));
        to[2] = static_cast<uint8_t>(weighted_byte(b));
      }
      ++row;
      continue;
    }
    const int needed = last_of(end - 1) - first + 1;
    for (int i = threadIdx.x; i < needed * out_w; i += kResizeThreads) {
      const int y = static_cast<int>(launch.by_width(static_cast<uint32_t>(i)));
      const int x = i - y * out_w;
      const Rgb p = filtered_pixel(x_axis, column_taps(x), origin + (first + y) * source_row,
                                   tabled ? shared.column_weight + x : nullptr, out_w);
      uint8_t* to = shared.middle + 3 * i;
      to[0] = static_cast<uint8_t>(p.r), to[1] = static_cast<uint8_t>(p.g), to[2] = static_cast<uint8_t>(p.b);
    }
    __syncthreads();
    if (row_bytes % 4 == 0) {
      const int row_words = row_bytes / 4;
      const uint32_t* middle = reinterpret_cast<const uint32_t*>(shared.middle);
      for (int r = row; r < end; ++r) {
        const Taps t = shared.row_taps[r];
        uint32_t* to = reinterpret_cast<uint32_t*>(out + r * row_bytes);
        for (int i = threadIdx.x; i < row_words; i += kResizeThreads) {
          int sum[4] = {kWeightHalf, kWeightHalf, kWeightHalf, kWeightHalf};
          for (int k = 0; k < t.count; ++k) {
            const int weight = shared.row_weight[r * kRowTaps + k];
            const uint32_t word = middle[(y_axis.index(t, k) - first) * row_words + i];
#pragma unroll
            for (int j = 0; j < 4; ++j) sum[j] += weight * static_cast<int>((word >> (8 * j)) & 0xff);
          }
          uint32_t packed = 0;
#pragma unroll
          for (int j = 0; j < 4; ++j) packed |= static_cast<uint32_t>(weighted_byte(sum[j])) << (8 * j);
          to[i] = packed;
        }
      }
    } else {
      for (int r = row; r < end; ++r) {
        const Taps t = shared.row_taps[r];
        for (int i = threadIdx.x; i < row_bytes; i += kResizeThreads) {
          int sum = kWeightHalf;
          for (int k = 0; k < t.count; ++k) {
            sum += shared.row_weight[r * kRowTaps + k] * shared.middle[(y_axis.index(t, k) - first) * row_bytes + i];
          }
          out[r * row_bytes + i] = static_cast<uint8_t>(weighted_byte(sum));
        }
      }
    }
    __syncthreads();
    row = end;
  }
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
  const PackedCall call = prepare_packed(op, data, offsets, sizes, params, out_h, out_w);
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
