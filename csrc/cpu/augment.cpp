// augment on the CPU. Two sweeps: the programs of the samples that have one, a sample a task, into uint8 scratch images;
// then the rows of the batch, a row a task, from there or straight from the batch into the result.
#include "../augment.h"
#include "filter_rows.h"
#include "image_rows.h"
#include "warp_rows.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

// On x86 this file is compiled twice (augment_fma.cpp): the rounding of fmaf is a function call on the oldest CPUs and an
// instruction on the others. The results are the same.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define GPUAUG_HAVE_FMA_COPY
namespace gpuaug_fma {
torch::stable::Tensor augment(const torch::stable::Tensor& x, const torch::stable::Tensor& params, std::vector<double> mean,
                              std::vector<double> std, torch::headeronly::ScalarType dtype, bool channels_last,
                              int64_t chains);
}
#endif

namespace gpuaug {
namespace {

struct Histogram {
  uint32_t count[kChannels][256] = {};
};

Histogram histogram_of(const uint8_t* pixels, int64_t count) {
  // Four tables in turn: neighbouring pixels are often equal, and would wait for each other.
  uint32_t part[4][kChannels][256] = {};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, pixels += 12) {
    for (int k = 0; k < 4; ++k) {
      for (int c = 0; c < kChannels; ++c) ++part[k][c][pixels[3 * k + c]];
    }
  }
  for (; i < count; ++i, pixels += 3) {
    for (int c = 0; c < kChannels; ++c) ++part[0][c][pixels[c]];
  }
  Histogram h;
  for (int c = 0; c < kChannels; ++c) {
    for (int v = 0; v < 256; ++v) h.count[c][v] = part[0][c][v] + part[1][c][v] + part[2][c][v] + part[3][c][v];
  }
  return h;
}

// The statistics of op for every table entry.
struct ImageStatistics {
  Statistics entry[kChannels][256] = {};
};

void gather_statistics(const Op& op, const Image& image, ImageStatistics& s) {
  const int64_t count = static_cast<int64_t>(image.height) * image.width;
  if (op.opcode() == kOpContrast) {
    const bool pil = op.has(kOpFlagPilGray);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* p = image.data + 3 * i;
      sum += static_cast<uint32_t>(pil ? pil_gray_of({p[0], p[1], p[2]}) : gray_of({p[0], p[1], p[2]}));
    }
    const float mean = gray_mean_of(sum, static_cast<uint64_t>(count), pil);
    for (auto& channel : s.entry) {
      for (Statistics& entry : channel) entry.gray_mean = mean;
    }
    return;
  }
  const Histogram h = histogram_of(image.data, count);
  for (int c = 0; c < kChannels; ++c) {
    int low = 0, high = 255;
    while (low < 255 && h.count[c][low] == 0) ++low;
    while (high > 0 && h.count[c][high] == 0) --high;
    const uint32_t step = equalize_step(static_cast<uint32_t>(count), h.count[c][high]);
    uint32_t below = 0;
    for (int v = 0; v < 256; ++v) {
      s.entry[c][v] = {0.0f, low, high, below, step};
      below += h.count[c][v];
    }
  }
}

// The tables of a pass's stages.
void build_tables(const Ops& ops, const Pass& pass, const Image& image, std::vector<uint8_t>& tables) {
  tables.resize(kMaxStages * kTableBytes);
  int stage = -1;
  bool after_table = false;
  for (int i = pass.first; i < pass.last; ++i) {
    const Op& op = ops.op[i];
    if (adds_stage(op, after_table)) ++stage;
    if (op.is_table()) {
      ImageStatistics statistics;
      if (op.needs_statistics()) gather_statistics(op, image, statistics);
      uint8_t* table = tables.data() + stage * kTableBytes;
      for (int c = 0; c < kChannels; ++c) {
        for (int v = 0; v < 256; ++v) {
          uint8_t& entry = table[256 * c + v];
          const int before = after_table ? entry : v;
          entry = static_cast<uint8_t>(table_entry(op, statistics.entry[c][before], before));
        }
      }
    }
    after_table = op.is_table();
  }
}

// Sources that make a row as a whole do it when it begins.
template <typename Source>
auto begin_row(Source& source, int y) -> decltype(source.begin_row(y)) {
  source.begin_row(y);
}
void begin_row(const Copy&, int) {}

void store(uint8_t* out, Pixel p) {
  out[0] = static_cast<uint8_t>(p.r), out[1] = static_cast<uint8_t>(p.g), out[2] = static_cast<uint8_t>(p.b);
}

// `finish` makes a pixel of the result of one of the source.
template <typename Source, typename Finish>
void sweep(const Image& image, Source& source, uint8_t* out, const Finish& finish) {
  for (int y = 0; y < image.height; ++y) {
    begin_row(source, y);
    for (int x = 0; x < image.width; ++x, out += 3) store(out, finish(source(x, y)));
  }
}

// Neighbouring pixels, a channel after the other, as vectors want them.
struct Run {
  static constexpr int kPixels = 64;
  int r[kPixels], g[kPixels], b[kPixels];

  Pixel at(int i) const { return {r[i], g[i], b[i]}; }
  void set(int i, Pixel p) { r[i] = p.r, g[i] = p.g, b[i] = p.b; }

  template <typename Function>
  void each(const Function& function) {
    for (int i = 0; i < kPixels; ++i) set(i, function(at(i)));
  }

  void through(const Stages& stages, const uint8_t* tables) {
    for (int s = 0; s < stages.count; ++s) {
      if (stages.stage[s].table) {
        const uint8_t* table = tables + s * kTableBytes;
        each([=](Pixel p) { return looked_up(table, p); });
      } else {
        with_mixing(stages.stage[s].op, [&](const auto& mixed) { each(mixed); });
      }
    }
  }
};

// Through all stages, a run at a time.
template <typename Source>
void sweep_stages(const Image& image, Source& source, uint8_t* out, const Stages& stages, const uint8_t* tables) {
  Run run = {};
  for (int y = 0; y < image.height; ++y) {
    begin_row(source, y);
    for (int first = 0; first < image.width; first += Run::kPixels) {
      const int count = std::min(Run::kPixels, image.width - first);
      for (int i = 0; i < count; ++i) run.set(i, source(first + i, y));
      run.through(stages, tables);
      for (int i = 0; i < count; ++i, out += 3) store(out, run.at(i));
    }
  }
}

// Working memory of one thread.
struct Workspace {
  Ops ops;
  Passes passes;
  Stages stages;
  BlurKernel blur;
  WarpRow warp_row;
  FilterRow filter_row;
  std::vector<uint8_t> tables, image;
};

// What gives the pixels of a pass, a row after the other.
Copy by_rows(const Copy& source, Workspace&) { return source; }
SharpnessRows by_rows(const Sharpness& source, Workspace& work) { return {source, work.filter_row}; }
template <bool kVertical>
BlurRows<kVertical> by_rows(const Blur<kVertical>& source, Workspace& work) {
  return {source, work.filter_row};
}
NearestRows by_rows(const Warped<Interpolation::kNearest>& source, Workspace& work) { return {source, work.warp_row}; }
template <Interpolation kInterpolation>
InterpolatedRows<kInterpolation> by_rows(const Warped<kInterpolation>& source, Workspace& work) {
  return {source, work.warp_row};
}

void run_program(const int32_t* record, int chain, bool chained, const Image& source, uint8_t* result, Workspace& work) {
  read_ops(record, chain, chained, work.ops);
  plan_passes(work.ops, work.passes);
  work.image.resize(static_cast<size_t>(kChannels) * source.height * source.width);
  const auto data_of = [&](Place place) { return place == kInWork ? work.image.data() : result; };
  for (int k = 0; k < work.passes.count; ++k) {
    const Pass& pass = work.passes.pass[k];
    Image image = source;
    if (k > 0) image = {data_of(work.passes.source[k]), source.height, source.width, false, false};
    uint8_t* out = data_of(work.passes.source[k + 1]);
    plan_stages(work.ops, pass, work.stages);
    build_tables(work.ops, pass, image, work.tables);
    if (pass.kind == kPassBlurRows || pass.kind == kPassBlurColumns) make_blur_kernel(pass.op, work.blur);
    const uint8_t* tables = work.tables.data();
    with_pixel_source(pass, image, record[kWordFill], &work.blur, [&](const auto& pixel) {
      const Stages& stages = work.stages;
      auto source = by_rows(pixel, work);
      if (stages.count == 0) {
        sweep(image, source, out, [](Pixel p) { return p; });
      } else if (stages.count == 1 && stages.stage[0].table) {
        sweep(image, source, out, [=](Pixel p) { return looked_up(tables, p); });
      } else {
        sweep_stages(image, source, out, stages, tables);
      }
    });
  }
}

struct Batch {
  const AugmentCall& call;
  const uint8_t* x;
  const int32_t* records;
  uint8_t* scratch;

  const int32_t* record(int64_t sample) const { return records + sample * kRecordWords; }
  int64_t image_bytes() const { return kChannels * call.pixels(); }
  uint8_t* scratch_image(int64_t sample, int chain) const {
    return scratch + (chain * call.samples + sample) * image_bytes();
  }
  Image image(int64_t sample) const { return batch_image(x, record(sample), sample, call.height, call.width); }
};

void run_programs(const Batch& batch) {
  const int64_t tasks = batch.call.samples * batch.call.chains;
  torch::stable::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    const auto work = std::make_unique<Workspace>();
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sample = task / batch.call.chains;
      const int chain = static_cast<int>(task % batch.call.chains);
      const int32_t* record = batch.record(sample);
      const int chains = chains_of(record, batch.call.chains);
      if (!has_program(record) || chain >= std::max(chains, 1)) continue;
      run_program(record, chain, chains > 0, batch.image(sample), batch.scratch_image(sample, chain), *work);
    }
  });
}

// One row of a sample's finished uint8 pixels; `buffer` holds it when it has to be made.
const uint8_t* pixels_of_row(const Batch& batch, int64_t sample, int y, std::vector<uint8_t>& buffer) {
  const AugmentCall& call = batch.call;
  const int32_t* record = batch.record(sample);
  const int64_t row_bytes = kChannels * static_cast<int64_t>(call.width);
  const bool programmed = call.chains > 0 && has_program(record);
  const int chains = programmed ? chains_of(record, call.chains) : 0;
  if (programmed && chains == 0) return batch.scratch_image(sample, 0) + y * row_bytes;
  const uint8_t* const row = ImageRows(batch.image(sample))(y, buffer);
  if (chains == 0) return row;
  const ChainWeights weights(record);
  for (int64_t i = 0; i < row_bytes; ++i) {
    float sum = weights.start(row[i]);
    for (int k = 0; k < chains; ++k) sum = weights.add(sum, k, batch.scratch_image(sample, k)[y * row_bytes + i]);
    buffer[i] = static_cast<uint8_t>(truncated_byte(sum));
  }
  return buffer.data();
}

template <typename T>
struct ValueTable {
  T value[kChannels][256];

  explicit ValueTable(const ChannelAffine& affine) {
    for (int c = 0; c < kChannels; ++c) {
      for (int v = 0; v < 256; ++v) {
        value[c][v] = finished<T>(fmaf(static_cast<float>(v), affine.scale[c], affine.bias[c]));
      }
    }
  }
};

template <typename T>
void write_row(const AugmentCall& call, int64_t sample, int y, const T* values, T* out) {
  const int64_t plane = call.pixels();
  if (call.channels_last) {
    std::memcpy(out + (sample * plane + static_cast<int64_t>(y) * call.width) * kChannels, values,
                sizeof(T) * kChannels * static_cast<size_t>(call.width));
    return;
  }
  for (int c = 0; c < kChannels; ++c) {
    T* row = out + (sample * kChannels + c) * plane + static_cast<int64_t>(y) * call.width;
    for (int x = 0; x < call.width; ++x) row[x] = values[3 * x + c];
  }
}

void erase_row(const Erase& erase, const int32_t* record, const ChannelAffine& unit, int y, int width, float* values) {
  if (erase.mode == EraseMode::kNone || y < erase.where.top || y >= erase.where.bottom) return;
  for (int x = erase.where.left; x < erase.where.right; ++x) {
    if (erase.mode == EraseMode::kConstant) {
      for (int c = 0; c < kChannels; ++c) values[3 * x + c] = erase.value[c];
    } else {
      const Noise noise = noise_of_pixel(record, static_cast<uint32_t>(y) * static_cast<uint32_t>(width) + static_cast<uint32_t>(x));
      for (int c = 0; c < kChannels; ++c) values[3 * x + c] = noise_value(noise, c, unit);
    }
  }
}

template <typename T>
void finish_rows(const Batch& batch) {
  const AugmentCall& call = batch.call;
  const ValueTable<T> table(call.affine);
  const ValueTable<float> exact(call.affine);
  T* out = static_cast<T*>(call.out.mutable_data_ptr());
  const int64_t row_values = kChannels * static_cast<int64_t>(call.width);
  const int64_t grain = std::max<int64_t>(1, (1 << 15) / row_values);
  torch::stable::parallel_for(0, call.samples * call.height, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> buffer(row_values), other_buffer(row_values);
    std::vector<float> values(row_values), theirs(row_values);
    std::vector<T> row(row_values);
    const auto value_row = [&](int64_t sample, int y, std::vector<uint8_t>& bytes, float* to) {
      const uint8_t* pixels = pixels_of_row(batch, sample, y, bytes);
      for (int64_t i = 0; i < row_values; i += 3) {
        to[i] = exact.value[0][pixels[i]], to[i + 1] = exact.value[1][pixels[i + 1]], to[i + 2] = exact.value[2][pixels[i + 2]];
      }
      const int32_t* record = batch.record(sample);
      erase_row(Erase(record, call.height, call.width, call.unit), record, call.unit, y, call.width, to);
    };
    for (int64_t task = begin; task < end; ++task) {
      const int64_t sample = task / call.height;
      const int y = static_cast<int>(task - sample * call.height);
      const int32_t* record = batch.record(sample);
      const Mix mix(record, call.samples, call.height, call.width);
      const Erase erase(record, call.height, call.width, call.unit);
      const bool in_cut = mix.cut && y >= mix.where.top && y < mix.where.bottom && mix.where.left < mix.where.right;
      const bool in_erase = erase.mode != EraseMode::kNone && y >= erase.where.top && y < erase.where.bottom;
      if (!mix.blend && !in_cut && !in_erase) {
        const uint8_t* pixels = pixels_of_row(batch, sample, y, buffer);
        for (int64_t i = 0; i < row_values; i += 3) {
          row[i] = table.value[0][pixels[i]], row[i + 1] = table.value[1][pixels[i + 1]], row[i + 2] = table.value[2][pixels[i + 2]];
        }
      } else {
        value_row(sample, y, buffer, values.data());
        if (mix.blend || in_cut) {
          value_row(mix.partner, y, other_buffer, theirs.data());
          if (mix.blend) {
            for (int64_t i = 0; i < row_values; ++i) values[i] = mix.blended_value(values[i], theirs[i]);
          } else {
            std::copy(theirs.begin() + 3 * mix.where.left, theirs.begin() + 3 * mix.where.right,
                      values.begin() + 3 * mix.where.left);
          }
        }
        for (int64_t i = 0; i < row_values; ++i) row[i] = finished<T>(values[i]);
      }
      write_row(call, sample, y, row.data(), out);
    }
  });
}

Tensor augment_here(const Tensor& x, const Tensor& params, std::vector<double> mean, std::vector<double> std, ScalarType dtype,
               bool channels_last, int64_t chains) {
  const AugmentCall call = prepare_augment("augment", x, params, mean, std, dtype, channels_last, chains);
  if (call.out.numel() == 0) return call.out;
  std::vector<uint8_t> no_scratch;
  Batch batch{call, call.x.const_data_ptr<uint8_t>(), call.params.const_data_ptr<int32_t>(), nullptr};
  Tensor scratch = torch::stable::empty({call.chains * call.samples * batch.image_bytes()}, ScalarType::Byte, std::nullopt,
                                        x.device());
  if (call.chains > 0) {
    batch.scratch = scratch.mutable_data_ptr<uint8_t>();
    run_programs(batch);
  }
  dispatch_output_type(dtype, [&](auto zero) { finish_rows<decltype(zero)>(batch); });
  return call.out;
}

#if !defined(GPUAUG_FMA_COPY)

std::string record_layout() {
  std::ostringstream text;
  text << "{\"words\": " << kRecordWords << ", \"version\": " << kRecordVersion << ", \"flags\": " << kWordFlags
       << ", \"chains\": " << kWordChains << ", \"seed\": " << kWordSeed << ", \"epoch\": " << kWordEpoch
       << ", \"index\": " << kWordIndexLow << ", \"partner\": " << kWordPartner << ", \"crop\": " << kWordCrop
       << ", \"erase\": " << kWordErase << ", \"erase_value\": " << kWordEraseValue << ", \"lambda\": " << kWordLambda
       << ", \"cut\": " << kWordCut << ", \"fill\": " << kWordFill << ", \"original_weight\": " << kWordOriginalWeight
       << ", \"chain_weight\": " << kWordChainWeight << ", \"program\": " << kWordProgram
       << ", \"program_words\": " << kProgramWords << ", \"max_chains\": " << kMaxChains
       << ", \"noise_slot\": " << kNoiseSlot << ", \"flag_bits\": [" << kFlagFlipHorizontal << ", " << kFlagFlipVertical
       << ", " << kFlagEraseConstant << ", " << kFlagEraseNoise << ", " << kFlagMixUp << ", " << kFlagCutMix << ", "
       << kFlagAntialias << ", " << kCropFilterShift << "], \"op_flags\": [" << kOpFlagChainEnd << ", " << kOpFlagPilGray
       << "], \"parameters\": [";
  for (int op = 0; op < kOpCount; ++op) text << (op ? ", " : "") << parameters_of(op);
  text << "]}";
  return text.str();
}

#if defined(GPUAUG_HAVE_FMA_COPY)
Tensor augment(const Tensor& x, const Tensor& params, std::vector<double> mean, std::vector<double> std, ScalarType dtype,
               bool channels_last, int64_t chains) {
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_fma) {
    return gpuaug_fma::augment(x, params, std::move(mean), std::move(std), dtype, channels_last, chains);
  }
  return augment_here(x, params, std::move(mean), std::move(std), dtype, channels_last, chains);
}
#else
constexpr auto augment = augment_here;
#endif

#endif  // !GPUAUG_FMA_COPY

}  // namespace

#if defined(GPUAUG_FMA_COPY)
Tensor augment(const Tensor& x, const Tensor& params, std::vector<double> mean, std::vector<double> std, ScalarType dtype,
               bool channels_last, int64_t chains) {
  return augment_here(x, params, std::move(mean), std::move(std), dtype, channels_last, chains);
}
#endif

}  // namespace gpuaug

#if !defined(GPUAUG_FMA_COPY)
STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) { m.impl("augment", TORCH_BOX(&gpuaug::augment)); }

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CompositeExplicitAutograd, m) {
  m.impl("record_layout", TORCH_BOX(&gpuaug::record_layout));
}
#endif
