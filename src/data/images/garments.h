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

/// On a canvas [-1, 1]^2 with y pointing down.
struct Point {
    float x = 0;
    float y = 0;
};

enum class PrimitiveKind : std::uint8_t { kTrapezoid, kCapsule, kEllipse };

/// One primitive, added to the figure (union) or taken away from it.
struct Primitive {
    PrimitiveKind kind = PrimitiveKind::kTrapezoid;
    bool cut = false;
    std::array<float, 6> value{};
};

/// A region of the figure that is multiplied by `shade`: `half_width` around x = 0 when vertical, everything below `from`
/// otherwise.
struct Shading {
    bool vertical = false;
    float from = 2;
    float half_width = 0;
    float shade = 1;
};

class Figure {
public:
    /// Half-widths w0 at y0 to w1 at y1 around x = center.
    void trapezoid(float center, float y0, float y1, float w0, float w1, bool cut = false);
    /// Radius ra at a to rb at b.
    void capsule(Point a, Point b, float ra, float rb, bool cut = false);
    void ellipse(Point center, float rx, float ry, bool cut = false);
    void shade(Shading shading) { shading_ = shading; }

    /// Positive inside.
    [[nodiscard]] float distance(Point at) const;
    [[nodiscard]] float brightness(Point at) const;

private:
    void add(PrimitiveKind kind, bool cut, std::array<float, 6> value);

    std::array<Primitive, 12> parts_{};
    std::size_t count_ = 0;
    Shading shading_;
};

/// What varies from image to image before the class has its say.
struct Cut {
    float half_width = 0;  ///< of the torso
    float flare = 1;
    float hem = 0;     ///< y of the lower edge
    float sleeve = 0;  ///< radius
    float neck = 0;
    std::array<float, 4> free{};    ///< shape draws in [0, 1)
    std::array<float, 2> chance{};  ///< decides details that not every piece has
};

Figure tailor(std::uint32_t label, const Cut& cut);

}  // namespace millrace::data
