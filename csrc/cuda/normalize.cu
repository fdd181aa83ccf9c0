// normalize on CUDA: one streaming kernel for each output layout.
//
// A thread makes kSteps pieces of 16 output bytes, neighbouring threads neighbouring pieces, so every store of a warp is one
// contiguous run. Input bytes come through aligned 32-bit words and are shifted (any address), mirrored (flip) and
// de-interleaved (planar output) in registers. A piece that straddles rows of a flipped image, or whose words would leave
// the input buffer, is gathered byte by byte instead.
#include <torch/csrc/stable/library.h>

#include <type_traits>

#include "../normalize.h"
#include "bytes.cuh"
#include "launch.h"

namespace gpuaug {
namespace {

constexpr int kThreads = 192;  // a multiple of 3: a thread meets the same channel order in each of its pieces
constexpr int kSteps = 4;

// A position in the batch as row and offset. A block starts at a 64-bit position; inside it 32 bits are enough.
struct Rows {
  int64_t total;         // positions (values or pixels) in the batch
  uint32_t row_length;   // positions in a row
  uint32_t height;       // rows in a sample
  FastDivide by_row_length, by_height;

  Rows(int64_t samples, int64_t h, int64_t length)
      : total(samples * h * length),
        row_length(static_cast<uint32_t>(length)),
        height(static_cast<uint32_t>(h)),
        by_row_length(row_length),
        by_height(height) {}
};

// The block's first position, split.
struct TileStart {
  int64_t position, sample;
  uint32_t y, offset;

  __device__ TileStart(const Rows& rows, int64_t tile) : position(blockIdx.x * tile) {
    const int64_t row = position / rows.row_length;
    offset = static_cast<uint32_t>(position - row * rows.row_length);
    sample = row / rows.height;
    y = static_cast<uint32_t>(row - sample * rows.height);
  }
};

struct Place {
  int64_t sample;
  uint32_t y, offset;

  __device__ Place(const Rows& rows, const TileStart& start, uint32_t in_tile) {
    const uint32_t from_row_start = start.offset + in_tile;
    const uint32_t rows_below = rows.by_row_length(from_row_start);
    offset = from_row_start - rows_below * rows.row_length;
    const uint32_t from_sample_start = start.y + rows_below;
    const uint32_t samples_after = rows.by_height(from_sample_start);
    y = from_sample_start - samples_after * rows.height;
    sample = start.sample + samples_after;
  }
};

// channels_last output: values keep the order of the input, except that flipped rows are mirrored pixel by pixel.
// Positions are values (bytes in, T out).
template <typename T, bool kFlip, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    normalize_interleaved(ByteRange in, const bool* __restrict__ flip, T* __restrict__ out, const Rows rows,
                          const ChannelAffine affine) {
  constexpr int kValues = 16 / sizeof(T);
  constexpr int kTile = kThreads * kSteps * kValues;
  static_assert(kThreads * kValues % 3 == 0);
  // Whole pixels that contain any kValues neighbouring values, in groups of four (three words).
  constexpr int kPixels = (kValues + 2 + 11) / 12 * 4;
  constexpr int kWords = kFlip ? kPixels * 3 / 4 : kValues / 4;

  const uint32_t first_in_tile = threadIdx.x * kValues;
  const uint32_t phase = first_in_tile % 3;  // the channel of a piece's first value: tiles start at pixels
  float scale[3], bias[3];
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    const uint32_t channel = phase + c < 3 ? phase + c : phase + c - 3;
    scale[c] = channel == 0 ? affine.scale[0] : channel == 1 ? affine.scale[1] : affine.scale[2];
    bias[c] = channel == 0 ? affine.bias[0] : channel == 1 ? affine.bias[1] : affine.bias[2];
  }
  const auto constants = [&](int j) { return make_float2(scale[j % 3], bias[j % 3]); };

  const int64_t tile_start = static_cast<int64_t>(blockIdx.x) * kTile;
  const uint8_t* source[kSteps];  // of the words that hold piece s
  bool mirrored[kSteps], whole[kSteps];
  bool all_whole = true;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const uint32_t in_tile = first_in_tile + s * kThreads * kValues;
    const int64_t position = tile_start + in_tile;
    whole[s] = position + kValues <= rows.total;
    if constexpr (kFlip) {
      const Place place(rows, TileStart(rows, kTile), in_tile);
      mirrored[s] = position < rows.total && flip[place.sample];
      const uint32_t pixel_start = place.offset - phase;
      source[s] = in.begin + position - place.offset +
                  (mirrored[s] ? static_cast<int64_t>(rows.row_length) - pixel_start - 3 * kPixels : pixel_start);
      whole[s] = whole[s] && place.offset + kValues <= rows.row_length && can_load_words<kWords>(source[s], in);
    } else {
      mirrored[s] = false;
      source[s] = in.begin + position;
      if constexpr (!kAligned) whole[s] = whole[s] && can_load_words<kWords>(source[s], in);
    }
    all_whole = all_whole && whole[s];
  }

  const auto load = [&](int s, uint32_t(&words)[kWords]) {
    if constexpr (kAligned) {
      load_words_aligned(source[s], words);
    } else {
      load_words(source[s], words);
    }
  };
  const auto finish = [&](int s, uint32_t(&words)[kWords]) {
    uint32_t bytes[kValues / 4];
    if constexpr (kFlip) {
      if (mirrored[s]) mirror_pixels(words);
#pragma unroll
      for (int i = 0; i < kValues / 4; ++i) bytes[i] = __funnelshift_r(words[i], words[i + 1], 8 * phase);
    } else {
#pragma unroll
      for (int i = 0; i < kValues / 4; ++i) bytes[i] = words[i];
    }
    normalize_and_store<T, kValues>(out + tile_start + first_in_tile + s * kThreads * kValues, bytes, constants);
  };

  if (all_whole) {  // nearly always: all loads are under way before the first is used
    uint32_t words[kSteps][kWords];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) load(s, words[s]);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) finish(s, words[s]);
    return;
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (whole[s]) {
      uint32_t words[kWords];
      load(s, words);
      finish(s, words);
      continue;
    }
    const uint32_t in_tile = first_in_tile + s * kThreads * kValues;
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
      const int64_t position = tile_start + in_tile + j;
      if (position >= rows.total) break;
      int64_t from = position;
      if constexpr (kFlip) {
        const Place place(rows, TileStart(rows, kTile), in_tile + j);
        const uint32_t channel = place.offset % 3;
        if (flip[place.sample]) from = position - place.offset + rows.row_length - 3 - (place.offset - channel) + channel;
      }
      out[position] = normalize_pixel<T>(__ldg(in.begin + from), scale[j % 3], bias[j % 3]);
    }
  }
}

// Contiguous NCHW output. Positions are pixels; a piece is kPixels of them, stored once in each of the three planes.
// kPixels divides H * W, so that pieces are aligned and stay within their sample.
template <typename T, int kPixels>
__global__ void __launch_bounds__(kThreads)
    normalize_planar(ByteRange in, const bool* __restrict__ flip, T* __restrict__ out, const Rows rows,
                     const ChannelAffine affine) {
  constexpr int kPlanarSteps = kPixels == 1 ? kSteps : 2;
  constexpr int kTile = kThreads * kPlanarSteps * kPixels;
  const TileStart start(rows, kTile);
  const int64_t plane = static_cast<int64_t>(rows.height) * rows.row_length;
#pragma unroll
  for (int s = 0; s < kPlanarSteps; ++s) {
    const uint32_t in_tile = (s * kThreads + threadIdx.x) * kPixels;
    const int64_t position = start.position + in_tile;
    if (position >= rows.total) return;
    const Place place(rows, start, in_tile);
    const bool mirrored = flip && flip[place.sample];
    const int64_t row_start = position - place.offset;
    T* first_plane = out + place.sample * 3 * plane + static_cast<int64_t>(place.y) * rows.row_length + place.offset;
    if constexpr (kPixels == 1) {
      const uint8_t* rgb =
          in.begin + 3 * (mirrored ? row_start + rows.row_length - 1 - place.offset : position);
#pragma unroll
      for (int c = 0; c < 3; ++c) {
        first_plane[c * plane] = normalize_pixel<T>(__ldg(rgb + c), affine.scale[c], affine.bias[c]);
      }
    } else {
      constexpr int kWords = kPixels * 3 / 4;
      uint32_t words[kWords];
      const uint8_t* source =
          in.begin + 3 * (mirrored ? row_start + rows.row_length - place.offset - kPixels : position);
      if ((!mirrored || place.offset + kPixels <= rows.row_length) && can_load_words<kWords>(source, in)) {
        load_words(source, words);
        if (mirrored) mirror_pixels(words);
      } else {
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = 0;
#pragma unroll
        for (int j = 0; j < kPixels; ++j) {
          const Place pixel(rows, start, in_tile + j);
          const uint8_t* rgb =
              in.begin + 3 * (mirrored ? position + j - pixel.offset + rows.row_length - 1 - pixel.offset : position + j);
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

struct Launch {
  const NormalizeCall& call;
  cudaStream_t stream;
  ByteRange in;
  const bool* flip;

  template <typename T>
  T* out() const {
    return static_cast<T*>(call.out.mutable_data_ptr());
  }
};

unsigned blocks(int64_t positions, int64_t tile) {
  const int64_t count = (positions + tile - 1) / tile;
  if (count > INT32_MAX) fail("normalize: x has too many values for one call: ", positions);
  return static_cast<unsigned>(count);
}

template <typename T>
void launch_interleaved(const Launch& launch) {
  constexpr int kValues = 16 / sizeof(T);
  const Rows rows(launch.call.samples, launch.call.height, kChannels * launch.call.width);
  const unsigned grid = blocks(rows.total, kThreads * kSteps * kValues);
  const auto start = [&](auto kernel) {
    kernel<<<grid, kThreads, 0, launch.stream>>>(launch.in, launch.flip, launch.out<T>(), rows, launch.call.affine);
  };
  if (launch.flip) {
    start(normalize_interleaved<T, true, false>);
  } else if (reinterpret_cast<uintptr_t>(launch.in.begin) % kValues == 0) {
    start(normalize_interleaved<T, false, true>);
  } else {
    start(normalize_interleaved<T, false, false>);
  }
}

template <typename T, int kPixels>
void launch_planar_pieces(const Launch& launch) {
  const Rows rows(launch.call.samples, launch.call.height, launch.call.width);
  const unsigned grid = blocks(rows.total, kThreads * (kPixels == 1 ? kSteps : 2) * kPixels);
  normalize_planar<T, kPixels><<<grid, kThreads, 0, launch.stream>>>(launch.in, launch.flip, launch.out<T>(), rows,
                                                                    launch.call.affine);
}

template <typename T>
void launch_planar(const Launch& launch) {
  constexpr int kWidest = 16 / sizeof(T);
  const int64_t plane = launch.call.height * launch.call.width;
  if (plane % kWidest == 0) {
    launch_planar_pieces<T, kWidest>(launch);
  } else if (plane % 4 == 0) {
    launch_planar_pieces<T, 4>(launch);
  } else {
    launch_planar_pieces<T, 1>(launch);
  }
}

Tensor normalize(const Tensor& x, std::vector<double> mean, std::vector<double> std, std::optional<Tensor> flip,
                 ScalarType dtype, bool channels_last) {
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const NormalizeCall call = prepare_normalize(x, mean, std, flip, dtype, channels_last);
  if (call.out.numel() == 0) return call.out;
  constexpr int64_t kLongestSide = int64_t{1} << 29;  // offsets inside a tile are 32-bit
  if (call.height > kLongestSide || call.width > kLongestSide) {
    fail("normalize: x must have H and W of at most 2**29 on CUDA, got ", shape_name(x));
  }
  const uint8_t* in = call.x.const_data_ptr<uint8_t>();
  const Launch launch{call, current_stream(x), {in, in + call.x.numel()},
                      call.flip ? call.flip->const_data_ptr<bool>() : nullptr};
  dispatch_output_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    if (call.channels_last) {
      launch_interleaved<T>(launch);
    } else {
      launch_planar<T>(launch);
    }
  });
  check_launch("normalize");
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("normalize", TORCH_BOX(&gpuaug::normalize)); }
