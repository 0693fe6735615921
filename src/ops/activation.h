#pragma once
#include <cstdint>

namespace millrace::ops {

enum class Activation : std::uint8_t { none, relu, gelu, tanh, sigmoid };  ///< gelu: exact, by erf

}  // namespace millrace::ops
