// Images that differ in size, and those of one buffer.
#pragma once

#include "geometry.h"

namespace gpuaug {

// Whether an image lies inside of the data. One that does not is never read; its output is 0.
GPUAUG_HOST_DEVICE bool inside_of_data(int64_t offset, int height, int width, int64_t bytes) {
  if (height < 1 || width < 1 || offset < 0) return false;
  // height * width < 2**62, and three times as much is not computed unless it is small enough.
  const int64_t pixels = static_cast<int64_t>(height) * width;
  return pixels <= bytes && kChannels * pixels <= bytes - offset;
}

struct RaggedImage {
  const uint8_t* data;
  int height, width;
};

// One buffer; image i begins at offsets[i] and has sizes[2 i] rows and sizes[2 i + 1] columns. What does not lie in the
// buffer is an empty image.
struct PackedImages {
  const uint8_t* data;
  const int64_t* offsets;
  const int32_t* sizes;
  int64_t bytes;

  GPUAUG_HOST_DEVICE RaggedImage at(int64_t i) const {
    const int64_t offset = offsets[i];
    const int height = sizes[2 * i], width = sizes[2 * i + 1];
    const bool fits = height > 0 && width > 0 && height <= kLongestSide && width <= kLongestSide && offset >= 0 &&
                      offset <= bytes && int64_t{3} * height * width <= bytes - offset;
    return fits ? RaggedImage{data + offset, height, width} : RaggedImage{data, 0, 0};
  }
};

}  // namespace gpuaug
