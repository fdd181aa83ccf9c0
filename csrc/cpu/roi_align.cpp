// roi_align on the CPU. A region's bins become lists of (pixel, weight), shared by all channels.
//
// The grid of samples is separable, so each axis merges its samples first: neighbouring samples share pixels, and a bin of
// 7 x 7 samples one pixel apart touches 8 x 8 pixels instead of 196.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "../roi_align.h"
#include "clones.h"

namespace gpuaug {
namespace {

template <typename T>
struct Weighted {
  int32_t at;
  T weight;
};

// The pixels of each bin along one axis, merged, in rising order.
template <typename T>
struct AxisTaps {
  std::vector<Weighted<T>> taps;
  std::vector<int64_t> first;  // of each bin, and the end

  void fill(const RoiAxis<T>& axis, int32_t bins, int32_t size) {
    taps.clear();
    first.assign(1, 0);
    for (int32_t b = 0; b < bins; ++b) {
      int32_t begin, end;
      axis.range(b, size, begin, end);
      for (int32_t i = begin; i < end; ++i) {
        AxisTap<T> tap;
        if (!axis_tap(axis.sample(b, i), size, tap)) continue;
        add(tap.low, tap.low_weight);
        add(tap.high, tap.high_weight);
      }
      first.push_back(static_cast<int64_t>(taps.size()));
    }
  }

 private:
  void add(int32_t at, T weight) {
    for (int64_t i = static_cast<int64_t>(taps.size()) - 1; i >= first.back() && i + 3 > static_cast<int64_t>(taps.size());
         --i) {
      if (taps[i].at == at) {
        taps[i].weight += weight;
        return;
      }
    }
    taps.push_back({at, weight});
  }
};

// The pixels of each bin, bins in row order.
template <typename T>
struct BinTaps {
  AxisTaps<T> y, x;
  std::vector<int64_t> pixel;
  std::vector<T> weight;
  std::vector<int64_t> first;

  void fill(const Roi<T>& roi, const RoiOptions& options, int32_t height, int32_t width) {
    y.fill(roi.y, options.out_h, height);
    x.fill(roi.x, options.out_w, width);
    pixel.clear();
    weight.clear();
    first.assign(1, 0);
    for (int32_t ph = 0; ph < options.out_h; ++ph) {
      for (int32_t pw = 0; pw < options.out_w; ++pw) {
        for (int64_t r = y.first[ph]; r < y.first[ph + 1]; ++r) {
          for (int64_t c = x.first[pw]; c < x.first[pw + 1]; ++c) {
            pixel.push_back(int64_t{y.taps[r].at} * width + x.taps[c].at);
            weight.push_back(y.taps[r].weight * x.taps[c].weight * roi.mean_factor);
          }
        }
        first.push_back(static_cast<int64_t>(pixel.size()));
      }
    }
  }

  int64_t bins() const { return static_cast<int64_t>(first.size()) - 1; }
};

template <typename T>
Roi<T> checked_roi(const Tensor& rois, int64_t k, int64_t images, const RoiOptions& options) {
  const T* values = rois.const_data_ptr<T>() + 5 * k;
  const Roi<T> roi = make_roi(values, images, options);
  if (!roi.good) {
    fail("roi_align: rois must be finite and name an image in 0..", images - 1, ", got rois[", k, "] = (", values[0], ", ",
         values[1], ", ", values[2], ", ", values[3], ", ", values[4], ")");
  }
  return roi;
}

constexpr int64_t kChannelsAtOnce = 8;

template <typename T, typename A>
GPUAUG_CLONES void pool_planes(const BinTaps<A>& taps, const T* x, int64_t plane, int64_t channels, T* out) {
  const int64_t bins = taps.bins();
  int64_t c = 0;
  for (; c + kChannelsAtOnce <= channels; c += kChannelsAtOnce) {
    for (int64_t b = 0; b < bins; ++b) {
      A sum[kChannelsAtOnce] = {};
      for (int64_t t = taps.first[b]; t < taps.first[b + 1]; ++t) {
        const T* from = x + c * plane + taps.pixel[t];
        const A weight = taps.weight[t];
        for (int64_t k = 0; k < kChannelsAtOnce; ++k) sum[k] += weight * static_cast<A>(from[k * plane]);
      }
      for (int64_t k = 0; k < kChannelsAtOnce; ++k) out[(c + k) * bins + b] = static_cast<T>(sum[k]);
    }
  }
  for (; c < channels; ++c) {
    for (int64_t b = 0; b < bins; ++b) {
      A sum = 0;
      for (int64_t t = taps.first[b]; t < taps.first[b + 1]; ++t) {
        sum += taps.weight[t] * static_cast<A>(x[c * plane + taps.pixel[t]]);
      }
      out[c * bins + b] = static_cast<T>(sum);
    }
  }
}

template <typename T, typename A>
GPUAUG_CLONES void pool_pixels(const BinTaps<A>& taps, const T* x, int64_t channels, T* out, A* sum) {
  for (int64_t b = 0; b < taps.bins(); ++b) {
    std::fill_n(sum, channels, A{0});
    for (int64_t t = taps.first[b]; t < taps.first[b + 1]; ++t) {
      const T* from = x + taps.pixel[t] * channels;
      const A weight = taps.weight[t];
      for (int64_t c = 0; c < channels; ++c) sum[c] += weight * static_cast<A>(from[c]);
    }
    for (int64_t c = 0; c < channels; ++c) out[b * channels + c] = static_cast<T>(sum[c]);
  }
}

template <typename T, typename A>
GPUAUG_CLONES void spread_pixels(const BinTaps<A>& taps, const T* grad, int64_t channels, int64_t begin, int64_t end,
                                 A* summed) {
  for (int64_t b = 0; b < taps.bins(); ++b) {
    const T* from = grad + b * channels;
    for (int64_t t = taps.first[b]; t < taps.first[b + 1]; ++t) {
      A* to = summed + taps.pixel[t] * channels;
      const A weight = taps.weight[t];
      for (int64_t c = begin; c < end; ++c) to[c] += weight * static_cast<A>(from[c]);
    }
  }
}

template <typename T>
void pool(const RoiAlignCall& call) {
  using A = accumulate_t<T>;
  const T* x = static_cast<const T*>(call.x.const_data_ptr());
  T* out = static_cast<T*>(call.out.mutable_data_ptr());
  const int64_t plane = int64_t{call.height} * call.width;
  const int64_t bins = int64_t{call.options.out_h} * call.options.out_w;
  for (int64_t k = 0; k < call.count; ++k) checked_roi<A>(call.rois, k, call.images, call.options);
  torch::stable::parallel_for(0, call.count, 1, [&](int64_t begin, int64_t end) {
    BinTaps<A> taps;
    std::vector<A> sum(call.channels);
    for (int64_t k = begin; k < end; ++k) {
      const Roi<A> roi = make_roi(call.rois.const_data_ptr<A>() + 5 * k, call.images, call.options);
      taps.fill(roi, call.options, call.height, call.width);
      const T* image = x + roi.batch * call.channels * plane;
      T* region = out + k * call.channels * bins;
      if (call.channels_last) {
        pool_pixels(taps, image, call.channels, region, sum.data());
      } else {
        pool_planes(taps, image, plane, call.channels, region);
      }
    }
  });
}

// Threads take channels, so that no two add to the same place and the order of additions is fixed.
template <typename T>
void spread(const RoiAlignBackwardCall& call) {
  using A = accumulate_t<T>;
  const T* grad = static_cast<const T*>(call.grad.const_data_ptr());
  A* summed = static_cast<A*>(call.summed.mutable_data_ptr());
  const int64_t plane = int64_t{call.height} * call.width;
  const int64_t bins = int64_t{call.options.out_h} * call.options.out_w;
  for (int64_t k = 0; k < call.count; ++k) checked_roi<A>(call.rois, k, call.images, call.options);
  const int64_t grain = std::max<int64_t>(16, (call.channels + 15) / 16);  // each task lists all taps again
  torch::stable::parallel_for(0, call.channels, grain, [&](int64_t begin, int64_t end) {
    BinTaps<A> taps;
    for (int64_t k = 0; k < call.count; ++k) {
      const Roi<A> roi = make_roi(call.rois.const_data_ptr<A>() + 5 * k, call.images, call.options);
      taps.fill(roi, call.options, call.height, call.width);
      const T* region = grad + k * call.channels * bins;
      A* image = summed + roi.batch * call.channels * plane;
      if (call.channels_last) {
        spread_pixels(taps, region, call.channels, begin, end, image);
        continue;
      }
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t b = 0; b < bins; ++b) {
          const A g = static_cast<A>(region[c * bins + b]);
          for (int64_t t = taps.first[b]; t < taps.first[b + 1]; ++t) image[c * plane + taps.pixel[t]] += taps.weight[t] * g;
        }
      }
    }
  });
}

template <typename Body>
void dispatch_float(ScalarType type, const Body& body) {
  switch (type) {
    case ScalarType::Double: return body(double{});
    case ScalarType::Half: return body(torch::headeronly::Half{});
    case ScalarType::BFloat16: return body(torch::headeronly::BFloat16{});
    default: return body(float{});
  }
}

Tensor roi_align(const Tensor& x, const Tensor& rois, int64_t out_h, int64_t out_w, double scale, int64_t sampling_ratio,
                 bool aligned) {
  const RoiAlignCall call = prepare_roi_align(x, rois, out_h, out_w, scale, sampling_ratio, aligned);
  dispatch_float(x.scalar_type(), [&](auto zero) { pool<decltype(zero)>(call); });
  return call.out;
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, int64_t images, int64_t height, int64_t width,
                          double scale, int64_t sampling_ratio, bool aligned, bool channels_last) {
  const RoiAlignBackwardCall call =
      prepare_roi_align_backward(grad, rois, images, height, width, scale, sampling_ratio, aligned, channels_last);
  dispatch_float(grad.scalar_type(), [&](auto zero) { spread<decltype(zero)>(call); });
  return call.result();
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) {
  m.impl("roi_align", TORCH_BOX(&gpuaug::roi_align));
  m.impl("roi_align_backward", TORCH_BOX(&gpuaug::roi_align_backward));
}
