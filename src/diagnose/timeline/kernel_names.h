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
/// The same of any kernel: the frameworks' own, which are no products, do without tensor cores.
Units tensor_use_of(std::string_view name);

/// Reads and writes each element once, so that it is bounded by memory and can be fused with its neighbours.
bool is_elementwise(std::string_view name);

/// What it computes on, "bf16"; of several the narrowest, as that is what is read. Empty where the name does not say.
std::string_view data_type_of(std::string_view name);

}  // namespace millrace::diagnose
