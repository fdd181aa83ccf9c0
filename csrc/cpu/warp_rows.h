// Warps on the CPU, a row after the other: where its pixels come from is worked out at once, in vectors, and so are sums.
#pragma once

#include <algorithm>
#include <vector>

#include "../program.h"

namespace gpuaug {

// A row of a warp under way. Grown as needed, so that one does for all images of a thread.
struct WarpRow {
  std::vector<int> from;      // which pixel in memory; of several taps the first one, in the order of the image
  std::vector<float> wx, wy;  // how far the point lies beyond the tap left of it and above it
  std::vector<Pixel> pixels;

  void grow(int width) {
    if (from.size() >= static_cast<size_t>(width)) return;
    from.resize(width), wx.resize(width), wy.resize(width), pixels.resize(width);
  }
};

// From rows and columns of an image to its memory.
struct Layout {
  int first_x, first_y, step_x, step_y, width;

  explicit Layout(const Image& image)
      : first_x(image.mirror_x ? image.width - 1 : 0),
        first_y(image.mirror_y ? image.height - 1 : 0),
        step_x(image.mirror_x ? -1 : 1),
        step_y(image.mirror_y ? -1 : 1),
        width(image.width) {}

  int operator()(int x, int y) const { return (first_y + step_y * y) * width + first_x + step_x * x; }
};

// Calls body(warp) twice in the text, with whether it is a perspective as a constant.
template <typename Body>
void with_kind(const Warp& warp, const Body& body) {
  Warp known = warp;
  if (warp.perspective) {
    known.perspective = true;
    body(known);
  } else {
    known.perspective = false;
    body(known);
  }
}

class NearestRows {
 public:
  NearestRows(const Warped<Interpolation::kNearest>& warped, WarpRow& row)
      : image_(warped.image), warp_(warped.warp), layout_(image_), fills_(warp_.border == kConstant || warp_.border == kPil) {
    row.grow(image_.width);
    from_ = row.from.data();
  }

  void begin_row(int y) {
    with_kind(warp_, [&](const Warp& warp) {
      const int width = image_.width, height = image_.height;
      const Layout layout = layout_;
      int* const from = from_;
      for (int x = 0; x < width; ++x) {
        const Point p = source_of(warp, x, y);
        const int column = static_cast<int>(floorf(p.x)), row = static_cast<int>(floorf(p.y));
        const bool there = (column >= 0) & (column < width) & (row >= 0) & (row < height);
        const int pixel = layout(there ? column : 0, there ? row : 0);
        from[x] = there ? pixel : -1;
      }
    });
    if (fills_) return;
    for (int x = 0; x < image_.width; ++x) {
      if (from_[x] < 0) from_[x] = beyond(source_of(warp_, x, y));
    }
  }

  Pixel operator()(int x, int) const {
    const int from = from_[x];
    if (from < 0) return warp_.fill;
    const uint8_t* pixel = image_.data + 3 * static_cast<size_t>(from);
    return {pixel[0], pixel[1], pixel[2]};
  }

 private:
  int beyond(Point p) const {
    return layout_(border_index(static_cast<int>(floorf(p.x)), image_.width, warp_.border),
                   border_index(static_cast<int>(floorf(p.y)), image_.height, warp_.border));
  }

  const Image image_;
  const Warp warp_;
  const Layout layout_;
  const bool fills_;
  int* from_;
};

// Bilinear and bicubic warps. Points whose taps are not all inside of the image are made one by one.
template <Interpolation kInterpolation>
class InterpolatedRows {
 public:
  InterpolatedRows(const Warped<kInterpolation>& warped, WarpRow& row)
      : image_(warped.image), warp_(warped.warp), layout_(image_), row_(row) {
    row.grow(image_.width);
  }

  void begin_row(int y) {
    trace(y);
    for (int first = 0; first < image_.width; first += kRun) mix(first, std::min(kRun, image_.width - first));
    for (int x = 0; x < image_.width; ++x) {
      if (row_.from[x] < 0) row_.pixels[x] = sampled<kInterpolation>(image_, warp_, source_of(warp_, x, y));
    }
  }

  Pixel operator()(int x, int) const { return row_.pixels[x]; }

 private:
  static constexpr int kTaps = kInterpolation == Interpolation::kBicubic ? 4 : 2;
  static constexpr int kBefore = kTaps / 2 - 1;  // taps before the one left of or above the point
  static constexpr int kRun = 64;

  void trace(int y) {
    with_kind(warp_, [&](const Warp& warp) {
      const int width = image_.width, last_x = width - kTaps, last_y = image_.height - kTaps;
      const Layout layout = layout_;
      int* const from = row_.from.data();
      float *const wx = row_.wx.data(), *const wy = row_.wy.data();
      for (int x = 0; x < width; ++x) {
        const Point p = source_of(warp, x, y);
        const float fx = p.x - 0.5f, fy = p.y - 0.5f;
        const float left = floorf(fx), top = floorf(fy);
        const int column = static_cast<int>(left) - kBefore, row = static_cast<int>(top) - kBefore;
        const bool there = (column >= 0) & (column <= last_x) & (row >= 0) & (row <= last_y);
        const int pixel = layout(there ? column : 0, there ? row : 0);
        from[x] = there ? pixel : -1;
        wx[x] = fx - left, wy[x] = fy - top;
      }
    });
  }

  // The pixels first..first+count-1 of the row; any where taps are outside.
  void mix(int first, int count) {
    const int* const from = row_.from.data() + first;
    const int64_t right = kChannels * layout_.step_x, down = static_cast<int64_t>(kChannels) * layout_.step_y * layout_.width;
    for (int i = 0; i < count; ++i) {
      if (from[i] < 0) continue;
      const uint8_t* const corner = image_.data + kChannels * static_cast<int64_t>(from[i]);
      for (int j = 0; j < kTaps; ++j) {
        for (int k = 0; k < kTaps; ++k) {
          for (int c = 0; c < kChannels; ++c) taps_[j][k][c][i] = corner[j * down + k * right + c];
        }
      }
    }
    float wx[kRun] = {}, wy[kRun] = {};
    std::copy_n(row_.wx.data() + first, count, wx);
    std::copy_n(row_.wy.data() + first, count, wy);
    int mixed[kChannels][kRun];
    if (warp_.border == kPil) {
      mix_taps<true>(taps_, wx, wy, mixed);
    } else {
      mix_taps<false>(taps_, wx, wy, mixed);
    }
    Pixel* const out = row_.pixels.data() + first;
    for (int i = 0; i < count; ++i) out[i] = {mixed[0][i], mixed[1][i], mixed[2][i]};
  }

  // As `sampled` has it.
  template <bool kPil>
  static void mix_taps(const int (&taps)[kTaps][kTaps][kChannels][kRun], const float (&wx)[kRun], const float (&wy)[kRun],
                       int (&mixed)[kChannels][kRun]) {
    for (int c = 0; c < kChannels; ++c) {
      for (int i = 0; i < kRun; ++i) {
        if constexpr (kInterpolation == Interpolation::kBilinear) {
          mixed[c][i] = bilinear_channel(wx[i], wy[i], taps[0][0][c][i], taps[0][1][c][i], taps[1][0][c][i],
                                         taps[1][1][c][i], kPil);
        } else {
          const CubicWeights cx = cubic_weights(wx[i], kPil ? -1.0f : -0.75f), cy = cubic_weights(wy[i], kPil ? -1.0f : -0.75f);
          float sum = 0;
          for (int j = 0; j < kTaps; ++j) {
            float line = 0;
            for (int k = 0; k < kTaps; ++k) line = fmaf(cx.w[k], static_cast<float>(taps[j][k][c][i]), line);
            sum = fmaf(cy.w[j], line, sum);
          }
          mixed[c][i] = kPil ? truncated_byte(sum) : rounded_byte(sum);
        }
      }
    }
  }

  const Image image_;
  const Warp warp_;
  const Layout layout_;
  WarpRow& row_;
  int taps_[kTaps][kTaps][kChannels][kRun] = {};
};

}  // namespace gpuaug
