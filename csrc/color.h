// Colour ops on one pixel. torchvision's definitions (transforms.v2.functional on uint8): factors multiply in float32 and
// results are truncated; Pillow's where a head word asks for its grey.
#pragma once

#include "record.h"

namespace gpuaug {

struct Pixel {
  int r, g, b;
};

// Within low..high; NaN is low. Comparisons on the host, which would call a function for fminf; a device has instructions.
GPUAUG_HOST_DEVICE float limited(float value, float low, float high) {
#if defined(__CUDA_ARCH__)
  return fminf(fmaxf(value, low), high);
#else
  return value > low ? (value < high ? value : high) : low;
#endif
}

// Truncates to 0..255.
GPUAUG_HOST_DEVICE int truncated_byte(float value) { return static_cast<int>(limited(value, 0.0f, 255.0f)); }

// Rounds to nearest even, to 0..255.
GPUAUG_HOST_DEVICE int rounded_byte(float value) { return static_cast<int>(rintf(limited(value, 0.0f, 255.0f))); }

// torchvision's luminance in exact arithmetic, truncated: its weights 0.2989, 0.587, 0.114 sum to 0.9999.
GPUAUG_HOST_DEVICE int gray_of(Pixel p) {
  return static_cast<int>(static_cast<uint32_t>(2989 * p.r + 5870 * p.g + 1140 * p.b) / 10000u);
}

// Pillow's convert("L").
GPUAUG_HOST_DEVICE int pil_gray_of(Pixel p) { return (19595 * p.r + 38470 * p.g + 7471 * p.b + 0x8000) >> 16; }

// ratio * value + rest * other, rest being 1 - ratio.
GPUAUG_HOST_DEVICE int blended(int value, float other, float ratio, float rest) {
  return truncated_byte(fmaf(rest, other, static_cast<float>(value) * ratio));
}

// The same in Pillow's order of operations (Image.blend).
GPUAUG_HOST_DEVICE int pil_blended(int value, float other, float ratio) {
  return truncated_byte(other + ratio * (static_cast<float>(value) - other));
}

// What a table op needs to know about the whole image.
struct Statistics {
  float gray_mean;         // contrast
  int low, high;           // autocontrast: smallest and largest value of the channel
  uint32_t below;          // equalize: pixels whose value is lower than the entry's
  uint32_t step;           // equalize: pixels to a level, 0 when the image is left alone
};

GPUAUG_HOST_DEVICE float gray_mean_of(uint64_t sum, uint64_t pixels, bool pil) {
  const double mean = static_cast<double>(sum) / static_cast<double>(pixels);
  return pil ? static_cast<float>(floor(mean + 0.5)) : static_cast<float>(mean);
}

// Pillow's ImageOps.equalize: `last` is the count of the largest value that occurs.
GPUAUG_HOST_DEVICE uint32_t equalize_step(uint32_t pixels, uint32_t last) { return (pixels - last) / 255u; }

// Entry `value` of the table of op. `statistics` belongs to the channel (and, for equalize, to the entry).
GPUAUG_HOST_DEVICE int table_entry(const Op& op, const Statistics& statistics, int value) {
  switch (op.opcode()) {
    case kOpBrightness: return truncated_byte(static_cast<float>(value) * op.number(0));
    case kOpContrast:
      return op.has(kOpFlagPilGray) ? pil_blended(value, statistics.gray_mean, op.number(0))
                                    : blended(value, statistics.gray_mean, op.number(0), op.number(1));
    case kOpPosterize: {
      const int bits = clamp_int(op.integer(0), 0, 8);
      return value & ~((1 << (8 - bits)) - 1);
    }
    case kOpSolarize: return static_cast<float>(value) >= op.number(0) ? 255 - value : value;
    case kOpSolarizeAdd:
      return static_cast<float>(value) < op.number(1) ? truncated_byte(static_cast<float>(value) + op.number(0)) : value;
    case kOpInvert: return 255 - value;
    case kOpGamma: {
      // In double, so that the last bits in which the libraries' pow differ cannot reach the result.
      const double raised = pow(static_cast<double>(static_cast<float>(value) / 255.0f), static_cast<double>(op.number(0)));
      const double scaled = fmin(fmax(raised * static_cast<double>(op.number(1)), 0.0), 1.0);
      return static_cast<int>(scaled * 255.999);
    }
    case kOpAutocontrast: {
      if (statistics.high <= statistics.low) return value;
      const float scale = static_cast<float>(statistics.high - statistics.low) * (1.0f / 255.0f);
      return truncated_byte(static_cast<float>(value - statistics.low) / scale);
    }
    case kOpEqualize: {
      if (statistics.step == 0) return value;
      if (value == 0) return 0;
      const uint32_t level = (statistics.below + statistics.step / 2) / statistics.step;
      return level > 255u ? 255 : static_cast<int>(level);
    }
    default: return value;
  }
}

// value / 255.0f for whole numbers of 0..255, without a division.
GPUAUG_HOST_DEVICE float share_of_255(int value) {
  const float whole = static_cast<float>(value), inverse = 1.0f / 255.0f;
  const float near = whole * inverse;
  return fmaf(fmaf(-255.0f, near, whole), inverse, near);
}

// Hue turned by a share of the circle, as torchvision does it: through HSV in float32.
GPUAUG_HOST_DEVICE Pixel turned_hue(Pixel p, float turn) {
  const float r = share_of_255(p.r), g = share_of_255(p.g), b = share_of_255(p.b);
  const float high = r > g ? (r > b ? r : b) : (g > b ? g : b), low = r < g ? (r < b ? r : b) : (g < b ? g : b);
  const bool gray = high == low;
  const float range = gray ? 1.0f : high - low;
  const float saturation = gray ? 0.0f : (high - low) / high;
  const float inverse = 1.0f / range;
  const float rc = (high - r) * inverse, gc = (high - g) * inverse, bc = (high - b) * inverse;
  float hue = high == r ? bc - gc : high == g ? rc + 2.0f - bc : gc + 4.0f - rc;
  hue = hue * (1.0f / 6.0f) + 1.0f;
  hue = hue - floorf(hue) + turn;
  hue = hue - floorf(hue);
  const float sixths = hue * 6.0f;
  const float whole = floorf(sixths);
  const float fraction = sixths - whole;
  const int sector = clamp_int(static_cast<int>(whole), 0, 6) % 6;
  const float part = saturation * fraction;
  const float rest = 1.0f - saturation;
  const float q = limited((1.0f - part) * high, 0.0f, 1.0f);
  const float t = limited((part + rest) * high, 0.0f, 1.0f);
  const float l = limited(rest * high, 0.0f, 1.0f);
  const float red = sector == 0 || sector == 5 ? high : sector == 1 ? q : sector == 4 ? t : l;
  const float green = sector == 1 || sector == 2 ? high : sector == 3 ? q : sector == 0 ? t : l;
  const float blue = sector == 3 || sector == 4 ? high : sector == 5 ? q : sector == 2 ? t : l;
  return {static_cast<int>(red * 255.999f), static_cast<int>(green * 255.999f), static_cast<int>(blue * 255.999f)};
}

GPUAUG_HOST_DEVICE Pixel saturated(Pixel p, float ratio, float rest, bool pil) {
  if (pil) {
    const float gray = static_cast<float>(pil_gray_of(p));
    return {pil_blended(p.r, gray, ratio), pil_blended(p.g, gray, ratio), pil_blended(p.b, gray, ratio)};
  }
  const float gray = static_cast<float>(gray_of(p));
  return {blended(p.r, gray, ratio, rest), blended(p.g, gray, ratio, rest), blended(p.b, gray, ratio, rest)};
}

GPUAUG_HOST_DEVICE Pixel transformed(const Op& op, Pixel p) {
  const float r = static_cast<float>(p.r), g = static_cast<float>(p.g), b = static_cast<float>(p.b);
  const auto row = [&](int i) {
    return rounded_byte(fmaf(op.number(i), r, fmaf(op.number(i + 1), g, fmaf(op.number(i + 2), b, op.number(i + 3)))));
  };
  return {row(0), row(4), row(8)};
}

// Ops that mix the channels of a pixel: calls each(function) with what becomes of one.
template <typename Each>
GPUAUG_HOST_DEVICE void with_mixing(const Op& op, const Each& each) {
  const bool pil = op.has(kOpFlagPilGray);
  switch (op.opcode()) {
    case kOpSaturation: {
      const float ratio = op.number(0), rest = op.number(1);
      each([=](Pixel p) { return saturated(p, ratio, rest, pil); });
      break;
    }
    case kOpHue: {
      const float turn = op.number(0);
      each([=](Pixel p) { return turned_hue(p, turn); });
      break;
    }
    case kOpGrayscale:
      each([=](Pixel p) {
        const int gray = pil ? pil_gray_of(p) : gray_of(p);
        return Pixel{gray, gray, gray};
      });
      break;
    case kOpColorMatrix: each([&](Pixel p) { return transformed(op, p); }); break;
    default: break;
  }
}

template <int kCount>
GPUAUG_HOST_DEVICE void mix_channels(const Op& op, Pixel (&pixels)[kCount]) {
  with_mixing(op, [&](const auto& mixed) {
    for (Pixel& p : pixels) p = mixed(p);
  });
}

}  // namespace gpuaug
