// Filters: sharpness and Gaussian blur.
#pragma once

#include "geometry.h"

namespace gpuaug {

// torchvision's and Pillow's sharpness: away from (or towards) the 3 x 3 smoothing with weight 5 in its middle; the outermost
// pixels are left alone. `rest` is 1 - factor.
struct Sharpness {
  Image image;
  float rest;

  GPUAUG_HOST_DEVICE static int channel(int sum, int centre, float rest) {
    const int smooth = (2 * (sum + 4 * centre) + 13) / 26;  // rounded: thirteenths have no ties
    return truncated_byte(fmaf(rest, static_cast<float>(smooth - centre), static_cast<float>(centre)));
  }

  GPUAUG_HOST_DEVICE Pixel operator()(int x, int y) const {
    const Pixel centre = image.at(x, y);
    if (x == 0 || y == 0 || x == image.width - 1 || y == image.height - 1) return centre;
    Pixel sum = {0, 0, 0};
    for (int j = -1; j <= 1; ++j) {
      for (int i = -1; i <= 1; ++i) {
        const Pixel p = image.at(x + i, y + j);
        sum.r += p.r, sum.g += p.g, sum.b += p.b;
      }
    }
    return {channel(sum.r, centre.r, rest), channel(sum.g, centre.g, rest), channel(sum.b, centre.b, rest)};
  }
};

constexpr int kMaxBlurRadius = 31;

// Integer weights of a Gaussian, in 1/65536; they sum to 65536. weight[i] is that of the taps at distance i.
struct BlurKernel {
  int radius;
  int weight[kMaxBlurRadius + 1];
};

GPUAUG_HOST_DEVICE int blur_radius_of(const Op& op) { return clamp_int((op.integer(1) - 1) / 2, 0, kMaxBlurRadius); }

// In double, so that the last bits in which the libraries' exp differ cannot reach the weights.
GPUAUG_HOST_DEVICE void make_blur_kernel(const Op& op, BlurKernel& kernel) {
  kernel.radius = blur_radius_of(op);
  const double sigma = fmin(fmax(static_cast<double>(op.number(0)), 1e-3), 1e3);
  double sum = 1.0;
  for (int i = 1; i <= kernel.radius; ++i) sum += 2.0 * exp(-0.5 * (i / sigma) * (i / sigma));
  int rest = 65536;
  for (int i = 1; i <= kernel.radius; ++i) {
    kernel.weight[i] = static_cast<int>(rint(65536.0 * exp(-0.5 * (i / sigma) * (i / sigma)) / sum));
    rest -= 2 * kernel.weight[i];
  }
  kernel.weight[0] = rest;
}

// One direction of the blur; the border is reflected about the outermost pixel's centre (reflect101), as torchvision and
// OpenCV have it. Each direction rounds to uint8, so the result is within 1 of the two-dimensional sum.
template <bool kVertical>
struct Blur {
  Image image;
  const BlurKernel* kernel;

  GPUAUG_HOST_DEVICE Pixel tap(int x, int y, int offset) const {
    if constexpr (kVertical) return image.at(x, border_index(y + offset, image.height, kReflect101));
    return image.at(border_index(x + offset, image.width, kReflect101), y);
  }

  GPUAUG_HOST_DEVICE Pixel operator()(int x, int y) const {
    const Pixel centre = image.at(x, y);
    const int first = kernel->weight[0];
    Pixel sum = {first * centre.r + 32768, first * centre.g + 32768, first * centre.b + 32768};
    for (int i = 1; i <= kernel->radius; ++i) {
      const int weight = kernel->weight[i];
      const Pixel a = tap(x, y, -i), b = tap(x, y, i);
      sum.r += weight * (a.r + b.r);
      sum.g += weight * (a.g + b.g);
      sum.b += weight * (a.b + b.b);
    }
    return {sum.r >> 16, sum.g >> 16, sum.b >> 16};
  }
};

struct Copy {
  Image image;
  GPUAUG_HOST_DEVICE Pixel operator()(int x, int y) const { return image.at(x, y); }
};

template <Interpolation kInterpolation>
struct Warped {
  Image image;
  Warp warp;
  GPUAUG_HOST_DEVICE Pixel operator()(int x, int y) const {
    return sampled<kInterpolation>(image, warp, source_of(warp, x, y));
  }
};

}  // namespace gpuaug
