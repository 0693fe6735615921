#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::io {

/// Element types of tensors and data sets, by their name in safetensors files.
enum class ElementType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

std::string_view name_of(ElementType type);  ///< "F32", "BF16", ...
std::size_t size_of(ElementType type);       ///< bytes per element
std::optional<ElementType> element_type_named(std::string_view name);

}  // namespace millrace::io
