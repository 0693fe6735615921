#pragma once
// Garments: a procedural stand-in for Fashion-MNIST with the same ten classes, 28 x 28 pixels. Every image is a pure function of
// (seed, index), so the set needs no download and every machine makes the same one (to one grey level: float contraction
// differs).

#include <array>
#include <cstdint>
#include <span>

namespace millrace::data {

inline constexpr std::uint32_t kGarmentSide = 28;
inline constexpr std::uint32_t kGarmentPixels = kGarmentSide * kGarmentSide;
inline constexpr std::uint32_t kGarmentClasses = 10;
inline constexpr std::uint64_t kGarmentSeed = 42;
/// Test images are those of indices from here on: disjoint from any training set, whatever its size.
inline constexpr std::uint32_t kGarmentTestBase = 2'000'000'000;

inline constexpr std::array<const char*, kGarmentClasses> kGarmentNames{
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};

inline std::uint8_t garment_label(std::uint32_t index) { return static_cast<std::uint8_t>(index % kGarmentClasses); }

/// Draws image `index` of class garment_label(index).
void draw_garment(std::uint64_t seed, std::uint32_t index, std::span<std::uint8_t, kGarmentPixels> pixels);

}  // namespace millrace::data
