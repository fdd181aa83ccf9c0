// uniforms: the random numbers of a batch's draws.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "../check.h"
#include "../random.h"

namespace gpuaug {
namespace {

Tensor uniforms(const Tensor& keys, const Tensor& slots, int64_t epoch, int64_t seed) {
  constexpr const char* kOp = "uniforms";
  for (const auto& [name, t] : {std::pair{"keys", keys}, std::pair{"slots", slots}}) {
    check_strided(kOp, name, t);
    check_dtype(kOp, name, t, ScalarType::Long);
    if (t.dim() != 1) fail(kOp, ": ", name, " must have one dimension, got ", shape_name(t));
  }
  const Tensor key_row = torch::stable::contiguous(keys), slot_row = torch::stable::contiguous(slots);
  const int64_t count = key_row.size(0), per_key = slot_row.size(0);
  const int64_t* key = key_row.const_data_ptr<int64_t>();
  const int64_t* slot = slot_row.const_data_ptr<int64_t>();
  Tensor out = torch::stable::new_empty(keys, {count, per_key, 4}, ScalarType::Double);
  double* u = out.mutable_data_ptr<double>();
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t wide = static_cast<uint64_t>(key[i]);
    for (int64_t k = 0; k < per_key; ++k, u += 4) {
      const Words4 counter = {{static_cast<uint32_t>(wide), static_cast<uint32_t>(wide >> 32),
                               static_cast<uint32_t>(slot[k]), 0}};
      const Words4 words = philox4x32(static_cast<uint32_t>(seed), static_cast<uint32_t>(epoch), counter);
      for (int w = 0; w < 4; ++w) u[w] = (words.word[w] >> 8) * 0x1p-24;
    }
  }
  return out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CPU, m) { m.impl("uniforms", TORCH_BOX(&gpuaug::uniforms)); }
