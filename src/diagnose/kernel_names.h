#pragma once
// What the names of libraries' kernels say.

#include <cstdint>
#include <string_view>

namespace millrace::diagnose {

/// Matrix products, convolutions, attention.
bool is_matrix_kernel(std::string_view name);

enum class Units : std::uint8_t { kPlain, kTensor, kUnsaid };
/// Where a product runs: those of tensor cores name an instruction or a narrower type.
Units units_of(std::string_view name);

}  // namespace millrace::diagnose
