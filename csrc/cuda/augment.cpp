// augment on CUDA: the op. Two launches, the programs (augment_programs.cu) and the result (augment_finish.cu). No
// synchronisation, and no memory beyond the output and one scratch from torch's caching allocator.
#include "../augment.h"

#include "augment_kernels.h"
#include "device.h"

namespace gpuaug {
namespace {

Tensor augment(const Tensor& x, const Tensor& params, std::vector<double> mean, std::vector<double> std,
               ScalarType dtype, bool channels_last, int64_t chains) {
  const DeviceGuard guard(x.get_device_index());
  const AugmentCall call = prepare_augment("augment", x, params, mean, std, dtype, channels_last, chains);
  if (call.out.numel() == 0) return call.out;
  const cudaStream_t stream = current_stream(x);
  const AugmentLaunch launch{call.x.const_data_ptr<uint8_t>(),
                             call.params.const_data_ptr<int32_t>(),
                             call.out.mutable_data_ptr(),
                             element_of(dtype),
                             call.samples,
                             call.height,
                             call.width,
                             call.chains,
                             call.channels_last,
                             call.affine,
                             call.unit};
  ProgramScratch scratch;
  std::optional<Tensor> memory;
  if (call.chains > 0) {
    scratch = plan_scratch(launch, x.get_device_index());
    memory = torch::stable::empty({scratch.bytes}, ScalarType::Byte, std::nullopt, x.device());
    scratch.memory = static_cast<uint8_t*>(memory->mutable_data_ptr());
    launch_programs(launch, scratch, stream);
  }
  launch_finish(launch, scratch, stream);
  return call.out;
}

}  // namespace
}  // namespace gpuaug

STABLE_TORCH_LIBRARY_IMPL(lightning_gpuaug, CUDA, m) { m.impl("augment", TORCH_BOX(&gpuaug::augment)); }
