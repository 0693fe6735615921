#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::io {

/// Element types of tensors and data sets, by their name in safetensors files.
enum class ElementType : std::uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool };

inline constexpr std::array<std::string_view, 13> kElementNames{"F64", "F32", "F16", "BF16", "I64", "I32", "I16",
                                                                "I8",  "U64", "U32", "U16",  "U8",  "BOOL"};
inline constexpr std::array<std::size_t, 13> kElementSizes{8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1};

constexpr std::string_view name_of(ElementType type) { return kElementNames[static_cast<std::size_t>(type)]; }
/// Bytes per element.
constexpr std::size_t size_of(ElementType type) { return kElementSizes[static_cast<std::size_t>(type)]; }

constexpr std::optional<ElementType> element_type_named(std::string_view name) {
    for (std::size_t i = 0; i < kElementNames.size(); ++i)
        if (kElementNames[i] == name) return static_cast<ElementType>(i);
    return std::nullopt;
}

}  // namespace millrace::io
