// Rows of images that records may mirror.
#pragma once

#include <vector>

#include "../geometry.h"

namespace gpuaug {

// Rows of an image from left to right, mirrored ones through a buffer.
class ImageRows {
 public:
  explicit ImageRows(const Image& image) : image_(image) {}

  int bytes() const { return kChannels * image_.width; }

  const uint8_t* operator()(int y, std::vector<uint8_t>& buffer) const {
    const uint8_t* row = image_.data + static_cast<int64_t>(image_.mirror_y ? image_.height - 1 - y : y) * bytes();
    if (!image_.mirror_x) return row;
    buffer.resize(bytes());
    for (int i = 0; i < bytes(); i += kChannels) {
      for (int c = 0; c < kChannels; ++c) buffer[i + c] = row[bytes() - kChannels - i + c];
    }
    return buffer.data();
  }

 private:
  const Image image_;
};

}  // namespace gpuaug
