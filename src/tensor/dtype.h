#pragma once
// Element types of buffers. `real` in contracts means the element type of activations: f64 in the reference backend, f32 on the
// CPU, f32, bf16 or f16 (IEEE half) on CUDA. `stat` means f64 in the reference backend and f32 elsewhere. Data sets are stored in
// f16, too: gathering converts it.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace millrace::tensor {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i32, u8 };

constexpr std::size_t size_of(DType type) {
    switch (type) {
        case DType::f64: return 8;
        case DType::f32:
        case DType::i32: return 4;
        case DType::bf16:
        case DType::f16: return 2;
        case DType::u8: return 1;
    }
    return 0;
}

constexpr const char* name_of(DType type) {
    switch (type) {
        case DType::f64: return "f64";
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
        case DType::i32: return "i32";
        case DType::u8: return "u8";
    }
    return "?";
}

/// bf16 to float: exact.
inline float from_bf16(std::uint16_t bits) {
    std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

/// float to bf16: round to nearest even; NaN stays NaN.
inline std::uint16_t to_bf16(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((wide >> 16) | 0x40u);
    return static_cast<std::uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
}

inline float from_f16(std::uint16_t bits) { return base::from_half(bits); }
inline std::uint16_t to_f16(float value) { return base::to_half(value); }

}  // namespace millrace::tensor
