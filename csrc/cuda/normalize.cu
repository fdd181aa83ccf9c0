// normalize on CUDA: one streaming kernel for each output layout.
//
// A thread makes pieces of 16 output bytes, neighbouring threads neighbouring pieces, so every store of a warp is one
// contiguous run. Input bytes come through aligned words and are shifted (any address), mirrored (flip) and
// de-interleaved (planar output) in registers. Pieces that straddle rows of a flipped image, and tiles at the ends of
// the batch, where whole words could lie outside the input, are gathered byte by byte instead.
#include "bytes.cuh"
#include "launch.h"
#include "normalize_kernels.h"

namespace gpuaug {
namespace {

constexpr int kThreads = 192;  // a multiple of 3: a thread meets the same channel order in each of its pieces
constexpr int kSteps = 4;      // pieces of a thread; all their loads are under way before the first is used

// How positions in the batch (values for channels_last, pixels for planar output) split into samples and rows.
struct Extent {
  int64_t total;
  uint32_t sample_length, row_length;
  FastDivide by_sample, by_row;

  Extent(int64_t samples, int64_t height, int64_t row)
      : total(samples * height * row),
        sample_length(static_cast<uint32_t>(height * row)),
        row_length(static_cast<uint32_t>(row)),
        by_sample(sample_length),
        by_row(row_length) {}

  __device__ __forceinline__ uint32_t offset_in_row(uint32_t in_sample) const {
    return in_sample - by_row(in_sample) * row_length;
  }
};

// The first position of a block. The batch needs 64 bits; from the start of the block's first sample, 32 are enough.
struct TileStart {
  int64_t position, sample;
  uint32_t in_sample;

  __device__ __forceinline__ TileStart(const Extent& extent, int tile)
      : position(static_cast<int64_t>(blockIdx.x) * tile) {
    sample =
        position <= INT32_MAX ? extent.by_sample(static_cast<uint32_t>(position)) : position / extent.sample_length;
    in_sample = static_cast<uint32_t>(position - sample * extent.sample_length);
  }
};

// channels_last output: values keep the order of the input, except that flipped rows are mirrored pixel by pixel.
// kAligned: the input's address is a multiple of the bytes that make a piece.
template <typename T, bool kAligned>
struct Interleaved {
  static constexpr int kValues = 16 / sizeof(T);  // of a piece
  static constexpr int kTile = kThreads * kSteps * kValues;
  static_assert(kThreads * kValues % 3 == 0);
  // Whole pixels that contain any kValues neighbouring values, in groups of four (three words).
  static constexpr int kPixels = (kValues + 2 + 11) / 12 * 4;

  ByteRange in;
  const bool* flip;
  T* out;
  const Extent& extent;
  const ChannelAffine& affine;
  TileStart start;
  uint32_t first;           // the thread's first value in the tile
  uint32_t phase;           // its channel: tiles start at pixels
  float scale[3], bias[3];  // from that channel on

  __device__ __forceinline__ Interleaved(ByteRange in_, const bool* flip_, T* out_, const Extent& extent_,
                                         const ChannelAffine& affine_)
      : in(in_), flip(flip_), out(out_), extent(extent_), affine(affine_), start(extent_, kTile) {
    first = threadIdx.x * kValues;
    phase = first % 3;
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      const float2 constants = constants_of(phase + c < 3 ? phase + c : phase + c - 3);
      scale[c] = constants.x, bias[c] = constants.y;
    }
  }

  __device__ __forceinline__ float2 constants_of(uint32_t channel) const {
    return make_float2(channel == 0   ? affine.scale[0]
                       : channel == 1 ? affine.scale[1]
                                      : affine.scale[2],
                       channel == 0   ? affine.bias[0]
                       : channel == 1 ? affine.bias[1]
                                      : affine.bias[2]);
  }

  __device__ __forceinline__ uint32_t in_tile(int step) const { return first + step * kThreads * kValues; }

  __device__ __forceinline__ void store(int step, const uint32_t (&bytes)[kValues / 4]) const {
    normalize_and_store<T, kValues>(out + start.position + in_tile(step), bytes,
                                    [this](int j) { return make_float2(scale[j % 3], bias[j % 3]); });
  }

  // Whether the tile, with `margin` values more on both sides, lies in the batch. Then nothing more is checked.
  __device__ __forceinline__ bool inside(int64_t margin) const {
    return start.position >= margin && start.position + kTile + margin <= extent.total;
  }

  // Pieces of samples that are not flipped.
  __device__ __forceinline__ void copy_pieces() const {
    if (!inside(kAligned ? 0 : 4)) return gather_pieces();
    const uint8_t* source = in.begin + start.position + first;
    uint32_t bytes[kSteps][kValues / 4];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if constexpr (kAligned) {
        load_words_aligned(source + s * kThreads * kValues, bytes[s]);
      } else {
        load_words(source + s * kThreads * kValues, bytes[s]);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) store(s, bytes[s]);
  }

  // Pieces of flipped samples; with kMixed, of samples of which some are flipped.
  template <bool kMixed>
  __device__ __forceinline__ void mirror_pieces() const {
    constexpr int kWords = kPixels * 3 / 4;
    if (!inside(static_cast<int64_t>(extent.row_length) + 3 * kPixels + 8)) return gather_pieces();
    const uint8_t* here = in.begin + start.position;
    uint32_t words[kSteps][kWords];        // the pixels that hold a piece
    bool mirrored[kSteps], whole[kSteps];  // whole: in one row
    bool all_whole = true;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint32_t in_sample = start.in_sample + in_tile(s);  // of the tile's first sample, or beyond its end
      const uint32_t offset = extent.offset_in_row(in_sample);
      whole[s] = offset + kValues <= extent.row_length;
      all_whole = all_whole && whole[s];
      mirrored[s] = kMixed ? flip[start.sample + extent.by_sample(in_sample)] : true;
      // From the first pixel of the piece, or from the last pixel of its mirror image.
      const int32_t forward = static_cast<int32_t>(in_tile(s) - phase);
      const int32_t backward = static_cast<int32_t>(in_tile(s) + extent.row_length + phase - 2 * offset) - 3 * kPixels;
      load_words(here + (mirrored[s] ? backward : forward), words[s]);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (mirrored[s]) mirror_pixels(words[s]);
      uint32_t bytes[kValues / 4];
#pragma unroll
      for (int i = 0; i < kValues / 4; ++i) {
        bytes[i] = __funnelshift_r(words[s][i], words[s][i + 1], 8 * phase);
      }
      if (whole[s]) store(s, bytes);
    }
    if (all_whole) return;
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s) {
      if (extent.offset_in_row(start.in_sample + in_tile(s)) + kValues > extent.row_length) gather_piece(s);
    }
  }

  __device__ __forceinline__ void gather_pieces() const {
#pragma unroll 1
    for (int s = 0; s < kSteps; ++s) gather_piece(s);
  }

  __device__ __forceinline__ void gather_piece(int step) const {
#pragma unroll 1
    for (uint32_t j = 0; j < kValues; ++j) {
      const int64_t position = start.position + in_tile(step) + j;
      if (position >= extent.total) return;
      const uint32_t channel = (phase + j) % 3;
      const uint32_t in_sample = start.in_sample + in_tile(step) + j;
      int64_t from = position;
      if (flip && flip[start.sample + extent.by_sample(in_sample)]) {
        const uint32_t pixel = extent.offset_in_row(in_sample) - channel;
        from += static_cast<int64_t>(extent.row_length) - 3 - 2 * static_cast<int64_t>(pixel);
      }
      const float2 constants = constants_of(channel);
      out[position] = normalize_pixel<T>(__ldg(in.begin + from), constants.x, constants.y);
    }
  }
};

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    normalize_interleaved(ByteRange in, const bool* __restrict__ flip, T* __restrict__ out, const Extent extent,
                          const ChannelAffine affine) {
  const Interleaved<T, kAligned> tile(in, flip, out, extent, affine);
  if (!flip) return tile.copy_pieces();
  // All threads of the block decide alike. Most tiles lie in one sample.
  const int64_t rest = extent.total - tile.start.position;
  const uint32_t last = rest < tile.kTile ? static_cast<uint32_t>(rest) - 1 : tile.kTile - 1;
  const uint32_t further_samples = extent.by_sample(tile.start.in_sample + last);
  const bool first_flip = flip[tile.start.sample];
  if (further_samples > 1 || first_flip != flip[tile.start.sample + further_samples]) {
    tile.template mirror_pieces<true>();
  } else if (first_flip) {
    tile.template mirror_pieces<false>();
  } else {
    tile.copy_pieces();
  }
}

// Contiguous NCHW output. Positions are pixels; a piece is kPixels of them, stored once in each of the three planes.
// kPixels divides H * W, so that pieces are aligned and stay within their sample.
template <typename T, int kPixels>
struct Planar {
  static constexpr int kSteps = kPixels == 1 ? 4 : 2;
  static constexpr int kTile = kThreads * kSteps * kPixels;
};

template <typename T, int kPixels>
__global__ void __launch_bounds__(kThreads)
    normalize_planar(ByteRange in, const bool* __restrict__ flip, T* __restrict__ out, const Extent extent,
                     const ChannelAffine affine) {
  using Tile = Planar<T, kPixels>;
  const TileStart start(extent, Tile::kTile);
  const int64_t plane = extent.sample_length;
#pragma unroll
  for (int s = 0; s < Tile::kSteps; ++s) {
    const uint32_t in_tile = (s * kThreads + threadIdx.x) * kPixels;
    const int64_t position = start.position + in_tile;
    if (position >= extent.total) return;
    const uint32_t further_samples = extent.by_sample(start.in_sample + in_tile);
    const int64_t sample = start.sample + further_samples;
    const uint32_t in_sample = start.in_sample + in_tile - further_samples * extent.sample_length;
    const bool mirrored = flip && flip[sample];
    const uint32_t offset = mirrored ? extent.offset_in_row(in_sample) : 0;
    T* first_plane = out + sample * 3 * plane + in_sample;
    // The pixel from which pixel j of the piece comes.
    const auto source_of = [&](uint32_t j) -> int64_t {
      if (!mirrored) return position + j;
      return position + j + extent.row_length - 1 - 2 * static_cast<int64_t>(extent.offset_in_row(in_sample + j));
    };
    if constexpr (kPixels == 1) {
      const uint8_t* rgb = in.begin + 3 * source_of(0);
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        first_plane[c * plane] = normalize_pixel<T>(__ldg(rgb + c), affine.scale[c], affine.bias[c]);
      }
    } else {
      constexpr int kWords = kPixels * 3 / 4;
      uint32_t words[kWords];
      const int64_t to_mirror = static_cast<int64_t>(extent.row_length) - 2 * static_cast<int64_t>(offset) - kPixels;
      const uint8_t* source = in.begin + 3 * (mirrored ? position + to_mirror : position);
      if ((!mirrored || offset + kPixels <= extent.row_length) && can_load_words<kWords>(source, in)) {
        load_words(source, words);
        if (mirrored) mirror_pixels(words);
      } else {
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = 0;
#pragma unroll
        for (int j = 0; j < kPixels; ++j) {
          const uint8_t* rgb = in.begin + 3 * source_of(j);
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            words[(3 * j + c) / 4] |= static_cast<uint32_t>(__ldg(rgb + c)) << (8 * ((3 * j + c) % 4));
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        uint32_t bytes[kPixels / 4];
#pragma unroll
        for (int i = 0; i < kPixels / 4; ++i) bytes[i] = channel_of_four_pixels(words + 3 * i, c);
        const float2 channel = make_float2(affine.scale[c], affine.bias[c]);
        normalize_and_store<T, kPixels>(first_plane + c * plane, bytes, [&](int) { return channel; });
      }
    }
  }
}

unsigned blocks(int64_t positions, int64_t tile) {
  const int64_t count = (positions + tile - 1) / tile;
  if (count > INT32_MAX) fail("normalize: x has too many values for one call: ", positions);
  return static_cast<unsigned>(count);
}

ByteRange input_of(const NormalizeLaunch& launch) {
  return {launch.x, launch.x + kChannels * launch.samples * launch.height * launch.width};
}

template <typename T>
void launch_interleaved(const NormalizeLaunch& launch, cudaStream_t stream) {
  using Tile = Interleaved<T, false>;
  const Extent extent(launch.samples, launch.height, kChannels * launch.width);
  const unsigned grid = blocks(extent.total, Tile::kTile);
  const auto start = [&](auto kernel) {
    kernel<<<grid, kThreads, 0, stream>>>(input_of(launch), launch.flip, static_cast<T*>(launch.out), extent, launch.affine);
  };
  if (reinterpret_cast<uintptr_t>(launch.x) % Tile::kValues == 0) {
    start(normalize_interleaved<T, true>);
  } else {
    start(normalize_interleaved<T, false>);
  }
}

template <typename T, int kPixels>
void launch_planar_pieces(const NormalizeLaunch& launch, cudaStream_t stream) {
  const Extent extent(launch.samples, launch.height, launch.width);
  const unsigned grid = blocks(extent.total, Planar<T, kPixels>::kTile);
  normalize_planar<T, kPixels><<<grid, kThreads, 0, stream>>>(input_of(launch), launch.flip, static_cast<T*>(launch.out),
                                                              extent, launch.affine);
}

template <typename T>
void launch_planar(const NormalizeLaunch& launch, cudaStream_t stream) {
  constexpr int kWidest = 16 / sizeof(T);
  const int64_t plane = launch.height * launch.width;
  if (plane % kWidest == 0) {
    launch_planar_pieces<T, kWidest>(launch, stream);
  } else if (plane % 4 == 0) {
    launch_planar_pieces<T, 4>(launch, stream);
  } else {
    launch_planar_pieces<T, 1>(launch, stream);
  }
}

}  // namespace

void launch_normalize(const NormalizeLaunch& launch, cudaStream_t stream) {
  dispatch_element(launch.type, [&](auto zero) {
    using T = decltype(zero);
    if (launch.channels_last) {
      launch_interleaved<T>(launch, stream);
    } else {
      launch_planar<T>(launch, stream);
    }
  });
  check_launch("normalize");
}

}  // namespace gpuaug
