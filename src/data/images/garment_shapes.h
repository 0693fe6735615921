#pragma once
// Signed distances of the garments: positive inside, in units of a canvas [-1, 1]^2 with y pointing down.

#include <array>
#include <cstdint>

namespace millrace::data {

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
