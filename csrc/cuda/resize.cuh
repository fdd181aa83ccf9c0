// Resampling on CUDA: a block makes 32 columns of one image, a warp a run of neighbouring rows of them, a thread one column.
//
// A thread walks down its column. It sums each source row it needs along the line once, keeps the last few sums in shared
// memory (which no other thread reads) and adds them up for one output row after the other. Taps and weights are worked out
// once a block. The order of the additions is that of resample_pixel, and so are the bits. Pixels come through aligned
// words; a finished row of a warp leaves in 16-byte stores.
//
// Where an output row needs more source rows than are kept (images shrunk to a third and less), the sums are kept instead:
// each source row is added to the few output rows it belongs to.
#pragma once

#include "../finish.h"
#include "../window.h"
#include "bytes.cuh"
#include "launch.h"

namespace gpuaug {

constexpr int kColumns = 32;        // of a block, one a lane
constexpr int kRowGroups = 8;       // warps of a block
constexpr int kResizeThreads = kColumns * kRowGroups;
constexpr int kBandRows = kResizeThreads;  // rows of a block, whose taps are prepared one a thread
constexpr int kKept = 8;            // lines a thread keeps
constexpr int kWideTaps = 32;       // taps of a line whose weights are kept when they are more than kMostTaps
static_assert(kMostTaps < kKept);

struct Line {
  Taps taps;
  float weight[kMostTaps];  // 0 behind the last tap

  __device__ __forceinline__ int count() const { return taps.end - taps.begin; }
};

struct ResizeShared {
  Line rows[kBandRows], columns[kColumns];
  float wide[kWideTaps][kColumns];
  float kept[kKept][kChannels][kResizeThreads];
  uint4 staged[kRowGroups][kColumns * kChannels * sizeof(float) / sizeof(uint4)];
};
static_assert(sizeof(ResizeShared) <= 48 * 1024);

// One image and what becomes of it.
struct ResizeJob {
  const uint8_t* origin;  // the window's first pixel; null where nothing can be read: then all pixels are 0
  ByteRange range;        // what may be read
  int64_t stride;         // bytes of a source row
  Axis rows, columns;
  Interpolation interpolation;
  bool mirror_x, mirror_y;
};

__device__ __forceinline__ float weight_at(Interpolation interpolation, const Axis& axis, const Taps& taps, int k) {
  float weight = 0.0f;
  with_interpolation(interpolation, [&](auto kind) { weight = weight_of<decltype(kind)::value>(axis, taps, k); });
  return weight;
}

__device__ __forceinline__ void prepare_line(Line& line, const Axis& axis, Interpolation interpolation, int output) {
  with_interpolation(interpolation, [&](auto kind) {
    constexpr Interpolation kKind = decltype(kind)::value;
    const Taps taps = make_taps<kKind>(axis, output);
    line.taps = taps;
#pragma unroll
    for (int k = 0; k < kMostTaps; ++k) {
      line.weight[k] = k < taps.end - taps.begin ? weight_of<kKind>(axis, taps, k) : 0.0f;
    }
  });
}

// By the whole block, which has to synchronise before and after.
__device__ __forceinline__ void prepare_lines(ResizeShared& shared, const ResizeJob& job, int first_row, int first_column) {
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  if (first_row + thread < job.rows.output) {
    prepare_line(shared.rows[thread], job.rows, job.interpolation, first_row + thread);
  }
  // Lanes behind the last column repeat it: they work along and store nothing.
  const int column = min(first_column + static_cast<int>(threadIdx.x), job.columns.output - 1);
  if (threadIdx.y == 0) prepare_line(shared.columns[threadIdx.x], job.columns, job.interpolation, column);
  if (job.columns.support <= 0.5f * kMostTaps - 1.0f) return;
  with_interpolation(job.interpolation, [&](auto kind) {
    constexpr Interpolation kKind = decltype(kind)::value;
    const Taps taps = make_taps<kKind>(job.columns, column);
    for (int k = threadIdx.y; k < min(taps.end - taps.begin, kWideTaps); k += kRowGroups) {
      shared.wide[k][threadIdx.x] = weight_of<kKind>(job.columns, taps, k);
    }
  });
}

__device__ __forceinline__ float float_of_byte(uint32_t word, int index) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7540 + index)) - 8388608.0f;
}

// The weighted sum of a thread's taps in one source row; with kTaps = 0, of any number of taps.
template <int kTaps>
struct LineSum {
  const ResizeShared& shared;
  const ResizeJob& job;
  const uint8_t* first;  // first tap of row 0
  Taps taps;
  bool limit;
  float weight[kTaps ? kTaps : 1];

  __device__ __forceinline__ LineSum(const ResizeShared& shared_, const ResizeJob& job_) : shared(shared_), job(job_) {
    const Line& line = shared.columns[threadIdx.x];
    taps = line.taps;
    first = job.origin + static_cast<int64_t>(taps.begin) * kChannels;
    limit = job.interpolation == Interpolation::kBicubic;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) weight[k] = line.weight[k];
  }

  __device__ __forceinline__ float known_weight(int k) const {
    if constexpr (kTaps > 0) return shared.columns[threadIdx.x].weight[k];
    return k < kWideTaps ? shared.wide[k][threadIdx.x] : weight_at(job.interpolation, job.columns, taps, k);
  }

  __device__ __forceinline__ void operator()(int row, float (&line)[kChannels]) const {
    const uint8_t* p = first + row * job.stride;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) line[c] = 0.0f;
    constexpr int kWords = (3 * kTaps + 6) / 4;  // that hold the taps at any address
    const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3u;
    if (kTaps > 0 && p - skew >= job.range.begin && p - skew + 4 * kWords <= job.range.end) {
      const uint32_t* aligned = reinterpret_cast<const uint32_t*>(p - skew);
      uint32_t word[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) word[i] = __ldg(aligned + i);
#pragma unroll
      for (int i = 0; i < (3 * kTaps + 3) / 4; ++i) {
        word[i] = __funnelshift_r(word[i], i + 1 < kWords ? word[i + 1] : 0u, 8 * skew);
      }
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {  // a weight of 0 leaves the sum as it is
#pragma unroll
        for (int c = 0; c < kChannels; ++c) {
          line[c] = fmaf(weight[k], float_of_byte(word[(3 * k + c) / 4], (3 * k + c) % 4), line[c]);
        }
      }
    } else {
      for (int k = 0; k < taps.end - taps.begin; ++k, p += kChannels) {
        const float known = known_weight(k);
#pragma unroll
        for (int c = 0; c < kChannels; ++c) line[c] = fmaf(known, byte_to_float(__ldg(p + c)), line[c]);
      }
    }
    if (limit) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) line[c] = limited_line<Interpolation::kBicubic>(line[c]);
    }
  }
};

// The rows first..last-1 of a band for a warp's columns: calls store(row of the band, sums) for each.
template <int kTaps, typename Store>
__device__ __forceinline__ void resize_rows(ResizeShared& shared, const ResizeJob& job, int first, int last,
                                            const Store& store) {
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  const LineSum<kTaps> line_sum(shared, job);
  int done = shared.rows[first].taps.begin;  // first source row whose sum is not kept
  for (int row = first; row < last; ++row) {
    const Line& line = shared.rows[row];
    const int begin = line.taps.begin, end = line.taps.end;
    for (int source = max(done, begin); source < end; ++source) {
      float sum[kChannels];
      line_sum(source, sum);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) shared.kept[source % kKept][c][thread] = sum[c];
    }
    done = end;
    float sum[kChannels] = {};
    for (int k = 0; k < end - begin; ++k) {
      const float weight = line.weight[k];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, shared.kept[(begin + k) % kKept][c][thread], sum[c]);
    }
    store(row, sum);
  }
}

// The same where output rows have more taps than lines are kept: the output rows' sums are kept instead.
template <int kTaps, typename Store>
__device__ __forceinline__ void resize_tall_rows(ResizeShared& shared, const ResizeJob& job, int first, int last,
                                                 const Store& store) {
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  const LineSum<kTaps> line_sum(shared, job);
  int open = first, next = first;  // rows open..next-1 have begun and are not complete: 2 * support / scale of them
  for (int source = shared.rows[first].taps.begin; open < last; ++source) {
    float line[kChannels];
    line_sum(source, line);
    for (; next < last && shared.rows[next].taps.begin <= source; ++next) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) shared.kept[next % kKept][c][thread] = 0.0f;
    }
    for (int row = open; row < next; ++row) {
      const Taps& taps = shared.rows[row].taps;
      const int k = source - taps.begin;
      const float weight = taps.end - taps.begin <= kMostTaps ? shared.rows[row].weight[k]
                                                              : weight_at(job.interpolation, job.rows, taps, k);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        float& sum = shared.kept[row % kKept][c][thread];
        sum = fmaf(weight, line[c], sum);
      }
    }
    for (; open < next && source + 1 >= shared.rows[open].taps.end; ++open) {
      float sum[kChannels];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = shared.kept[open % kKept][c][thread];
      store(open, sum);
    }
  }
}

template <typename Store>
__device__ __forceinline__ void resize_zeros(int first, int last, const Store& store) {
  const float zero[kChannels] = {};
  for (int row = first; row < last; ++row) store(row, zero);
}

// A finished image in its memory.
template <typename T>
struct ResizedImage {
  T* values;  // of the sample
  int height, width;
  bool channels_last;
  ChannelAffine affine;

  // Stores a warp's pixels of one row: lane l's is that of column first_column + l, or, mirrored, of the column as far from
  // the other end. `change(x, y, values)` may change the values of the result's pixel (x, y).
  template <typename Change>
  __device__ __forceinline__ void store(uint4* staged, int y, int first_column, bool mirror_x,
                                        const float (&sum)[kChannels], const Change& change) const {
    const int lane = threadIdx.x, column = first_column + lane;
    const int x = mirror_x ? width - 1 - column : column;
    const bool inside = column < width;
    float value[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) value[c] = fmaf(rounded_to_byte(sum[c]), affine.scale[c], affine.bias[c]);
    if (inside) change(x, y, value);
    const int64_t row = static_cast<int64_t>(y) * width;
    if (!channels_last) {
      const int64_t plane = static_cast<int64_t>(height) * width;
      if (!inside) return;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) values[c * plane + row + x] = finished<T>(value[c]);
      return;
    }
    const int leftmost = mirror_x ? width - kColumns - first_column : first_column;
    T* const tile = values + (row + leftmost) * kChannels;
    if (first_column + kColumns <= width && reinterpret_cast<uintptr_t>(tile) % sizeof(uint4) == 0) {
      T* const mine = reinterpret_cast<T*>(staged) + (x - leftmost) * kChannels;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) mine[c] = finished<T>(value[c]);
      __syncwarp();
      if (lane < static_cast<int>(kColumns * kChannels * sizeof(T) / sizeof(uint4))) {
        reinterpret_cast<uint4*>(tile)[lane] = staged[lane];
      }
      __syncwarp();
    } else if (inside) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) values[(row + x) * kChannels + c] = finished<T>(value[c]);
    }
  }
};

// One block's part of a job: columns from 32 * blockIdx.x on, rows from kBandRows * blockIdx.y on.
template <typename T, typename Change>
__device__ __forceinline__ void resize_block(ResizeShared& shared, const ResizeJob& job, const ResizedImage<T>& image,
                                             const Change& change) {
  const int first_column = blockIdx.x * kColumns, first_row = blockIdx.y * kBandRows;
  __syncthreads();  // the image before has been read
  if (job.origin) prepare_lines(shared, job, first_row, first_column);
  __syncthreads();
  const int rows = min(kBandRows, image.height - first_row), share = (rows + kRowGroups - 1) / kRowGroups;
  const int first = threadIdx.y * share, last = min(first + share, rows);
  if (first >= last) return;
  const auto store = [&](int row, const float (&sum)[kChannels]) {
    const int y = job.mirror_y ? image.height - 1 - first_row - row : first_row + row;
    image.store(shared.staged[threadIdx.y], y, first_column, job.mirror_x, sum, change);
  };
  if (!job.origin) return resize_zeros(first, last, store);
  const int taps = __reduce_max_sync(0xffffffffu, shared.columns[threadIdx.x].count());
  const bool tall = job.rows.support > 0.5f * kMostTaps - 0.5f;
  if (tall) {
    taps <= kMostTaps ? resize_tall_rows<kMostTaps>(shared, job, first, last, store)
                      : resize_tall_rows<0>(shared, job, first, last, store);
  } else if (taps <= 2) {
    resize_rows<2>(shared, job, first, last, store);
  } else if (taps == 3) {
    resize_rows<3>(shared, job, first, last, store);
  } else if (taps == 4) {
    resize_rows<4>(shared, job, first, last, store);
  } else if (taps <= kMostTaps) {
    resize_rows<kMostTaps>(shared, job, first, last, store);
  } else {
    resize_rows<0>(shared, job, first, last, store);
  }
}

inline dim3 resize_grid(int height, int width, int64_t samples) {
  return dim3((width + kColumns - 1) / kColumns, (height + kBandRows - 1) / kBandRows,
              static_cast<unsigned>(samples < 65535 ? samples : 65535));
}

}  // namespace gpuaug
