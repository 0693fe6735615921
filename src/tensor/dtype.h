#pragma once
// Element types of buffers. `real` in contracts means the element type of activations: f64 in the reference backend, f32 on the
// CPU, f32 or bf16 on CUDA. `stat` means f64 in the reference backend and f32 elsewhere. f16 (IEEE half) stores data sets: gathering
// converts it.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace::tensor {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i32, u8 };

constexpr std::size_t size_of(DType type) {
    switch (type) {
        case DType::f64: return 8;
        case DType::f32: return 4;
        case DType::bf16: return 2;
        case DType::f16: return 2;
        case DType::i32: return 4;
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

/// f16 to float: exact.
inline float from_f16(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
    std::uint32_t wide = sign;
    if (exponent == 31) {
        wide |= 0x7f800000u | (fraction << 13);
    } else if (exponent > 0) {
        wide |= ((exponent + 112) << 23) | (fraction << 13);
    } else {
        const float tiny = static_cast<float>(fraction) * 0x1p-24f;
        std::uint32_t magnitude;
        std::memcpy(&magnitude, &tiny, sizeof magnitude);
        wide |= magnitude;
    }
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

/// float to f16: round to nearest even; beyond the largest becomes infinite; NaN stays NaN.
inline std::uint16_t to_f16(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    const std::uint32_t sign = (wide >> 16) & 0x8000u, magnitude = wide & 0x7fffffffu;
    std::uint32_t bits;
    if (magnitude > 0x7f800000u) {
        bits = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
        bits = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal one
        bits = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    } else {  // adding 0.5 leaves the multiple of 2^-24 in the low bits, rounded by the addition
        float shifted;
        std::memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        std::memcpy(&bits, &shifted, sizeof bits);
        bits -= 0x3f000000u;
    }
    return static_cast<std::uint16_t>(sign | bits);
}

}  // namespace millrace::tensor
