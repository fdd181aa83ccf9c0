// read_ranges, crc32c and file_states: records of data files, many at a time, in plain threads.
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "../check.h"
#include "ranges.h"

namespace gpuaug {
namespace {

// Calls work(first, last) on `workers` runs of 0..count.
template <typename Work>
void in_threads(int64_t count, int64_t workers, const Work& work) {
  workers = std::max<int64_t>(1, std::min(workers, count));
  std::vector<std::thread> pool;
  for (int64_t w = 1; w < workers; ++w) pool.emplace_back(work, count * w / workers, count * (w + 1) / workers);
  work(0, count / workers);
  for (std::thread& thread : pool) thread.join();
}

// Bytes read into `out`; fewer than `length` at the end of the file; -errno where it cannot be read.
int64_t read_all(int file, uint8_t* out, int64_t length, int64_t offset) {
  int64_t done = 0;
  while (done < length) {
    const ssize_t got = pread(file, out + done, static_cast<size_t>(length - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    if (got == 0) break;
    done += got;
  }
  return done;
}

// File names, a row each.
struct Names {
  Names(const char* op, const Tensor& paths) : rows(torch::stable::contiguous(paths)) {
    check_strided(op, "paths", paths);
    check_dtype(op, "paths", paths, ScalarType::Byte);
    if (paths.dim() != 2) fail(op, ": paths must have shape (F, L), got ", shape_name(paths));
    count = rows.size(0);
    width = rows.size(1);
    first = reinterpret_cast<const char*>(rows.const_data_ptr<uint8_t>());
    for (int64_t i = 0; i < count; ++i) {
      if (width == 0 || !std::memchr(first + i * width, 0, static_cast<size_t>(width))) {
        fail(op, ": every row of paths must end in a zero byte, row ", i, " does not");
      }
    }
  }

  const char* operator[](int64_t i) const { return first + i * width; }

  Tensor rows;
  int64_t count = 0, width = 0;
  const char* first = nullptr;
};

Tensor read_ranges(Tensor out, const Tensor& start, const Tensor& paths, const Tensor& file, const Tensor& offset,
                   const Tensor& length, int64_t threads) {
  constexpr const char* kOp = "read_ranges";
  const Ranges to(kOp, "out", out, "start", start, length);
  const Names names(kOp, paths);
  check_positions(kOp, "file", file, to.count);
  check_positions(kOp, "offset", offset, to.count);
  if (threads < 1) fail(kOp, ": threads must be at least 1, got ", threads);
  const Tensor files = torch::stable::contiguous(file), offsets = torch::stable::contiguous(offset);
  const int64_t* of = files.const_data_ptr<int64_t>();
  const int64_t* at = offsets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < to.count; ++i) {
    if (of[i] < 0 || of[i] >= names.count || at[i] < 0) fail(kOp, ": row ", i, " names no file or a negative offset");
  }
  Tensor result = torch::stable::new_empty(start, {to.count}, ScalarType::Long);
  int64_t* got = result.mutable_data_ptr<int64_t>();
  uint8_t* data = out.mutable_data_ptr<uint8_t>();
  // A file's records together, so that it is opened once (by each thread that shares it).
  std::vector<int64_t> order(static_cast<size_t>(to.count));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return of[a] != of[b] ? of[a] < of[b] : at[a] < at[b];
  });
  in_threads(to.count, threads, [&](int64_t first, int64_t last) {
    int descriptor = -1, reason = 0;
    int64_t opened = -1;
    for (int64_t k = first; k < last; ++k) {
      const int64_t i = order[static_cast<size_t>(k)];
      if (of[i] != opened) {
        if (descriptor >= 0) close(descriptor);
        descriptor = open(names[of[i]], O_RDONLY | O_CLOEXEC);
        reason = descriptor < 0 ? errno : 0;
        opened = of[i];
      }
      got[i] = descriptor < 0 ? -reason : read_all(descriptor, data + to.begin[i], to.length[i], at[i]);
    }
    if (descriptor >= 0) close(descriptor);
  });
  return result;
}

Tensor file_states(const Tensor& paths) {
  const Names names("file_states", paths);
  Tensor result = torch::stable::new_empty(paths, {names.count, 2}, ScalarType::Long);
  int64_t* state = result.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < names.count; ++i, state += 2) {
    struct stat found;
    const bool there = stat(names[i], &found) == 0;
    state[0] = there ? static_cast<int64_t>(found.st_size) : -errno;
    state[1] = there ? found.st_mtim.tv_sec * int64_t{1000000000} + found.st_mtim.tv_nsec : 0;
  }
  return result;
}

// ---- CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) ----------------------------------------------------------

using Table = std::array<std::array<uint32_t, 256>, 8>;

Table make_table() {
  Table table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    table[0][byte] = crc;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k) table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
  }
  return table;
}

uint32_t crc_by_table(const uint8_t* p, int64_t length) {
  static const Table table = make_table();
  uint32_t crc = ~0u;
  for (; length >= 8; length -= 8, p += 8) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + 4, 4);
    low ^= crc;
    crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
          table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^ table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
  }
  for (; length > 0; --length, ++p) crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_by_cpu(const uint8_t* p, int64_t length) {
  uint64_t crc = 0xffffffffu;
  for (; length >= 8; length -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  uint32_t rest = static_cast<uint32_t>(crc);
  for (; length > 0; --length, ++p) rest = __builtin_ia32_crc32qi(rest, *p);
  return ~rest;
}
#endif

uint32_t crc_of(const uint8_t* p, int64_t length) {
#if defined(__x86_64__)
  static const bool by_cpu = __builtin_cpu_supports("sse4.2");
  if (by_cpu) return crc_by_cpu(p, length);
#endif
  return crc_by_table(p, length);
}

Tensor crc32c(const Tensor& data, const Tensor& start, const Tensor& length, int64_t threads) {
  constexpr const char* kOp = "crc32c";
  const Ranges of(kOp, "data", data, "start", start, length);
  if (threads < 1) fail(kOp, ": threads must be at least 1, got ", threads);
  Tensor result = torch::stable::new_empty(start, {of.count}, ScalarType::Long);
  int64_t* crc = result.mutable_data_ptr<int64_t>();
  const uint8_t* bytes = data.const_data_ptr<uint8_t>();
  in_threads(of.count, threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) crc[i] = crc_of(bytes + of.begin[i], of.length[i]);
  });
  return result;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("read_ranges", TORCH_BOX(&gpuaug::read_ranges));
  m.impl("file_states", TORCH_BOX(&gpuaug::file_states));
  m.impl("crc32c", TORCH_BOX(&gpuaug::crc32c));
}
