// Input checks of the native ops. Each failure is one line: op, argument, rule, value received.
//
// The Python wrappers check first and raise ValueError; these guard the kernels against direct calls of torch.ops.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "fail.h"

namespace gpuaug {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline std::string dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return "torch.uint8";
    case ScalarType::Bool: return "torch.bool";
    case ScalarType::Float: return "torch.float32";
    case ScalarType::Half: return "torch.float16";
    case ScalarType::BFloat16: return "torch.bfloat16";
    case ScalarType::Double: return "torch.float64";
    case ScalarType::Int: return "torch.int32";
    case ScalarType::Long: return "torch.int64";
    default: return std::string("torch.") + torch::headeronly::toString(type);
  }
}

inline std::string shape_name(const Tensor& t) {
  std::ostringstream text;
  text << '(';
  for (int64_t d = 0; d < t.dim(); ++d) text << (d ? ", " : "") << t.size(d);
  text << (t.dim() == 1 ? ",)" : ")");
  return text.str();
}

inline std::string device_name(const Tensor& t) {
  if (t.is_cpu()) return "cpu";
  return (t.is_cuda() ? "cuda:" : "device:") + std::to_string(t.get_device_index());
}

inline void check_dtype(const char* op, const char* argument, const Tensor& t, ScalarType expected) {
  if (t.scalar_type() != expected) {
    fail(op, ": ", argument, " must be ", dtype_name(expected), ", got ", dtype_name(t.scalar_type()));
  }
}

inline void check_strided(const char* op, const char* argument, const Tensor& t) {
  if (t.layout() != torch::headeronly::Layout::Strided) fail(op, ": ", argument, " must be a dense tensor");
}

inline void check_same_device(const char* op, const char* argument, const Tensor& t, const Tensor& x) {
  if (t.device() != x.device()) {
    fail(op, ": ", argument, " must be on the device of x (", device_name(x), "), got ", device_name(t));
  }
}

// A batch of RGB images in NHWC order.
inline void check_nhwc_rgb(const char* op, const Tensor& x) {
  check_strided(op, "x", x);
  check_dtype(op, "x", x, ScalarType::Byte);
  if (x.dim() != 4 || x.size(3) != 3) fail(op, ": x must have shape (N, H, W, 3), got ", shape_name(x));
}

// One value for each of the n samples.
inline void check_per_sample(const char* op, const char* argument, const Tensor& t, const Tensor& x, ScalarType dtype) {
  check_strided(op, argument, t);
  check_dtype(op, argument, t, dtype);
  if (t.dim() != 1 || t.size(0) != x.size(0)) {
    fail(op, ": ", argument, " must have shape (", x.size(0), ",), one value a sample, got ", shape_name(t));
  }
  check_same_device(op, argument, t, x);
}

}  // namespace gpuaug
