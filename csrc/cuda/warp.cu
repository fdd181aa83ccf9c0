// warp on CUDA: a thread makes a few neighbouring pixels of the result, in all channels.
//
// Where the point lands is worked out once for all channels. In planar results a thread's pixels fill one 32-bit store.
// Sources are read through their strides: any layout, no copy.
#include <cstring>

#include "launch.h"
#include "warp_kernels.h"

namespace gpuaug {
namespace {

constexpr int kThreads = 256;

// Where the thread works: pixels column .. column + kPixels - 1 of a row of a sample.
struct Spot {
  int64_t sample;
  int32_t row, column;
  bool inside;

  __device__ Spot(const WarpShape& shape, const FastDivide& by_row_pieces, unsigned row_pieces, unsigned blocks_per_sample,
                  int pixels) {
    sample = blockIdx.x / blocks_per_sample;
    const uint32_t piece = (blockIdx.x % blocks_per_sample) * kThreads + threadIdx.x;
    const uint32_t r = by_row_pieces(piece);
    row = static_cast<int32_t>(r);
    column = static_cast<int32_t>((piece - r * row_pieces) * pixels);
    inside = row < shape.out_h;
  }
};

struct Pieces {
  unsigned row_pieces, blocks_per_sample;
  FastDivide by_row_pieces;
  unsigned grid;

  Pieces(const WarpShape& shape, int pixels)
      : row_pieces((shape.out_w + pixels - 1) / pixels), by_row_pieces(row_pieces) {
    const int64_t pieces = int64_t{row_pieces} * shape.out_h;
    const int64_t per_sample = (pieces + kThreads - 1) / kThreads;
    if (pieces > INT32_MAX - kThreads || per_sample * shape.samples > INT32_MAX) {
      fail("warp: too many pixels for one call: ", shape.samples, " x ", shape.out_h, " x ", shape.out_w);
    }
    blocks_per_sample = static_cast<unsigned>(per_sample);
    grid = static_cast<unsigned>(per_sample * shape.samples);
  }
};

// One landing: offsets of the rows and columns that it mixes (-1: fill colour), and how.
template <Interpolation kInterpolation>
struct Landing {
  int64_t row[kTaps<kInterpolation>], column[kTaps<kInterpolation>];
  float ty, tx;
  bool filled;

  __device__ __forceinline__ Landing(const WarpShape& shape, const float* m, int32_t x, int32_t y) {
    const SourcePoint p = source_point(m, shape.matrix_size == 9, x, y, shape.rule);
    filled = p.filled;
    const auto ys = axis_sample<kInterpolation>(p.y, p.cy, shape.rule.height, shape.rule.border);
    const auto xs = axis_sample<kInterpolation>(p.x, p.cx, shape.rule.width, shape.rule.border);
#pragma unroll
    for (int i = 0; i < kTaps<kInterpolation>; ++i) {
      row[i] = filled || ys.at[i] < 0 ? -1 : ys.at[i] * shape.in.y;
      column[i] = filled || xs.at[i] < 0 ? -1 : xs.at[i] * shape.in.x;
    }
    ty = ys.t;
    tx = xs.t;
  }

  __device__ __forceinline__ bool is_fill(int r, int c) const { return row[r] < 0 || column[c] < 0; }
};

template <Interpolation kInterpolation, typename T, int kPixels>
__global__ void __launch_bounds__(kThreads) warp_pixels(const T* __restrict__ x, const float* __restrict__ matrices,
                                                        T* __restrict__ out, const __grid_constant__ WarpShape shape,
                                                        const __grid_constant__ Pieces pieces) {
  const Spot spot(shape, pieces.by_row_pieces, pieces.row_pieces, pieces.blocks_per_sample, kPixels);
  if (!spot.inside) return;
  float m[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) m[i] = i < shape.matrix_size ? __ldg(matrices + spot.sample * shape.matrix_size + i) : 0.0f;
  const auto land = [&](int p) { return Landing<kInterpolation>(shape, m, spot.column + p, spot.row); };
  const T* image = x + spot.sample * shape.in.n;
  T* first = out + spot.sample * shape.out.n + spot.row * shape.out.y + spot.column * shape.out.x;
  const Border border = shape.rule.border;
  const auto value = [&](const Landing<kInterpolation>& at, const T* from, float fill) {
    const auto load = [&](int r, int c) {
      return at.is_fill(r, c) ? fill : static_cast<float>(__ldg(from + at.row[r] + at.column[c]));
    };
    const float mixed = at.filled ? fill : interpolate<kInterpolation, float>(load, at.ty, at.tx, border);
    return as_pixel<T, float>(mixed, border);
  };
  if constexpr (kPixels == 1) {
    const auto at = land(0);
    for (int64_t c = 0; c < shape.channels; ++c) {
      first[c * shape.out.c] = value(at, image + c * shape.in.c, shape.fill_of(c));
    }
  } else if constexpr (kPixels == 2) {
    const Landing<kInterpolation> at[2] = {land(0), land(1)};
    for (int64_t c = 0; c < shape.channels; ++c) {
      T v[2];
#pragma unroll
      for (int p = 0; p < 2; ++p) v[p] = value(at[p], image + c * shape.in.c, shape.fill_of(c));
      uint32_t word;
      memcpy(&word, v, 4);
      *reinterpret_cast<uint32_t*>(first + c * shape.out.c) = word;
    }
  } else {
    static_assert(kPixels == 4 && sizeof(T) == 1);
    const Landing<kInterpolation> at[4] = {land(0), land(1), land(2), land(3)};
    for (int64_t c = 0; c < shape.channels; ++c) {
      uint32_t word = 0;
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        word |= static_cast<uint32_t>(value(at[p], image + c * shape.in.c, shape.fill_of(c))) << (8 * p);
      }
      *reinterpret_cast<uint32_t*>(first + c * shape.out.c) = word;
    }
  }
}

template <Interpolation kInterpolation, typename T>
__global__ void __launch_bounds__(kThreads) spread_pixels(const T* __restrict__ grad, const float* __restrict__ matrices,
                                                          float* __restrict__ summed,
                                                          const __grid_constant__ WarpShape shape,
                                                          const __grid_constant__ Pieces pieces) {
  constexpr int taps = kTaps<kInterpolation>;
  const Spot spot(shape, pieces.by_row_pieces, pieces.row_pieces, pieces.blocks_per_sample, 1);
  if (!spot.inside) return;
  float m[9];
#pragma unroll
  for (int i = 0; i < 9; ++i) m[i] = i < shape.matrix_size ? __ldg(matrices + spot.sample * shape.matrix_size + i) : 0.0f;
  const Landing<kInterpolation> at(shape, m, spot.column, spot.row);
  if (at.filled) return;
  float wy[taps], wx[taps];
  axis_weights<kInterpolation>(at.ty, shape.rule.border, wy);
  axis_weights<kInterpolation>(at.tx, shape.rule.border, wx);
  const T* from = grad + spot.sample * shape.out.n + spot.row * shape.out.y + spot.column * shape.out.x;
  float* image = summed + spot.sample * shape.in.n;
  for (int64_t channel = 0; channel < shape.channels; ++channel) {
    const float g = static_cast<float>(__ldg(from + channel * shape.out.c));
    float* to = image + channel * shape.in.c;
#pragma unroll
    for (int r = 0; r < taps; ++r) {
#pragma unroll
      for (int c = 0; c < taps; ++c) {
        if (!at.is_fill(r, c)) atomicAdd(to + at.row[r] + at.column[c], wy[r] * wx[c] * g);
      }
    }
  }
}

}  // namespace

void launch_warp(const WarpLaunch& launch, cudaStream_t stream) {
  const WarpShape& shape = launch.shape;
  dispatch_element(launch.type, [&](auto zero) {
    using T = decltype(zero);
    const T* in = static_cast<const T*>(launch.in);
    T* out = static_cast<T*>(launch.out);
    dispatch_interpolation(launch.interpolation, [&](auto kind) {
      constexpr Interpolation kInterpolation = decltype(kind)::value;
      const auto start = [&](auto pixels) {
        constexpr int kPixels = decltype(pixels)::value;
        const Pieces pieces(shape, kPixels);
        warp_pixels<kInterpolation, T, kPixels>
            <<<pieces.grid, kThreads, 0, stream>>>(in, launch.matrices, out, shape, pieces);
      };
      constexpr int kInWord = 4 / sizeof(T);
      if constexpr (kInWord > 1 && kInterpolation != Interpolation::kBicubic) {
        if (shape.out.x == 1 && shape.out_w % kInWord == 0) return start(std::integral_constant<int, kInWord>{});
      }
      start(std::integral_constant<int, 1>{});
    });
  });
  check_launch("warp");
}

void launch_warp_backward(const WarpLaunch& launch, cudaStream_t stream) {
  dispatch_floating(launch.type, [&](auto zero) {
    using T = decltype(zero);
    dispatch_interpolation(launch.interpolation, [&](auto kind) {
      const Pieces pieces(launch.shape, 1);
      spread_pixels<decltype(kind)::value, T><<<pieces.grid, kThreads, 0, stream>>>(
          static_cast<const T*>(launch.in), launch.matrices, static_cast<float*>(launch.out), launch.shape, pieces);
    });
  });
  check_launch("warp");
}

}  // namespace gpuaug
