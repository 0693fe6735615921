// Vectors of kVectorBytes. Included by *.simd.cpp (isa.h).

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

}  // namespace
