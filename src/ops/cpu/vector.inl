// Vectors of kVectorBytes; exponential, sigmoid, tanh and the normal distribution without branches, so that loops over them
// vectorise: all pass on NaN, errors are a few units in the last place. Included by *.simd.cpp (isa.h) before the loops that use
// them.

namespace {

constexpr int kWidth = kVectorBytes / 4;

using Vector __attribute__((vector_size(kVectorBytes))) = float;
using VectorAt __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = float;
using Quad __attribute__((vector_size(16))) = float;
using QuadAt __attribute__((vector_size(16), aligned(4), may_alias)) = float;

inline Vector load(const float* p) { return *reinterpret_cast<const VectorAt*>(p); }
inline void store(float* p, Vector v) { *reinterpret_cast<VectorAt*>(p) = v; }
inline Quad load_quad(const float* p) { return *reinterpret_cast<const QuadAt*>(p); }
inline void store_quad(float* p, Quad v) { *reinterpret_cast<QuadAt*>(p) = v; }

/// out[c][r] = in[r][c] for a 4 x 4 block.
inline void transpose_quad(const float* in, std::ptrdiff_t ld_in, float* out, std::ptrdiff_t ld_out) {
    const Quad a = load_quad(in), b = load_quad(in + ld_in), c = load_quad(in + 2 * ld_in), d = load_quad(in + 3 * ld_in);
    const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_quad(out, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
    store_quad(out + ld_out, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
    store_quad(out + 2 * ld_out, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store_quad(out + 3 * ld_out, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

/// 2^n and e^r - 1 with x = n ln 2 + r, |r| <= ln 2 / 2. x in [-87, 88].
struct Exponent {
    float power, expm1;
};

inline __attribute__((always_inline)) Exponent split_exponent(float x) {
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits
    const float shifted = x * 1.44269504f + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, kRound);
    const float power = __builtin_bit_cast(float, (bits + 127) << 23);
    // Taylor, in pairs so that the terms do not wait for each other: the eighth is below half a unit in the last place.
    const float r2 = r * r;
    const float p =
        (0.5f + 1.66666667e-1f * r) + r2 * ((4.16666667e-2f + 8.33333333e-3f * r) + r2 * (1.38888889e-3f + 1.98412698e-4f * r));
    return {power, p * r2 + r};
}

inline __attribute__((always_inline)) float limit(float x, float low, float high) {
    const float above = x < low ? low : x;
    return above > high ? high : above;
}

inline __attribute__((always_inline)) float exp_of(float x) {
    const Exponent e = split_exponent(limit(x, -87.0f, 88.0f));
    return e.power * e.expm1 + e.power;
}

inline __attribute__((always_inline)) float sigmoid_of(float x) { return 1.0f / (1.0f + exp_of(-x)); }

/// (e^2x - 1) / (e^2x + 1), with e^2x - 1 formed without cancellation.
inline __attribute__((always_inline)) float tanh_of(float x) {
    const Exponent e = split_exponent(limit(2.0f * x, -20.0f, 20.0f));
    const float minus_one = e.power * e.expm1 + (e.power - 1.0f);
    return minus_one / (minus_one + 2.0f);
}

/// Density and distribution of N(0, 1) at u.
struct Normal {
    float density, below;
};

inline __attribute__((always_inline)) Normal normal_of(float u) {
    const float a = __builtin_fabsf(u), bell = exp_of(-0.5f * u * u);
    // The share beyond a is the bell times t P(t), fitted on [0, 14] to 4e-8.
    const float t = 1.0f / (1.0f + 0.35f * a);
    const float t2 = t * t;
    const float low = (0.13961871f + 0.139912292f * t) + t2 * (0.119444914f + 0.107114591f * t);
    const float high = (-0.0270466078f + 0.165050998f * t) + t2 * ((-0.260961235f + 0.146545827f * t) + t2 * -0.029679522f);
    const float p = low + (t2 * t2) * high;
    const float beyond = bell * (t * p);
    return {0.39894228f * bell, u < 0 ? beyond : 1.0f - beyond};
}

inline __attribute__((always_inline)) float gelu_of(float u) { return u * normal_of(u).below; }
inline __attribute__((always_inline)) float gelu_slope(float u) {
    const Normal n = normal_of(u);
    return n.below + u * n.density;
}

}  // namespace
