// How native code fails: with one line.
#pragma once

#include <sstream>
#include <stdexcept>

namespace gpuaug {

template <typename... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  throw std::runtime_error(line.str());
}

}  // namespace gpuaug
