#pragma once
// Elements of products on the matrix units of compute capability 8.0 and up, with operands in registers. A thread holds 16 bytes
// of a row, a piece: since the order of the summed index is free as long as both operands agree, a piece serves as the fragments
// of two steps (m16n8k16 of 16-bit elements, m16n8k8 of tf32), and nothing is shuffled.
//
// f32 is the sum of three numbers of bf16, of whose products six count; the others are below 2^-24. Matrix units cut off what
// does not fit when they add, always towards zero, which in deep networks adds up: the products of the largest parts have 16
// bits, so that 16 of them seldom lose one, and everything else is added outside. Tf32 takes one step of its own.

#include <type_traits>

#include "ops/cuda/vector.cuh"

namespace millrace::ops::cuda::tile {

/// f32 in memory, rounded to tf32 (ten bits of mantissa) for products.
struct Tf32 {};

/// What an element is in memory.
template <class E>
using Stored = std::conditional_t<std::is_same_v<E, Tf32>, float, E>;
template <class E>
constexpr int kPiece = 16 / static_cast<int>(sizeof(Stored<E>));  ///< elements of 16 bytes

/// Whether products know the type, and this device and the compiled code have them.
bool has_element(tensor::DType type);

/// f with the element of a type: bf16{}, f16{}, Tf32{} or float{}.
template <class F>
auto by_element(tensor::DType type, bool tf32, F f) {
    if (type == tensor::DType::bf16) return f(bf16{});
    if (type == tensor::DType::f16) return f(f16{});
    return tf32 ? f(Tf32{}) : f(float{});
}

#if __CUDA_ARCH__ >= 800
#define MILLRACE_FRAGMENT_STEP(shape) \
    asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#else
#define MILLRACE_FRAGMENT_STEP(shape) __trap()  // has_element refuses
#endif

/// One step: 16 rows times 8, over 16 elements of 16 bits or 8 of tf32.
template <class E>
__device__ inline void fragment_step(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                     std::uint32_t b0, std::uint32_t b1) {
    if constexpr (std::is_same_v<E, bf16>)
        MILLRACE_FRAGMENT_STEP("m16n8k16.row.col.f32.bf16.bf16.f32");
    else if constexpr (std::is_same_v<E, f16>)
        MILLRACE_FRAGMENT_STEP("m16n8k16.row.col.f32.f16.f16.f32");
    else
        MILLRACE_FRAGMENT_STEP("m16n8k8.row.col.f32.tf32.tf32.f32");
}
#undef MILLRACE_FRAGMENT_STEP

/// Four 8 x 8 matrices of 16-bit elements at an address in shared memory; lane l gives that of row l % 8 of matrix l / 8.
/// Transposed: of their transposes.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
    load_matrices(to, static_cast<std::uint32_t>(__cvta_generic_to_shared(row)));
}
__device__ inline void load_transposed(std::uint32_t (&to)[4], const void* row) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/// The piece of elements [at, at + kPiece) of a row of `limit` elements, zeros beyond it. kVector: rows start on 16 bytes.
template <bool kVector, class T>
__device__ inline uint4 fetch_piece(const T* row, int at, int limit) {
    constexpr int kCount = kPiece<T>;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (row == nullptr || at >= limit) return v;
    if (kVector && at + kCount <= limit)
        return __ldcg(reinterpret_cast<const uint4*>(row + at));  // from L2: what L1 holds may be older than the last update
    std::uint32_t w[4];
    if constexpr (sizeof(T) == 4) {
        const auto* bits = reinterpret_cast<const unsigned int*>(row);
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = at + i < limit ? __ldcg(bits + at + i) : 0;
    } else {
        const auto* bits = reinterpret_cast<const unsigned short*>(row);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t low = at + 2 * i < limit ? __ldcg(bits + at + 2 * i) : 0;
            const std::uint32_t high = at + 2 * i + 1 < limit ? __ldcg(bits + at + 2 * i + 1) : 0;
            w[i] = low | high << 16;
        }
    }
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/// Element i of a piece, as its bits.
template <class T>
__device__ inline T element_of(const uint4& piece, int i) {
    const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
    if constexpr (sizeof(T) == 4) {
        return __uint_as_float(words[i]);
    } else {
        const auto bits = static_cast<unsigned short>(words[i / 2] >> (16 * (i & 1)));
        return *reinterpret_cast<const T*>(&bits);
    }
}

/// The nearest number of tf32.
__device__ inline std::uint32_t to_tf32(std::uint32_t bits) {
#if __CUDA_ARCH__ >= 800
    std::uint32_t nearest;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(nearest) : "f"(__uint_as_float(bits)));
    return nearest;
#else
    return bits;
#endif
}
__device__ inline uint4 to_tf32(const uint4& p) { return make_uint4(to_tf32(p.x), to_tf32(p.y), to_tf32(p.z), to_tf32(p.w)); }

/// A piece as products take it.
template <class E>
struct Factor {
    uint4 piece;
    Factor() = default;
    __device__ explicit Factor(const uint4& p) : piece(p) {
        if constexpr (std::is_same_v<E, Tf32>) piece = to_tf32(p);
    }
};
template <>
struct Factor<float> {
    uint2 part[3];  ///< of bf16, the largest first; their sum is the number
    Factor() = default;
    __device__ explicit Factor(const uint4& p) {
        float x = __uint_as_float(p.x), y = __uint_as_float(p.y), z = __uint_as_float(p.z), w = __uint_as_float(p.w);
#pragma unroll
        for (int i = 0; i < 3; ++i) part[i] = make_uint2(take_pair(x, y), take_pair(z, w));
    }
};

/// sums += 16 rows times 8 columns over the pieces of four lanes: lane l has those of rows l / 4 (upper) and l / 4 + 8 (lower)
/// and of column l / 4, and gets the sums of columns 2 (l % 4) and the next one, of the upper row and then of the lower one.
template <class E>
__device__ inline void multiply_pieces(float (&sums)[4], const Factor<E>& upper, const Factor<E>& lower, const Factor<E>& right) {
    if constexpr (std::is_same_v<E, float>) {
        float large[4] = {}, small[4] = {};
        const auto add = [&](float(&to)[4], int i, int j) {
            const uint2 &a = upper.part[i], &b = lower.part[i], &c = right.part[j];
            fragment_step<bf16>(to, a.x, b.x, a.y, b.y, c.x, c.y);
        };
        add(small, 2, 0);
        add(small, 0, 2);
        add(small, 1, 1);
        add(small, 1, 0);
        add(small, 0, 1);
        add(large, 0, 0);
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += large[i] + small[i];
    } else {
        const uint4 &a = upper.piece, &b = lower.piece, &c = right.piece;
        fragment_step<E>(sums, a.x, b.x, a.y, b.y, c.x, c.y);
        fragment_step<E>(sums, a.z, b.z, a.w, b.w, c.z, c.w);
    }
}

}  // namespace millrace::ops::cuda::tile

namespace millrace::ops::cuda {

using tile::load_matrices;
using tile::load_transposed;

/// Whether every row begins at a multiple of 16 bytes.
inline bool aligned16(const tensor::Operand& o) {
    const auto piece = 16 / static_cast<std::int64_t>(tensor::size_of(o.dtype));
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && o.stride_row % piece == 0 && o.stride_g % piece == 0 &&
           o.stride_k % piece == 0;
}

/// c += a b of m16n8k16: 16 rows of a, 8 columns of b (b0: the first eight of the summed index).
template <class T>
__device__ inline void mma16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    tile::fragment_step<T>(c, a[0], a[1], a[2], a[3], b0, b1);
}

/// The same for all tiles of a warp; b: two tiles of columns each.
template <class T, int kTiles, int kColumns>
__device__ inline void multiply_fragments(float (&sums)[kTiles][kColumns][4], const std::uint32_t (&a)[kTiles][4],
                                          const std::uint32_t (&b)[kColumns / 2][4]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumns; ++n) mma16<T>(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
}

template <int kTiles, int kColumns>
__device__ inline void clear(float (&sums)[kTiles][kColumns][4]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumns; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
}

/// Over the four lanes that share a row.
__device__ inline float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ inline float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

/// The row and the column that number i of four of sums (m, n) belongs to, of a warp's sums[m][n][4].
__device__ inline int row_of(int m, int i) { return 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8; }
__device__ inline int column_of(int n, int i) { return 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }

}  // namespace millrace::ops::cuda
