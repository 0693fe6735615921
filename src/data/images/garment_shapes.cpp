#include "data/images/garments.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace millrace::data {
namespace {

constexpr float kShoulder = -0.62f;  // y of the upper edge of a torso

float mix(float low, float high, float t) { return low + (high - low) * t; }

float trapezoid_distance(const std::array<float, 6>& v, Point at) {
    const auto [center, y0, y1, w0, w1, lean] = v;
    const float half_width = w0 + (w1 - w0) * (at.y - y0) / (y1 - y0);
    return std::min({at.y - y0, y1 - at.y, (half_width - std::abs(at.x - center)) * lean});
}

float capsule_distance(const std::array<float, 6>& v, Point at) {
    const auto [ax, ay, bx, by, ra, rb] = v;
    const float dx = bx - ax, dy = by - ay, px = at.x - ax, py = at.y - ay;
    const float t = std::clamp((px * dx + py * dy) / std::max(dx * dx + dy * dy, 1e-9f), 0.0f, 1.0f);
    const float ox = px - t * dx, oy = py - t * dy;
    return mix(ra, rb, t) - std::sqrt(ox * ox + oy * oy);
}

float ellipse_distance(const std::array<float, 6>& v, Point at) {
    const float x = (at.x - v[0]) / v[2], y = (at.y - v[1]) / v[3];
    return (1 - std::sqrt(x * x + y * y)) * std::min(v[2], v[3]);
}

void torso(Figure& figure, const Cut& cut) {
    figure.trapezoid(0, kShoulder, cut.hem, cut.half_width, cut.half_width * cut.flare);
}

void sleeves(Figure& figure, float shoulder, float reach, float drop, float radius) {
    for (const float side : {-1.0f, 1.0f})
        figure.capsule({side * (shoulder - radius * 0.6f), kShoulder + radius},
                       {side * (shoulder + reach), kShoulder + radius + drop}, radius, radius * 0.85f);
}

void collar(Figure& figure, float width, float depth) {
    figure.trapezoid(0, kShoulder - 0.1f, kShoulder + depth, width, 0, true);
}

Figure t_shirt(const Cut& cut) {
    Figure figure;
    torso(figure, cut);
    sleeves(figure, cut.half_width, mix(0.20f, 0.38f, cut.free[0]), mix(0.15f, 0.60f, cut.free[1]), cut.sleeve);
    figure.ellipse({0, kShoulder}, cut.neck, cut.neck * 0.8f, true);
    return figure;
}

Figure trouser(const Cut& cut) {
    Figure figure;
    const float waist = mix(0.24f, 0.36f, cut.free[0]), leg = waist * 0.5f, spread = mix(0.0f, 0.14f, cut.free[1]);
    figure.trapezoid(0, -0.78f, -0.42f, waist, waist * 1.05f);
    for (const float side : {-1.0f, 1.0f})
        figure.capsule({side * leg, -0.5f}, {side * (leg + spread), mix(0.65f, 0.85f, cut.free[2])}, leg * 0.95f,
                       leg * mix(0.55f, 0.9f, cut.free[3]));
    return figure;
}

Figure pullover(const Cut& cut) {
    Figure figure;
    torso(figure, cut);
    sleeves(figure, cut.half_width, mix(0.08f, 0.30f, cut.free[1]), mix(0.75f, 1.25f, cut.free[0]), cut.sleeve);
    figure.ellipse({0, kShoulder}, cut.neck * 0.7f, cut.neck * 0.4f, true);
    return figure;
}

Figure dress(const Cut& cut) {
    Figure figure;
    const float bodice = mix(0.20f, 0.32f, cut.free[0]), waist = mix(-0.2f, 0.05f, cut.free[2]);
    figure.trapezoid(0, -0.78f, waist, bodice, bodice * 0.92f);
    figure.trapezoid(0, waist - 0.02f, 0.86f, bodice * 0.92f, bodice * mix(1.1f, 2.2f, cut.free[1]));
    if (cut.chance[0] < 0.45f)
        sleeves(figure, bodice, mix(0.05f, 0.22f, cut.free[3]), mix(0.15f, 0.90f, cut.chance[1]), cut.sleeve * 0.8f);
    figure.ellipse({0, -0.78f}, bodice * 0.5f, cut.neck * 0.9f, true);
    return figure;
}

Figure coat(const Cut& cut) {
    Figure figure;
    torso(figure, cut);
    sleeves(figure, cut.half_width, mix(0.06f, 0.28f, cut.free[1]), mix(0.85f, 1.30f, cut.free[0]), cut.sleeve);
    collar(figure, cut.neck, mix(0.26f, 0.62f, cut.free[2]));
    if (cut.chance[0] < 0.35f) figure.shade({true, 0, 0.035f, 0.45f});
    return figure;
}

Figure sandal(const Cut& cut) {
    Figure figure;
    const float sole = mix(0.28f, 0.48f, cut.free[0]), heel = mix(0.0f, 0.22f, cut.free[1]),
                strap = mix(0.05f, 0.085f, cut.free[2]);
    figure.capsule({-0.66f, sole - heel}, {0.70f, sole}, 0.07f, 0.085f);
    figure.capsule({-0.62f, sole - heel}, {-0.60f, sole + 0.05f}, 0.06f, 0.05f);
    const float top = sole - mix(0.42f, 0.72f, cut.free[3]);
    for (const float at : {-0.28f, 0.12f, 0.48f})
        figure.capsule({at - 0.14f, top + (at + 0.3f) * 0.28f}, {at + 0.14f, sole}, strap, strap);
    figure.capsule({-0.64f, sole - heel}, {-0.42f, top}, strap, strap);
    return figure;
}

Figure shirt(const Cut& cut) {
    Figure figure;
    torso(figure, cut);
    sleeves(figure, cut.half_width, mix(0.08f, 0.34f, cut.free[1]), mix(0.35f, 1.20f, cut.free[0]), cut.sleeve);
    collar(figure, cut.neck * 0.8f, mix(0.12f, 0.34f, cut.free[2]));
    if (cut.chance[0] < 0.55f) figure.shade({true, 0, 0.03f, 0.75f});
    return figure;
}

Figure sneaker(const Cut& cut) {
    Figure figure;
    const float body = mix(0.20f, 0.28f, cut.free[0]), base = mix(0.18f, 0.34f, cut.free[1]);
    figure.capsule({-0.52f, base}, {0.56f, base + 0.06f}, body * 1.1f, body * 0.85f);
    figure.capsule({-0.50f, base}, {-0.40f, base - mix(0.12f, 0.34f, cut.free[2])}, body, body * 0.75f);
    figure.shade({false, base + body * mix(0.35f, 0.7f, cut.free[3]), 0, 0.55f});
    return figure;
}

Figure bag(const Cut& cut) {
    Figure figure;
    const float top = mix(-0.30f, 0.0f, cut.free[0]), width = mix(0.45f, 0.68f, cut.free[1]);
    const float ring = width * mix(0.45f, 0.75f, cut.free[2]), height = mix(0.28f, 0.50f, cut.free[3]);
    figure.ellipse({0, top}, ring, height);
    figure.ellipse({0, top}, ring - 0.10f, height - 0.10f, true);
    figure.trapezoid(0, top, mix(0.45f, 0.75f, cut.chance[0]), width, width * mix(0.9f, 1.15f, cut.chance[1]));
    return figure;
}

Figure ankle_boot(const Cut& cut) {
    Figure figure;
    const float base = mix(0.40f, 0.52f, cut.free[0]), shaft = mix(0.20f, 0.28f, cut.free[1]);
    figure.capsule({-0.38f, base}, {0.56f, base + 0.05f}, 0.22f, 0.16f);
    figure.capsule({-0.38f, mix(-0.62f, -0.25f, cut.free[2])}, {-0.34f, base}, shaft, shaft * 0.95f);
    figure.shade({false, base + mix(0.06f, 0.14f, cut.free[3]), 0, 0.55f});
    return figure;
}

}  // namespace

void Figure::add(PrimitiveKind kind, bool cut, std::array<float, 6> value) {
    MILLRACE_ASSERT(count_ < parts_.size(), "a garment has too many parts");
    parts_[count_++] = Primitive{kind, cut, value};
}

void Figure::trapezoid(float center, float y0, float y1, float w0, float w1, bool cut) {
    const float slope = (w1 - w0) / (y1 - y0);
    add(PrimitiveKind::kTrapezoid, cut, {center, y0, y1, w0, w1, 1 / std::sqrt(1 + slope * slope)});
}

void Figure::capsule(Point a, Point b, float ra, float rb, bool cut) {
    add(PrimitiveKind::kCapsule, cut, {a.x, a.y, b.x, b.y, ra, rb});
}

void Figure::ellipse(Point center, float rx, float ry, bool cut) {
    add(PrimitiveKind::kEllipse, cut, {center.x, center.y, rx, ry, 0, 0});
}

float Figure::distance(Point at) const {
    float inside = -4;
    for (std::size_t i = 0; i < count_; ++i) {
        const Primitive& part = parts_[i];
        const float d = part.kind == PrimitiveKind::kTrapezoid ? trapezoid_distance(part.value, at)
                        : part.kind == PrimitiveKind::kCapsule ? capsule_distance(part.value, at)
                                                               : ellipse_distance(part.value, at);
        inside = part.cut ? std::min(inside, -d) : std::max(inside, d);
    }
    return inside;
}

float Figure::brightness(Point at) const {
    const bool shaded = shading_.vertical ? std::abs(at.x) < shading_.half_width : at.y > shading_.from;
    return shaded ? shading_.shade : 1.0f;
}

Figure tailor(std::uint32_t label, const Cut& cut) {
    static constexpr std::array<Figure (*)(const Cut&), 10> kPatterns{t_shirt, trouser, pullover, dress, coat,
                                                                      sandal,  shirt,   sneaker,  bag,   ankle_boot};
    MILLRACE_ASSERT(label < kPatterns.size(), "garments have ten classes");
    return kPatterns[label](cut);
}

}  // namespace millrace::data
