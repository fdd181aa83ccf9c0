// image_sizes, image_sizes_packed: height and width of JPEGs and PNGs from their headers, many files at a time, or in
// memory.
//
// A random crop needs the image's size before the image is decoded. A header is a few hundred bytes near the start of
// the file, so this is one or two small reads a file; several threads hide the latency of a disk or a network.
#include <fcntl.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "../check.h"
#include "ranges.h"

namespace gpuaug {
namespace {

struct Size {
  int32_t height = 0, width = 0;  // 0 where it could not be told
};

// Bytes of a file at any offset, a block at a time.
class FileHeader {
 public:
  explicit FileHeader(const char* path) : file_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~FileHeader() {
    if (file_ >= 0) close(file_);
  }
  FileHeader(const FileHeader&) = delete;
  FileHeader& operator=(const FileHeader&) = delete;

  // `count` (at most kBlock) bytes at `offset`, or nullptr past the end of the file.
  const uint8_t* at(int64_t offset, int64_t count) {
    if (offset < begin_ || offset + count > end_) {
      if (file_ < 0) return nullptr;
      const ssize_t got = pread(file_, block_, kBlock, offset);
      begin_ = offset;
      end_ = offset + std::max<ssize_t>(got, 0);
      if (offset + count > end_) return nullptr;
    }
    return block_ + (offset - begin_);
  }

 private:
  static constexpr int64_t kBlock = 4096;
  int file_;
  int64_t begin_ = 0, end_ = 0;
  uint8_t block_[kBlock];
};

// The same of an image in memory.
class MemoryHeader {
 public:
  MemoryHeader(const uint8_t* data, int64_t size) : data_(data), size_(size) {}
  const uint8_t* at(int64_t offset, int64_t count) const {
    return offset + count <= size_ ? data_ + offset : nullptr;
  }

 private:
  const uint8_t* data_;
  int64_t size_;
};

uint32_t big16(const uint8_t* p) { return static_cast<uint32_t>(p[0]) << 8 | p[1]; }
uint32_t big32(const uint8_t* p) { return big16(p) << 16 | big16(p + 2); }

// The orientation (1..8) that an Exif segment's first directory holds; 1 if none. `offset` is that of the TIFF header.
template <typename Header>
int exif_orientation(Header& file, int64_t offset, int64_t end) {
  const uint8_t* head = file.at(offset, 8);
  if (!head) return 1;
  const bool little = head[0] == 'I';
  const auto u16 = [&](const uint8_t* p) { return little ? static_cast<uint32_t>(p[1]) << 8 | p[0] : big16(p); };
  const auto u32 = [&](const uint8_t* p) { return little ? u16(p + 2) << 16 | u16(p) : big32(p); };
  const int64_t directory = offset + u32(head + 4);
  const uint8_t* count = directory + 2 <= end ? file.at(directory, 2) : nullptr;
  const int64_t entries = count ? u16(count) : 0;
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t where = directory + 2 + 12 * i;
    const uint8_t* entry = where + 12 <= end ? file.at(where, 12) : nullptr;
    if (!entry) break;
    if (u16(entry) == 0x0112) {
      const uint32_t value = u16(entry + 8);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

template <typename Header>
Size jpeg_size(Header& file, bool orient) {
  int orientation = 1;
  int64_t offset = 2;
  while (true) {
    const uint8_t* p = file.at(offset, 2);
    if (!p || p[0] != 0xFF) return {};
    const uint8_t marker = p[1];
    if (marker == 0xFF) {  // fill byte
      ++offset;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {  // stands alone
      offset += 2;
      continue;
    }
    if (marker == 0xD9 || marker == 0xDA) return {};  // the picture begins, or ends, without a frame header
    const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
    p = file.at(offset, frame ? 9 : 4);
    if (!p) return {};
    const int64_t length = big16(p + 2);
    if (length < 2) return {};
    if (frame) {
      Size size{static_cast<int32_t>(big16(p + 5)), static_cast<int32_t>(big16(p + 7))};
      if (orientation >= 5) std::swap(size.height, size.width);
      return size;
    }
    if (orient && marker == 0xE1 && length >= 16) {
      const uint8_t* body = file.at(offset + 4, 6);
      if (body && std::memcmp(body, "Exif\0\0", 6) == 0) {
        orientation = exif_orientation(file, offset + 10, offset + 2 + length);
      }
    }
    offset += 2 + length;
  }
}

template <typename Header>
Size header_size(Header& file, bool orient) {
  const uint8_t* p = file.at(0, 24);
  if (!p) return {};
  if (p[0] == 0xFF && p[1] == 0xD8) return jpeg_size(file, orient);
  // A PNG may carry Exif data anywhere before its end: not told from its header alone.
  if (!orient && std::memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0 && std::memcmp(p + 12, "IHDR", 4) == 0) {
    const uint32_t width = big32(p + 16), height = big32(p + 20);
    if (width <= INT32_MAX && height <= INT32_MAX) return {static_cast<int32_t>(height), static_cast<int32_t>(width)};
  }
  return {};
}

Tensor image_sizes(const Tensor& paths, bool exif_orientation, int64_t threads) {
  constexpr const char* kOp = "image_sizes";
  check_strided(kOp, "paths", paths);
  check_dtype(kOp, "paths", paths, ScalarType::Byte);
  if (paths.dim() != 2) fail(kOp, ": paths must have shape (N, L), got ", shape_name(paths));
  if (threads < 1) fail(kOp, ": threads must be at least 1, got ", threads);
  const Tensor rows = torch::stable::contiguous(paths);
  const int64_t count = rows.size(0), length = rows.size(1);
  const char* names = reinterpret_cast<const char*>(rows.const_data_ptr<uint8_t>());
  for (int64_t i = 0; i < count; ++i) {
    if (length == 0 || !std::memchr(names + i * length, 0, static_cast<size_t>(length))) {
      fail(kOp, ": every row of paths must end in a zero byte, row ", i, " does not");
    }
  }
  Tensor out = torch::stable::new_empty(rows, {count, 2}, ScalarType::Int);
  Size* sizes = reinterpret_cast<Size*>(out.mutable_data_ptr<int32_t>());
  const int64_t workers = std::max<int64_t>(1, std::min(threads, (count + 7) / 8));
  const auto work = [&](int64_t first) {
    for (int64_t i = first; i < count; i += workers) {
      FileHeader file(names + i * length);
      sizes[i] = header_size(file, exif_orientation);
    }
  };
  std::vector<std::thread> pool;
  for (int64_t w = 1; w < workers; ++w) pool.emplace_back(work, w);
  work(0);
  for (std::thread& thread : pool) thread.join();
  return out;
}

Tensor image_sizes_packed(const Tensor& data, const Tensor& start, const Tensor& length, bool exif_orientation) {
  const Ranges of("image_sizes_packed", "data", data, "start", start, length);
  Tensor out = torch::stable::new_empty(data, {of.count, 2}, ScalarType::Int);
  Size* sizes = reinterpret_cast<Size*>(out.mutable_data_ptr<int32_t>());
  const uint8_t* bytes = data.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < of.count; ++i) {
    MemoryHeader image(bytes + of.begin[i], of.length[i]);
    sizes[i] = header_size(image, exif_orientation);
  }
  return out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("image_sizes", TORCH_BOX(&gpuaug::image_sizes));
  m.impl("image_sizes_packed", TORCH_BOX(&gpuaug::image_sizes_packed));
}
