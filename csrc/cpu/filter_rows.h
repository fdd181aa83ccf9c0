// Filters on the CPU, a row after the other. Channels lie side by side, so that neighbours are three bytes apart, and sums of
// whole numbers run along the bytes of a row in vectors.
#pragma once

#include <algorithm>
#include <vector>

#include "../program.h"
#include "image_rows.h"

namespace gpuaug {

// Working memory of a filter's row.
struct FilterRow {
  std::vector<uint8_t> result, buffer[3];
  std::vector<int> sum;
};

// What the sources of this file have in common: a row is made as a whole, then asked for by the pixel.
class FilteredRows {
 public:
  FilteredRows(const Image& image, FilterRow& row) : image_(image), rows_(image), row_(row) { row.result.resize(rows_.bytes()); }

  Pixel operator()(int x, int) const {
    const uint8_t* p = row_.result.data() + kChannels * x;
    return {p[0], p[1], p[2]};
  }

 protected:
  const Image image_;
  const ImageRows rows_;
  FilterRow& row_;
};

class SharpnessRows : public FilteredRows {
 public:
  SharpnessRows(const Sharpness& filter, FilterRow& row) : FilteredRows(filter.image, row), rest_(filter.rest) {}

  void begin_row(int y) {
    const int bytes = rows_.bytes();
    const uint8_t* const here = rows_(y, row_.buffer[1]);
    uint8_t* const out = row_.result.data();
    std::copy_n(here, bytes, out);
    if (y == 0 || y == image_.height - 1) return;
    const uint8_t *const above = rows_(y - 1, row_.buffer[0]), *const below = rows_(y + 1, row_.buffer[2]);
    const float rest = rest_;
    for (int i = kChannels; i < bytes - kChannels; ++i) {
      int sum = 0;
      for (const uint8_t* row : {above, here, below}) sum += row[i - kChannels] + row[i] + row[i + kChannels];
      out[i] = static_cast<uint8_t>(Sharpness::channel(sum, here[i], rest));
    }
  }

 private:
  const float rest_;
};

template <bool kVertical>
class BlurRows : public FilteredRows {
 public:
  BlurRows(const Blur<kVertical>& filter, FilterRow& row) : FilteredRows(filter.image, row), kernel_(*filter.kernel) {
    row.sum.resize(rows_.bytes());
  }

  void begin_row(int y) {
    const int bytes = rows_.bytes();
    int* const sum = row_.sum.data();
    const uint8_t* const here = rows_(y, row_.buffer[0]);
    const int first = kernel_.weight[0];
    for (int i = 0; i < bytes; ++i) sum[i] = first * here[i] + 32768;
    if constexpr (kVertical) {
      for (int k = 1; k <= kernel_.radius; ++k) {
        add(rows_(border_index(y - k, image_.height, kReflect101), row_.buffer[1]),
            rows_(border_index(y + k, image_.height, kReflect101), row_.buffer[2]), kernel_.weight[k]);
      }
    } else {
      const uint8_t* const middle = padded(here) + kChannels * kernel_.radius;
      for (int k = 1; k <= kernel_.radius; ++k) add(middle - kChannels * k, middle + kChannels * k, kernel_.weight[k]);
    }
    uint8_t* const out = row_.result.data();
    for (int i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(sum[i] >> 16);
  }

 private:
  void add(const uint8_t* one, const uint8_t* other, int weight) {
    int* const sum = row_.sum.data();
    const int bytes = rows_.bytes();
    for (int i = 0; i < bytes; ++i) sum[i] += weight * (one[i] + other[i]);
  }

  // The row with what the border puts before and behind it.
  const uint8_t* padded(const uint8_t* here) {
    const int width = image_.width, radius = kernel_.radius;
    std::vector<uint8_t>& wide = row_.buffer[1];
    wide.resize(static_cast<size_t>(kChannels) * (width + 2 * radius));
    std::copy_n(here, rows_.bytes(), wide.data() + kChannels * radius);
    for (int k = 1; k <= radius; ++k) {
      std::copy_n(here + kChannels * border_index(-k, width, kReflect101), kChannels, wide.data() + kChannels * (radius - k));
      std::copy_n(here + kChannels * border_index(width - 1 + k, width, kReflect101), kChannels,
                  wide.data() + kChannels * (radius + width - 1 + k));
    }
    return wide.data();
  }

  const BlurKernel& kernel_;
};

}  // namespace gpuaug
