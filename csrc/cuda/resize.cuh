// Resampling on CUDA: a block makes 32 columns of one image, a warp a run of neighbouring rows of them, a thread one column.
//
// A thread walks down its column and sums each source row it needs along the line once, from aligned words. How these sums
// become output rows depends on the filter's size: where a few source rows make an output row, the last of them are kept in
// registers (`few_taps`); where the image is shrunk and the filter is wide, each source row is added to the few output rows
// that are open (`many_taps`). Taps and weights are worked out once a block. The order of the additions is that of
// resample_pixel, and so are the bits. A finished row of a warp leaves in 16-byte stores.
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
constexpr int kGroup = 4;           // taps of a line that are read together
constexpr int kWideTaps = 32;       // taps of a line whose weights are kept

struct Line {
  Taps taps;
  float weight[kGroup];  // of the first taps, 0 behind the last

  __device__ __forceinline__ int count() const { return taps.end - taps.begin; }
};

// What one source row gives: its weight in each open output row, and how many of these it completes.
template <int kOpen>
struct alignas(16) SourceRow {
  float weight[kOpen];
  int completes;
};

constexpr int kMostOpen = 5;  // rows that one source row is part of: 3 at most for bilinear filters, 5 for bicubic ones

struct ResizeShared {
  Line rows[kBandRows], columns[kColumns];
  float wide[kWideTaps][kColumns];
  SourceRow<kMostOpen> sources[kRowGroups][kColumns];
  uint4 staged[kRowGroups][2][kColumns * kChannels * sizeof(float) / sizeof(uint4)];
  int safe_begin, safe_end;  // source rows around which whole words can be read
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
    for (int k = 0; k < kGroup; ++k) {
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
  if (thread == 0) {
    // A group of taps is read as words that reach 3 bytes before it and kGroup * (kChannels + 1) behind its begin; a group
    // begins at any pixel of a row.
    const int64_t behind = job.range.end - job.origin - kGroup * (kChannels + 1);
    shared.safe_begin = job.origin - 3 >= job.range.begin || reinterpret_cast<uintptr_t>(job.range.begin) % 4 == 0 ? 0 : 1;
    const int64_t rows = behind > 0 ? behind / job.stride : 0;  // each with the window's end before its own
    shared.safe_end = static_cast<int>(rows < job.rows.length ? rows : job.rows.length);
  }
  if (2.0f * job.columns.support < kGroup - 1) return;  // a line has 2 * support taps; rounding can make it one or two more
  with_interpolation(job.interpolation, [&](auto kind) {
    constexpr Interpolation kKind = decltype(kind)::value;
    const Taps taps = make_taps<kKind>(job.columns, column);
    for (int k = threadIdx.y; k < kWideTaps; k += kRowGroups) {
      shared.wide[k][threadIdx.x] = k < taps.end - taps.begin ? weight_of<kKind>(job.columns, taps, k) : 0.0f;
    }
  });
}

__device__ __forceinline__ float float_of_byte(uint32_t word, int index) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7540 + index)) - 8388608.0f;
}

// Adds kTaps neighbouring pixels, wherever they begin. A weight of 0 leaves the sum as it is.
template <int kTaps>
__device__ __forceinline__ void add_pixels(const uint8_t* p, const float (&weight)[kTaps], float (&sum)[kChannels]) {
  constexpr int kWords = (kChannels * kTaps + 6) / 4;  // that hold them at any address
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p)) & 3u;
  const uint32_t* aligned = reinterpret_cast<const uint32_t*>(p - skew);
  uint32_t word[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) word[i] = __ldg(aligned + i);
#pragma unroll
  for (int i = 0; i < (kChannels * kTaps + 3) / 4; ++i) {
    word[i] = __funnelshift_r(word[i], i + 1 < kWords ? word[i + 1] : 0u, 8 * skew);
  }
#pragma unroll
  for (int k = 0; k < kTaps; ++k) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      sum[c] = fmaf(weight[k], float_of_byte(word[(kChannels * k + c) / 4], (kChannels * k + c) % 4), sum[c]);
    }
  }
}

// The weighted sum of a thread's taps in one source row after the other. kTaps is how many there are at most, 0 for any
// number; kCubic limits the sums, as resample_pixel does.
template <int kTaps, bool kCubic>
class LineSum {
 public:
  __device__ __forceinline__ LineSum(const ResizeShared& shared, const ResizeJob& job, int row)
      : shared_(shared), job_(job), taps_(shared.columns[threadIdx.x].taps), row_(row) {
    next_ = job.origin + static_cast<int64_t>(taps_.begin) * kChannels + row * job.stride;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) weight_[k] = shared.columns[threadIdx.x].weight[k];
  }

  __device__ __forceinline__ int row() const { return row_; }  // that comes next

  __device__ __forceinline__ void skip_to(int row) {
    next_ += (row - row_) * job_.stride;
    row_ = row;
  }

  __device__ __forceinline__ void operator()(float (&sum)[kChannels]) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) sum[c] = 0.0f;
    if (row_ < shared_.safe_begin || row_ >= shared_.safe_end) {
      add_bytes(sum);
    } else if constexpr (kTaps > 0) {
      add_pixels(next_, weight_, sum);
    } else {
      add_groups(sum);
    }
    if constexpr (kCubic) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = limited_line<Interpolation::kBicubic>(sum[c]);
    }
    next_ += job_.stride;
    ++row_;
  }

 private:
  __device__ __forceinline__ float weight(int k) const {
    if (k < kGroup) return shared_.columns[threadIdx.x].weight[k];
    return k < kWideTaps ? shared_.wide[k][threadIdx.x] : weight_at(job_.interpolation, job_.columns, taps_, k);
  }

  __device__ __forceinline__ void add_bytes(float (&sum)[kChannels]) const {
    const uint8_t* p = next_;
    for (int k = 0; k < taps_.end - taps_.begin; ++k, p += kChannels) {
      const float known = weight(k);
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(known, byte_to_float(__ldg(p + c)), sum[c]);
    }
  }

  __device__ __forceinline__ void add_groups(float (&sum)[kChannels]) const {
    const int count = taps_.end - taps_.begin;
    for (int k = 0; k < count; k += kGroup) {
      float group[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        group[i] = k + kGroup <= kWideTaps ? shared_.wide[k + i][threadIdx.x] : k + i < count ? weight(k + i) : 0.0f;
      }
      add_pixels(next_ + k * kChannels, group, sum);
    }
  }

  const ResizeShared& shared_;
  const ResizeJob& job_;
  const Taps taps_;
  const uint8_t* next_;  // first tap of the next row
  int row_;
  float weight_[kTaps ? kTaps : 1];
};

// The rows first..last-1 of a band for a warp's columns: calls store(row of the band, sums) for each. For output rows of at
// most kLines taps.
template <int kLines, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void few_taps(const ResizeShared& shared, const ResizeJob& job, int first, int last,
                                         const Store& store) {
  float line[kLines][kChannels] = {};  // the kLines source rows before line_sum.row()
  LineSum<kTaps, kCubic> line_sum(shared, job, shared.rows[first].taps.begin);
  int done = line_sum.row();  // source rows behind the window: beyond the image's end, where weights are 0, others count
  for (int row = first; row < last; ++row) {
    const int begin = shared.rows[row].taps.begin;
    if (done < begin) {
      line_sum.skip_to(begin);
      done = begin;
    }
    for (; done < begin + kLines; ++done) {
#pragma unroll
      for (int i = 0; i + 1 < kLines; ++i) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) line[i][c] = line[i + 1][c];
      }
      if (done < job.rows.length) line_sum(line[kLines - 1]);
    }
    float sum[kChannels] = {};
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const float weight = shared.rows[row].weight[i];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, line[i][c], sum[c]);
    }
    store(row, sum);
  }
}

// The table of the 32 source rows from `source` on, one a lane.
template <int kOpen>
__device__ __forceinline__ void prepare_sources(SourceRow<kMostOpen>* table, const Line* rows, const ResizeJob& job,
                                                int first, int last, int source) {
  source += threadIdx.x;
  int open = first, behind = last;  // the first row that ends behind `source`
  while (open < behind) {
    const int middle = (open + behind) / 2;
    if (rows[middle].taps.end > source) behind = middle; else open = middle + 1;
  }
  SourceRow<kMostOpen> entry;
#pragma unroll
  for (int i = 0; i < kOpen; ++i) {
    const bool part = open + i < last && rows[open + i].taps.begin <= source;
    entry.weight[i] =
        part ? weight_at(job.interpolation, job.rows, rows[open + i].taps, source - rows[open + i].taps.begin) : 0.0f;
  }
  entry.completes = 0;
  for (int row = open; row < last && rows[row].taps.end == source + 1; ++row) ++entry.completes;
  SourceRow<kOpen>& place = reinterpret_cast<SourceRow<kOpen>*>(table)[threadIdx.x];
#pragma unroll
  for (int i = 0; i < kOpen; ++i) place.weight[i] = entry.weight[i];
  place.completes = entry.completes;
}

// The same for output rows of any number of taps, of which at most kOpen are open at a time: those of shrunk images.
template <int kOpen, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void many_taps(ResizeShared& shared, const ResizeJob& job, int first, int last,
                                          const Store& store) {
  float open[kOpen][kChannels] = {};  // the sums of row, row + 1, ...
  const int begin = shared.rows[first].taps.begin, end = shared.rows[last - 1].taps.end;
  const SourceRow<kOpen>* const table = reinterpret_cast<SourceRow<kOpen>*>(shared.sources[threadIdx.y]);
  LineSum<kTaps, kCubic> line_sum(shared, job, begin);
  int row = first;
  for (int source = begin; source < end; ++source) {
    const int entry = (source - begin) % kColumns;
    if (entry == 0) {
      __syncwarp();
      prepare_sources<kOpen>(shared.sources[threadIdx.y], shared.rows, job, first, last, source);
      __syncwarp();
    }
    float line[kChannels];
    line_sum(line);
    const SourceRow<kOpen> here = table[entry];
#pragma unroll
    for (int i = 0; i < kOpen; ++i) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) open[i][c] = fmaf(here.weight[i], line[c], open[i][c]);
    }
    for (int i = 0; i < here.completes; ++i) {
      store(row++, open[0]);
#pragma unroll
      for (int k = 0; k < kOpen; ++k) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) open[k][c] = k + 1 < kOpen ? open[k + 1][c] : 0.0f;
      }
    }
  }
}

template <typename Store>
__device__ __forceinline__ void resize_zeros(int first, int last, const Store& store) {
  const float zero[kChannels] = {};
  for (int row = first; row < last; ++row) store(row, zero);
}

// The same for any output rows, without sharing anything between them.
template <int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void any_taps(const ResizeShared& shared, const ResizeJob& job, int first, int last,
                                         const Store& store) {
  LineSum<kTaps, kCubic> line_sum(shared, job, shared.rows[first].taps.begin);
  for (int row = first; row < last; ++row) {
    const Taps taps = shared.rows[row].taps;
    float sum[kChannels] = {};
    line_sum.skip_to(taps.begin);
    for (int k = 0; k < taps.end - taps.begin; ++k) {
      const float weight = weight_at(job.interpolation, job.rows, taps, k);
      float line[kChannels];
      line_sum(line);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, line[c], sum[c]);
    }
    store(row, sum);
  }
}

// kLines is what a filter has that is not stretched; stretched, kOpen rows at most share a source row.
template <int kLines, int kOpen, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void resize_rows(ResizeShared& shared, const ResizeJob& job, int first, int last,
                                            const Store& store) {
  const int row = first + static_cast<int>(threadIdx.x);
  static_assert(kBandRows / kRowGroups <= kColumns);
  const int most = __reduce_max_sync(0xffffffffu, row < last ? shared.rows[row].count() : 0);
  if (most <= kLines) {
    few_taps<kLines, kTaps, kCubic>(shared, job, first, last, store);
  } else if (2.0f * job.rows.support > kLines) {
    many_taps<kOpen, kTaps, kCubic>(shared, job, first, last, store);
  } else {  // rounding gave a row one tap more than there are
    any_taps<kTaps, kCubic>(shared, job, first, last, store);
  }
}

// A finished image in its memory.
template <typename T>
struct ResizedImage {
  T* values;  // of the sample
  int height, width;
  bool channels_last;
  ChannelAffine affine;
};

// Stores a warp's pixels of one row after the other: lane l's is that of column first_column + l, or, mirrored, of the
// column as far from the other end. `change(x, y, values)` may change the values of the result's pixel (x, y).
template <typename T, typename Change>
class RowWriter {
 public:
  __device__ __forceinline__ RowWriter(const ResizedImage<T>& image, const ResizeJob& job, const Change& change,
                                       uint4 (*staged)[kColumns * kChannels * sizeof(float) / sizeof(uint4)],
                                       int first_column, int y)
      : image_(image), change_(change), staged_(staged), y_(y), step_(job.mirror_y ? -1 : 1) {
    const int lane = threadIdx.x, column = first_column + lane;
    inside_ = column < image.width;
    x_ = job.mirror_x ? image.width - 1 - column : column;
    place_ = job.mirror_x ? kColumns - 1 - lane : lane;
    const int channels = image.channels_last ? kChannels : 1;
    pitch_ = static_cast<int64_t>(image.width) * channels * step_;
    tile_ = image.values + (static_cast<int64_t>(y) * image.width + (x_ - place_)) * channels;
    whole_ = image.channels_last && first_column + kColumns <= image.width &&
             reinterpret_cast<uintptr_t>(tile_) % sizeof(uint4) == 0 && pitch_ * static_cast<int64_t>(sizeof(T)) % 16 == 0;
  }

  __device__ __forceinline__ void operator()(const float (&sum)[kChannels]) {
    float value[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      value[c] = fmaf(rounded_to_byte(sum[c]), image_.affine.scale[c], image_.affine.bias[c]);
    }
    if (inside_) change_(x_, y_, value);
    if (whole_) {
      // Two places, used in turns: the one that is written was read before the barrier of the row in between.
      uint4* const staged = staged_[y_ & 1];
      T* const mine = reinterpret_cast<T*>(staged) + place_ * kChannels;
#pragma unroll
      for (int c = 0; c < kChannels; ++c) mine[c] = finished<T>(value[c]);
      __syncwarp();
      if (threadIdx.x < kColumns * kChannels * sizeof(T) / sizeof(uint4)) {
        reinterpret_cast<uint4*>(tile_)[threadIdx.x] = staged[threadIdx.x];
      }
    } else if (inside_) {
      const int64_t channel = image_.channels_last ? 1 : static_cast<int64_t>(image_.height) * image_.width;
      T* const mine = tile_ + place_ * (image_.channels_last ? kChannels : 1);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) mine[c * channel] = finished<T>(value[c]);
    }
    tile_ += pitch_;
    y_ += step_;
  }

 private:
  const ResizedImage<T>& image_;
  const Change& change_;
  uint4 (*staged_)[kColumns * kChannels * sizeof(float) / sizeof(uint4)];
  T* tile_;  // the leftmost of the warp's pixels
  int64_t pitch_;
  int x_, y_, step_, place_;
  bool inside_, whole_;
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
  const int y = first_row + first;
  RowWriter<T, Change> write(image, job, change, shared.staged[threadIdx.y], first_column,
                             job.mirror_y ? image.height - 1 - y : y);
  const auto store = [&](int, const float (&sum)[kChannels]) { write(sum); };
  if (!job.origin) return resize_zeros(first, last, store);
  const int taps = __reduce_max_sync(0xffffffffu, shared.columns[threadIdx.x].count());
  if (job.interpolation == Interpolation::kBicubic) {
    if (taps <= kGroup) {
      resize_rows<4, kMostOpen, kGroup, true>(shared, job, first, last, store);
    } else {
      resize_rows<4, kMostOpen, 0, true>(shared, job, first, last, store);
    }
  } else if (taps <= 2) {
    resize_rows<2, 3, 2, false>(shared, job, first, last, store);
  } else if (taps <= kGroup) {
    resize_rows<2, 3, kGroup, false>(shared, job, first, last, store);
  } else {
    resize_rows<2, 3, 0, false>(shared, job, first, last, store);
  }
}

inline dim3 resize_grid(int height, int width, int64_t samples) {
  return dim3((width + kColumns - 1) / kColumns, (height + kBandRows - 1) / kBandRows,
              static_cast<unsigned>(samples < 65535 ? samples : 65535));
}

}  // namespace gpuaug
