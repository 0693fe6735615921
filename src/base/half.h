#pragma once
// IEEE half precision as bits: f16 of files and devices. The compilers in use do not all have the type.

#include <bit>
#include <cstdint>

namespace millrace::base {

/// Rounds to nearest, ties to even. Beyond 65504 by half a step or more: infinite. NaN stays NaN.
constexpr std::uint16_t to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
    if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);
    if (magnitude < 0x33000001u) return sign;  // half of the smallest rounds to zero
    std::uint32_t kept = 0, dropped = 0;
    int shift = 13;
    if (magnitude >= 0x38800000u) {
        kept = magnitude - 0x38000000u;  // the exponent's bias goes from 127 to 15
    } else {
        kept = (magnitude & 0x7FFFFFu) | 0x800000u;
        shift = 126 - static_cast<int>(magnitude >> 23);
    }
    dropped = kept & ((1u << shift) - 1);
    kept >>= shift;
    const std::uint32_t middle = 1u << (shift - 1);
    if (dropped > middle || (dropped == middle && (kept & 1) != 0)) ++kept;
    return static_cast<std::uint16_t>(sign | kept);
}

/// Exact.
constexpr float from_half(std::uint16_t bits) {
    const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, exponent = bits >> 10 & 0x1Fu, fraction = bits & 0x3FFu;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    const std::uint32_t widened = exponent == 31 ? 0xFFu : exponent + 112;
    return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

}  // namespace millrace::base
