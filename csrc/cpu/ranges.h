// Ranges of a byte tensor, checked to lie inside of it.
#pragma once

#include <torch/csrc/stable/ops.h>

#include "../check.h"

namespace gpuaug {

inline void check_positions(const char* op, const char* argument, const Tensor& t, int64_t count) {
  check_strided(op, argument, t);
  check_dtype(op, argument, t, ScalarType::Long);
  if (t.dim() != 1 || t.size(0) != count) {
    fail(op, ": ", argument, " must have shape (", count, ",), got ", shape_name(t));
  }
}

// `length[i]` bytes from `begin[i]`, for each of `count` rows.
struct Ranges {
  Ranges(const char* op, const char* data_name, const Tensor& data, const char* start_name, const Tensor& start,
         const Tensor& lengths)
      : starts(torch::stable::contiguous(start)), sizes(torch::stable::contiguous(lengths)) {
    check_strided(op, data_name, data);
    check_dtype(op, data_name, data, ScalarType::Byte);
    if (data.dim() != 1 || !data.is_contiguous()) {
      fail(op, ": ", data_name, " must be contiguous of shape (B,), got ", shape_name(data));
    }
    count = start.dim() == 1 ? start.size(0) : -1;
    check_positions(op, start_name, start, count);
    check_positions(op, "length", lengths, count);
    begin = starts.const_data_ptr<int64_t>();
    length = sizes.const_data_ptr<int64_t>();
    const int64_t end = data.size(0);
    for (int64_t i = 0; i < count; ++i) {
      if (begin[i] < 0 || length[i] < 0 || begin[i] > end || length[i] > end - begin[i]) {
        fail(op, ": row ", i, " must lie in the ", end, " bytes of ", data_name, ", got ", length[i], " from ", begin[i]);
      }
    }
  }

  Tensor starts, sizes;  // keep what `begin` and `length` point to
  int64_t count = 0;
  const int64_t* begin = nullptr;
  const int64_t* length = nullptr;
};

}  // namespace gpuaug
