// The types of an image's values, for kernels, which are compiled without torch's tensors.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

namespace gpuaug {

enum class Element { kByte, kFloat, kHalf, kBFloat16 };

// Calls body with a value of the C++ type.
template <typename Body>
void dispatch_floating(Element type, const Body& body) {
  switch (type) {
    case Element::kHalf: return body(torch::headeronly::Half{});
    case Element::kBFloat16: return body(torch::headeronly::BFloat16{});
    default: return body(float{});
  }
}

template <typename Body>
void dispatch_element(Element type, const Body& body) {
  if (type == Element::kByte) return body(uint8_t{});
  dispatch_floating(type, body);
}

}  // namespace gpuaug
