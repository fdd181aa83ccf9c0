// Resampling on CUDA: a block makes 32 columns of one image, a warp a run of neighbouring rows of them, a thread one column.
//
// A thread walks down its column and sums each source row it needs along the line once, from aligned words that are asked
// for one row ahead. How these sums become output rows depends on the filter's size: where a few source rows make an output
// row, the last of them are kept in registers (`few_taps`); where the image is shrunk and the filter is wide, each source
// row is added to the few output rows that are open (`many_taps`). Taps and weights are worked out once a block. The order
// of the additions is that of resample_pixel, and so are the bits. A finished row of a warp leaves in 16-byte stores.
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
constexpr int kRowsAhead = 4;       // a row is brought into the L2 cache so many rows before it is needed
constexpr int kWideTaps = 32;       // taps of a line whose weights are kept

// A byte becomes a float by one permutation: in bits 16..23 it is the byte times 2**-133, exactly, because subnormal floats
// and the smallest normal ones lie equally far apart. The weights of columns and rows undo that, as powers of two: nothing
// is rounded otherwise than it would be without.
constexpr float kColumnScale = 0x1p120f, kRowScale = 0x1p13f;

struct alignas(16) Line {
  int begin, end;        // the taps
  float weight[kGroup];  // of the first ones, scaled; 0 behind the last
  float first, norm;

  __device__ __forceinline__ Taps taps() const { return {begin, end, first, norm}; }
  __device__ __forceinline__ int count() const { return end - begin; }
};

// What one source row gives: its weight in each open output row, and how many of these it completes.
template <int kOpen>
struct alignas(16) SourceRow {
  float weight[kOpen];
  int completes;
};

constexpr int kMostOpen = 5;  // rows that one source row is part of: 3 at most for bilinear filters, 5 for bicubic ones

// One image and what becomes of it.
struct ResizeJob {
  const uint8_t* origin;  // the window's first pixel; null where nothing can be read: then all pixels are 0
  int64_t stride;         // bytes of a source row
  Axis rows, columns;
  Interpolation interpolation;
  bool mirror_x, mirror_y;
};

// In shared memory is what few instructions need; the loops over rows want the registers.
struct ResizeShared {
  ResizeJob job;
  Line rows[kBandRows], columns[kColumns];
  float wide[kWideTaps][kColumns];
  SourceRow<kMostOpen> sources[kRowGroups][kColumns];
  uint4 staged[kRowGroups][kColumns * kChannels * sizeof(float) / sizeof(uint4)];  // a warp's part of a row of the result
};
static_assert(sizeof(ResizeShared) <= 48 * 1024);

__device__ __forceinline__ float weight_at(Interpolation interpolation, const Axis& axis, const Taps& taps, int k, float scale) {
  float weight = 0.0f;
  with_interpolation(interpolation, [&](auto kind) { weight = scale * weight_of<decltype(kind)::value>(axis, taps, k); });
  return weight;
}

__device__ __forceinline__ void prepare_line(Line& line, const Axis& axis, Interpolation interpolation, int output, float scale) {
  with_interpolation(interpolation, [&](auto kind) {
    constexpr Interpolation kKind = decltype(kind)::value;
    const Taps taps = make_taps<kKind>(axis, output);
    line.begin = taps.begin, line.end = taps.end, line.first = taps.first, line.norm = taps.norm;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      line.weight[k] = k < taps.end - taps.begin ? scale * weight_of<kKind>(axis, taps, k) : 0.0f;
    }
  });
}

// A warp's rows of the block's part of the result, counted from the first of the block.
struct WarpRows {
  int first, last;

  __device__ __forceinline__ explicit WarpRows(int rows_of_block) {
    const int share = (rows_of_block + kRowGroups - 1) / kRowGroups;
    first = static_cast<int>(threadIdx.y) * share;
    last = min(first + share, rows_of_block);
  }
};

// What a warp reads first is asked for while the taps are worked out: some source rows, 512 bytes of each.
__device__ __forceinline__ void bring_first_rows_into_l2(const ResizeJob& job, int first_row, int first_column) {
  constexpr int kLine = 128, kLines = 4;
  const WarpRows rows(min(kBandRows, job.rows.output - first_row));
  if (rows.first >= rows.last) return;
  const int lane = static_cast<int>(threadIdx.x);
  with_interpolation(job.interpolation, [&](auto kind) {
    const int row = place_taps<decltype(kind)::value>(job.rows, first_row + rows.first).begin + lane / kLines;
    const int byte = kChannels * place_taps<decltype(kind)::value>(job.columns, first_column).begin + kLine * (lane % kLines);
    if (row < job.rows.length && byte < kChannels * job.columns.length) bring_into_l2(job.origin + row * job.stride + byte);
  });
}

// By the whole block, which has to synchronise before and after.
__device__ __forceinline__ void prepare_lines(ResizeShared& shared, int first_row, int first_column) {
  const ResizeJob& job = shared.job;
  const int thread = threadIdx.y * kColumns + threadIdx.x;
  if (first_row + thread < job.rows.output) {
    prepare_line(shared.rows[thread], job.rows, job.interpolation, first_row + thread, kRowScale);
  }
  // Lanes behind the last column repeat it: they work along and store nothing.
  const int column = min(first_column + static_cast<int>(threadIdx.x), job.columns.output - 1);
  if (threadIdx.y == kRowGroups - 1) {
    prepare_line(shared.columns[threadIdx.x], job.columns, job.interpolation, column, kColumnScale);
  }
  // A line has 2 * support taps; rounding can make it one or two more.
  if (2.0f * job.columns.support < kGroup - 1 && job.columns.length >= kGroup) return;
  with_interpolation(job.interpolation, [&](auto kind) {
    constexpr Interpolation kKind = decltype(kind)::value;
    const Taps taps = make_taps<kKind>(job.columns, column);
    for (int k = threadIdx.y; k < kWideTaps; k += kRowGroups) {
      shared.wide[k][threadIdx.x] = k < taps.end - taps.begin ? kColumnScale * weight_of<kKind>(job.columns, taps, k) : 0.0f;
    }
  });
}

// Bicubic filters overshoot; sums of bilinear ones are bytes, but for some rounding.
__device__ __forceinline__ void limit(float (&sum)[kChannels], float most) {
#pragma unroll
  for (int c = 0; c < kChannels; ++c) sum[c] = fminf(fmaxf(sum[c], 0.0f), most);
}

// Byte `index` of the word, times 2**-133.
__device__ __forceinline__ float tiny_of_byte(uint32_t word, int index) {
  return __uint_as_float(__byte_perm(word, 0, 0x4044 | index << 8));
}

// kTaps neighbouring pixels.
template <int kTaps>
struct PixelBytes {
  static constexpr int kWords = (kChannels * kTaps + 3) / 4;
  uint32_t word[kWords];

  // Adds the pixels to the sum, weighted. A weight of 0 leaves the sum as it is.
  __device__ __forceinline__ void add(const float (&weight)[kTaps], float (&sum)[kChannels]) const {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int j = kChannels * k + c;
        sum[c] = fmaf(weight[k], tiny_of_byte(word[j / 4], j % 4), sum[c]);
      }
    }
  }
};

// The same, wherever they begin, in the aligned words that hold them.
template <int kTaps>
struct Pixels {
  static constexpr int kBytes = kChannels * kTaps;
  static constexpr int kWords = (kBytes + 6) / 4;  // at any address
  uint32_t word[kWords];

  // The last of the words may reach 3 bytes beyond the pixels.
  __device__ __forceinline__ void load(const uint8_t* p) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
#pragma unroll
    for (int i = 0; i + 1 < kWords; ++i) word[i] = __ldg(aligned + i);
    word[kWords - 1] = __ldg(reinterpret_cast<const uint32_t*>((address + kBytes - 1) & ~uintptr_t{3}));
  }

  // The same for `count` pixels, 1 to kTaps; what comes instead of the others is any.
  __device__ __forceinline__ void load(const uint8_t* p, int count) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
    const int last = (static_cast<int>(address & 3) + kChannels * count - 1) / 4;
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = __ldg(aligned + min(i, last));
  }

  // The same, and no byte beyond them is read: the data may end there.
  __device__ __forceinline__ void load_exactly(const uint8_t* p, int count) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(p);
    const uint32_t* aligned = reinterpret_cast<const uint32_t*>(address & ~uintptr_t{3});
    const int behind = static_cast<int>(address & 3) + kChannels * count;  // of the last byte, from the first word on
    const int last = (behind - 1) / 4;
    uint32_t partial = 0;
#pragma unroll 1
    for (int at = behind - 1; at >= 4 * last; --at) {
      partial = partial << 8 | __ldg(reinterpret_cast<const uint8_t*>(aligned) + at);
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) word[i] = i < last ? __ldg(aligned + i) : partial;
  }

  // `p` is where they were loaded from.
  __device__ __forceinline__ PixelBytes<kTaps> bytes(const uint8_t* p) const {
    PixelBytes<kTaps> out;
    const uint32_t shift = 8 * static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p));  // of which 5 bits count
#pragma unroll
    for (int i = 0; i < out.kWords; ++i) out.word[i] = __funnelshift_r(word[i], i + 1 < kWords ? word[i + 1] : 0u, shift);
    return out;
  }
};

// The weighted sum of a thread's taps in one source row after the other, times 2**-13. kTaps is how many taps there are at
// most, 0 for any number; kCubic limits the sums, as resample_pixel does. Behind the window's end its last row comes again.
template <int kTaps, bool kCubic>
class LineSum {
 public:
  // Where kTaps > 0, rows of the window are at least that long.
  __device__ __forceinline__ LineSum(const ResizeShared& shared, int row)
      : shared_(shared), stride_(shared.job.stride), last_row_(shared.job.rows.length - 1), row_(row) {
    const Line& column = shared.columns[threadIdx.x];
    // At the right border the pixels before make up for those that are not there, with a weight of 0.
    const int spare = max(0, column.begin + kTaps - shared.job.columns.length);
#pragma unroll
    for (int k = 0; k < kTaps; ++k) weight_[k] = k < spare ? 0.0f : column.weight[k - spare];
    next_ = shared.job.origin + static_cast<int64_t>(column.begin - (kTaps ? spare : 0)) * kChannels + row * stride_;
    load();
  }

  __device__ __forceinline__ int row() const { return row_; }  // that comes next

  // `row` comes next.
  __device__ __forceinline__ void skip_to(int row) {
    next_ += (min(row, last_row_) - min(row_, last_row_)) * stride_;
    row_ = row;
    load();
  }

  __device__ __forceinline__ void operator()(float (&sum)[kChannels]) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) sum[c] = 0.0f;
    if constexpr (kTaps > 0) {
      const PixelBytes<kTaps> here = pixels_.bytes(next_);
      if (row_ + 1 < last_row_) {
        next_ += stride_;
        pixels_.load(next_);
      } else if (row_ < last_row_) {
        next_ += stride_;
        pixels_.load_exactly(next_, kTaps);
      }
      here.add(weight_, sum);
      if (row_ + kRowsAhead < last_row_) {
        bring_into_l2(next_ + (kRowsAhead - 1) * stride_);
      }
    } else {
      add_groups(sum);
      if (row_ < last_row_) next_ += stride_;
    }
    ++row_;
    if constexpr (kCubic) limit(sum, 255.0f / kRowScale);
  }

 private:
  __device__ __forceinline__ void load() {
    if constexpr (kTaps > 0) load(pixels_, next_, kTaps);
  }

  // Pixels of `row_`. Behind the last row of a window may be nothing; behind the others is the next one.
  template <int kMost>
  __device__ __forceinline__ void load(Pixels<kMost>& pixels, const uint8_t* p, int count) const {
    if (row_ < last_row_) {
      pixels.load(p, count);
    } else {
      pixels.load_exactly(p, count);
    }
  }

  __device__ __forceinline__ void add_groups(float (&sum)[kChannels]) const {
    const Line& column = shared_.columns[threadIdx.x];
    const int count = column.count();
#pragma unroll 1
    for (int k = 0; k < min(count, kWideTaps); k += kGroup) {
      float weight[kGroup];
#pragma unroll
      for (int i = 0; i < kGroup; ++i) weight[i] = shared_.wide[k + i][threadIdx.x];
      Pixels<kGroup> pixels;
      load(pixels, next_ + k * kChannels, min(count - k, kGroup));
      pixels.bytes(next_ + k * kChannels).add(weight, sum);
    }
#pragma unroll 1
    for (int k = kWideTaps; k < count; ++k) {
      const float weight[1] = {weight_at(shared_.job.interpolation, shared_.job.columns, column.taps(), k, kColumnScale)};
      Pixels<1> pixel;
      load(pixel, next_ + k * kChannels, 1);
      pixel.bytes(next_ + k * kChannels).add(weight, sum);
    }
  }

  const ResizeShared& shared_;
  const int64_t stride_;
  const int last_row_;
  const uint8_t* next_;  // first tap of the next row
  int row_;
  float weight_[kTaps ? kTaps : 1];
  Pixels<kTaps ? kTaps : 1> pixels_;  // of the next row
};

// The largest of a warp's values.
__device__ __forceinline__ int warp_max(int value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffu, value);
#else
  for (int lanes = 16; lanes > 0; lanes /= 2) value = max(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
#endif
}

// The rows first..last-1 of a band for a warp's columns: calls store(sums) for each. For output rows of at most
// kLines taps that lie at most as far apart.
template <int kLines, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void few_taps(const ResizeShared& shared, int first, int last, Store& store) {
  float line[kLines][kChannels] = {};  // the kLines source rows before line_sum.row()
  LineSum<kTaps, kCubic> line_sum(shared, shared.rows[first].begin);
  for (int row = first; row < last; ++row) {
    const int end = shared.rows[row].begin + kLines;  // behind the window weights are 0
    while (line_sum.row() < end) {
#pragma unroll
      for (int i = 0; i + 1 < kLines; ++i) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) line[i][c] = line[i + 1][c];
      }
      line_sum(line[kLines - 1]);
    }
    float sum[kChannels] = {};
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const float weight = shared.rows[row].weight[i];
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, line[i][c], sum[c]);
    }
    if constexpr (kCubic) limit(sum, 255.0f);
    store(sum);
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
    if (rows[middle].end > source) behind = middle; else open = middle + 1;
  }
  SourceRow<kOpen>& entry = reinterpret_cast<SourceRow<kOpen>*>(table)[threadIdx.x];
#pragma unroll 1
  for (int i = 0; i < kOpen; ++i) {
    const bool part = open + i < last && rows[open + i].begin <= source;
    entry.weight[i] = part ? weight_at(job.interpolation, job.rows, rows[open + i].taps(), source - rows[open + i].begin, kRowScale)
                           : 0.0f;
  }
  int completes = 0;
  while (open + completes < last && rows[open + completes].end == source + 1) ++completes;
  entry.completes = completes;
}

// The same for output rows of any number of taps, of which at most kOpen are open at a time: those of shrunk images.
template <int kOpen, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void many_taps(ResizeShared& shared, int first, int last, Store& store) {
  float open[kOpen][kChannels] = {};  // the sums of row, row + 1, ...
  const int begin = shared.rows[first].begin, end = shared.rows[last - 1].end;
  const SourceRow<kOpen>* const table = reinterpret_cast<SourceRow<kOpen>*>(shared.sources[threadIdx.y]);
  LineSum<kTaps, kCubic> line_sum(shared, begin);
#pragma unroll 1
  for (int sources = begin; sources < end; sources += kColumns) {
    __syncwarp();
    prepare_sources<kOpen>(shared.sources[threadIdx.y], shared.rows, shared.job, first, last, sources);
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < min(kColumns, end - sources); ++i) {
      float line[kChannels];
      line_sum(line);
      const SourceRow<kOpen> here = table[i];
#pragma unroll
      for (int k = 0; k < kOpen; ++k) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) open[k][c] = fmaf(here.weight[k], line[c], open[k][c]);
      }
#pragma unroll 1
      for (int done = 0; done < here.completes; ++done) {
        if constexpr (kCubic) limit(open[0], 255.0f);
        store(open[0]);
#pragma unroll
        for (int k = 0; k < kOpen; ++k) {
#pragma unroll
          for (int c = 0; c < kChannels; ++c) open[k][c] = k + 1 < kOpen ? open[k + 1][c] : 0.0f;
        }
      }
    }
  }
}

template <typename Store>
__device__ __forceinline__ void resize_zeros(int first, int last, Store& store) {
  const float zero[kChannels] = {};
  for (int row = first; row < last; ++row) store(zero);
}

// The same for any output rows, without sharing anything between them.
template <int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void any_taps(const ResizeShared& shared, int first, int last, Store& store) {
  LineSum<kTaps, kCubic> line_sum(shared, shared.rows[first].begin);
#pragma unroll 1
  for (int row = first; row < last; ++row) {
    const Line& here = shared.rows[row];
    float sum[kChannels] = {};
    line_sum.skip_to(here.begin);
#pragma unroll 1
    for (int k = 0; k < here.count(); ++k) {
      const float weight = k < kGroup ? here.weight[k] : weight_at(shared.job.interpolation, shared.job.rows, here.taps(), k, kRowScale);
      float line[kChannels];
      line_sum(line);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) sum[c] = fmaf(weight, line[c], sum[c]);
    }
    if constexpr (kCubic) limit(sum, 255.0f);
    store(sum);
  }
}

// kLines is what a filter has that is not stretched; stretched, kOpen rows at most share a source row.
template <int kLines, int kOpen, int kTaps, bool kCubic, typename Store>
__device__ __forceinline__ void resize_rows(ResizeShared& shared, int first, int last, Store& store) {
  const int row = first + static_cast<int>(threadIdx.x);
  static_assert(kBandRows / kRowGroups <= kColumns);
  const int most = warp_max(row < last ? shared.rows[row].count() : 0);
  if (most <= kLines && shared.job.rows.scale <= kLines) {
    few_taps<kLines, kTaps, kCubic>(shared, first, last, store);
  } else if (most > kLines && 2.0f * shared.job.rows.support > kLines) {
    many_taps<kOpen, kTaps, kCubic>(shared, first, last, store);
  } else {  // far apart; or rounding gave a row one tap more than there are
    any_taps<kTaps, kCubic>(shared, first, last, store);
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
// column as far from the other end.
template <typename T>
class RowWriter {
 public:
  __device__ __forceinline__ RowWriter(const ResizedImage<T>& image, const ResizeJob& job, uint4* staged, int first_column,
                                       int y)
      : image_(image), staged_(staged) {
    const int column = first_column + static_cast<int>(threadIdx.x);
    const int x = job.mirror_x ? image.width - 1 - column : column;
    const int place = job.mirror_x ? kColumns - 1 - static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x);
    const int pixel_bytes = (image.channels_last ? kChannels : 1) * static_cast<int>(sizeof(T));
    pitch_ = image.width * pixel_bytes * (job.mirror_y ? -1 : 1);
    tile_ = reinterpret_cast<uint8_t*>(image.values) + (static_cast<int64_t>(y) * image.width + (x - place)) * pixel_bytes;
    const bool whole = image.channels_last && first_column + kColumns <= image.width &&
                       reinterpret_cast<uintptr_t>(tile_) % sizeof(uint4) == 0 && pitch_ % static_cast<int>(sizeof(uint4)) == 0;
    place_ = whole ? place * pixel_bytes : column < image.width ? kAlone + place * pixel_bytes : kNowhere;
  }

  __device__ __forceinline__ void operator()(const float (&sum)[kChannels]) {
    T value[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const float byte = (sum[c] + 8388608.0f) - 8388608.0f;  // rounded_to_byte of what is in 0..255 already
      value[c] = finished<T>(fmaf(byte, image_.affine.scale[c], image_.affine.bias[c]));
    }
    if (place_ < kAlone) {
      T* const mine = reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(staged_) + place_);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) mine[c] = value[c];
      __syncwarp();
      if (threadIdx.x < kColumns * kChannels * sizeof(T) / sizeof(uint4)) {
        reinterpret_cast<uint4*>(tile_)[threadIdx.x] = staged_[threadIdx.x];
      }
      __syncwarp();
    } else if (place_ < kNowhere) {
      const int64_t channel = image_.channels_last ? 1 : static_cast<int64_t>(image_.height) * image_.width;
      T* const mine = reinterpret_cast<T*>(tile_ + (place_ - kAlone));
#pragma unroll
      for (int c = 0; c < kChannels; ++c) mine[c * channel] = value[c];
    }
    tile_ += pitch_;
  }

 private:
  // What place_ says beside the bytes from the tile's begin: whether the warp stores the tile as a whole, each lane its own
  // pixel, or this lane none.
  static constexpr int kAlone = 1 << 20, kNowhere = 1 << 21;

  const ResizedImage<T>& image_;
  uint4* const staged_;
  uint8_t* tile_;  // the leftmost of the warp's pixels
  int pitch_, place_;  // bytes
};

template <typename Store>
__device__ __forceinline__ void resize_rows_by(ResizeShared& shared, int first, int last, Store& store) {
  if (!shared.job.origin) return resize_zeros(first, last, store);
  const int taps = warp_max(shared.columns[threadIdx.x].count()), length = shared.job.columns.length;
  if (shared.job.interpolation == Interpolation::kBicubic) {
    if (taps <= kGroup && length >= kGroup) {
      resize_rows<4, kMostOpen, kGroup, true>(shared, first, last, store);
    } else {
      resize_rows<4, kMostOpen, 0, true>(shared, first, last, store);
    }
  } else if (taps <= 2 && length >= 2) {
    resize_rows<2, 3, 2, false>(shared, first, last, store);
  } else if (taps <= kGroup && length >= kGroup) {
    resize_rows<2, 3, kGroup, false>(shared, first, last, store);
  } else {
    resize_rows<2, 3, 0, false>(shared, first, last, store);
  }
}

// One block's part of shared.job: columns from 32 * blockIdx.x on, rows from kBandRows * blockIdx.y on. The block has to
// synchronise before, and again before shared memory changes. `finish(x, y)` is called at the end for each of a thread's
// pixels of the result, which the warp has stored.
template <typename T, typename Finish>
__device__ __forceinline__ void resize_block(ResizeShared& shared, const ResizedImage<T>& image, const Finish& finish) {
  const int first_column = blockIdx.x * kColumns, first_row = blockIdx.y * kBandRows;
  if (shared.job.origin) {
    bring_first_rows_into_l2(shared.job, first_row, first_column);
    prepare_lines(shared, first_row, first_column);
  }
  __syncthreads();
  const auto [first, last] = WarpRows(min(kBandRows, image.height - first_row));
  if (first >= last) return;
  const auto y_of = [&](int row) { return shared.job.mirror_y ? image.height - 1 - first_row - row : first_row + row; };
  RowWriter<T> write(image, shared.job, shared.staged[threadIdx.y], first_column, y_of(first));
  resize_rows_by(shared, first, last, write);
  const int column = first_column + static_cast<int>(threadIdx.x);
  if (!finish.wanted() || column >= image.width) return;
  __syncwarp();
  const int x = shared.job.mirror_x ? image.width - 1 - column : column;
  for (int row = first; row < last; ++row) finish(x, y_of(row));
}

inline dim3 resize_grid(int height, int width, int64_t samples) {
  return dim3((width + kColumns - 1) / kColumns, (height + kBandRows - 1) / kBandRows,
              static_cast<unsigned>(samples < 65535 ? samples : 65535));
}

}  // namespace gpuaug
