// warp on the CPU: rows of the result in parallel.
#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "../warp.h"
#include "clones.h"

namespace gpuaug {
namespace {

// One row of one sample.
template <Interpolation kInterpolation, typename T>
GPUAUG_CLONES void warp_row(const WarpShape& shape, const T* x, const float* matrix, T* out, int32_t row) {
  using A = accumulate_t<T>;
  constexpr int taps = kTaps<kInterpolation>;
  const SamplingRule& rule = shape.rule;
  for (int32_t column = 0; column < shape.out_w; ++column) {
    T* to = out + column * shape.out.x;
    const SourcePoint p = source_point(matrix, shape.matrix_size == 9, column, row, rule);
    if (p.filled) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        to[c * shape.out.c] = as_pixel<T, A>(static_cast<A>(shape.fill_of(c)), rule.border);
      }
      continue;
    }
    const auto ys = axis_sample<kInterpolation>(p.y, p.cy, rule.height, rule.border);
    const auto xs = axis_sample<kInterpolation>(p.x, p.cx, rule.width, rule.border);
    int64_t offset[taps][taps];
    for (int r = 0; r < taps; ++r) {
      for (int c = 0; c < taps; ++c) {
        offset[r][c] = ys.at[r] < 0 || xs.at[c] < 0 ? -1 : ys.at[r] * shape.in.y + xs.at[c] * shape.in.x;
      }
    }
    for (int64_t channel = 0; channel < shape.channels; ++channel) {
      const T* from = x + channel * shape.in.c;
      const A fill = static_cast<A>(shape.fill_of(channel));
      const auto load = [&](int r, int c) { return offset[r][c] < 0 ? fill : static_cast<A>(from[offset[r][c]]); };
      to[channel * shape.out.c] = as_pixel<T, A>(interpolate<kInterpolation, A>(load, ys.t, xs.t, rule.border), rule.border);
    }
  }
}

// The gradient of some channels of one sample.
template <Interpolation kInterpolation, typename T>
GPUAUG_CLONES void spread(const WarpShape& shape, const T* grad, const float* matrix, accumulate_t<T>* summed,
                          int64_t begin, int64_t end) {
  using A = accumulate_t<T>;
  constexpr int taps = kTaps<kInterpolation>;
  const SamplingRule& rule = shape.rule;
  for (int32_t row = 0; row < shape.out_h; ++row) {
    for (int32_t column = 0; column < shape.out_w; ++column) {
      const SourcePoint p = source_point(matrix, shape.matrix_size == 9, column, row, rule);
      if (p.filled) continue;
      const auto ys = axis_sample<kInterpolation>(p.y, p.cy, rule.height, rule.border);
      const auto xs = axis_sample<kInterpolation>(p.x, p.cx, rule.width, rule.border);
      float wy[taps], wx[taps];
      axis_weights<kInterpolation>(ys.t, rule.border, wy);
      axis_weights<kInterpolation>(xs.t, rule.border, wx);
      for (int64_t channel = begin; channel < end; ++channel) {
        const A g = static_cast<A>(grad[channel * shape.out.c + row * shape.out.y + column * shape.out.x]);
        A* to = summed + channel * shape.in.c;
        for (int r = 0; r < taps; ++r) {
          for (int c = 0; c < taps; ++c) {
            if (ys.at[r] < 0 || xs.at[c] < 0) continue;
            to[ys.at[r] * shape.in.y + xs.at[c] * shape.in.x] += static_cast<A>(wy[r] * wx[c]) * g;
          }
        }
      }
    }
  }
}

template <typename Body>
void dispatch_image(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Byte: return body(uint8_t{});
    case ScalarType::Float: return body(float{});
    case ScalarType::Double: return body(double{});
    case ScalarType::Half: return body(torch::headeronly::Half{});
    case ScalarType::BFloat16: return body(torch::headeronly::BFloat16{});
    default: fail("warp: x must be torch.uint8 or a floating tensor, got ", dtype_name(type));
  }
}

Tensor warp(const Tensor& x, const Tensor& matrix, int64_t out_h, int64_t out_w, int64_t interpolation, int64_t border,
            std::vector<double> fill, bool half_pixel) {
  const WarpCall call = prepare_warp(x, matrix, out_h, out_w, interpolation, border, fill, half_pixel);
  const WarpShape& shape = call.shape;
  dispatch_image(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    dispatch_interpolation(call.interpolation, [&](auto kind) {
      const T* in = static_cast<const T*>(call.x.const_data_ptr());
      T* out = static_cast<T*>(call.out.mutable_data_ptr());
      const float* matrices = call.matrix.const_data_ptr<float>();
      const int64_t grain = std::max<int64_t>(1, 4096 / shape.out_w);
      torch::stable::parallel_for(0, shape.samples * shape.out_h, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t sample = i / shape.out_h;
          const int32_t row = static_cast<int32_t>(i - sample * shape.out_h);
          warp_row<decltype(kind)::value, T>(shape, in + sample * shape.in.n, matrices + sample * shape.matrix_size,
                                             out + sample * shape.out.n + row * shape.out.y, row);
        }
      });
    });
  });
  return call.out;
}

Tensor warp_backward(const Tensor& grad, const Tensor& matrix, int64_t height, int64_t width, int64_t interpolation,
                     int64_t border, bool half_pixel, bool channels_last) {
  const WarpBackwardCall call =
      prepare_warp_backward(grad, matrix, height, width, interpolation, border, half_pixel, channels_last);
  const WarpShape& shape = call.shape;
  dispatch_image(grad.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, uint8_t>) {
      dispatch_interpolation(call.interpolation, [&](auto kind) {
        using A = accumulate_t<T>;
        const T* from = static_cast<const T*>(call.grad.const_data_ptr());
        A* to = static_cast<A*>(call.summed.mutable_data_ptr());
        const float* matrices = call.matrix.const_data_ptr<float>();
        constexpr int64_t kChannels = 8;  // of a task: no two tasks add to the same place
        const int64_t groups = (shape.channels + kChannels - 1) / kChannels;
        torch::stable::parallel_for(0, shape.samples * groups, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t sample = i / groups, first = (i - sample * groups) * kChannels;
            spread<decltype(kind)::value, T>(shape, from + sample * shape.out.n, matrices + sample * shape.matrix_size,
                                             to + sample * shape.in.n, first,
                                             std::min(first + kChannels, shape.channels));
          }
        });
      });
    } else {
      fail("warp: grad must be a floating tensor, got torch.uint8");
    }
  });
  return call.result();
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("warp", TORCH_BOX(&gpuaug::warp));
  m.impl("warp_backward", TORCH_BOX(&gpuaug::warp_backward));
}
