#pragma once
// Products of a warp over bf16 and f16 alike.

#include "ops/cuda/cluster.cuh"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {

using tile::load_matrices;
using tile::load_transposed;

/// Whether every row begins at a multiple of 16 bytes.
inline bool aligned16(const tensor::Operand& o) {
    const auto piece = 16 / static_cast<std::int64_t>(tensor::size_of(o.dtype));
    return reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0 && o.stride_row % piece == 0 && o.stride_g % piece == 0 &&
           o.stride_k % piece == 0;
}

constexpr float kLog2E = 1.44269504f;
/// 2^x by the special function unit, for softmax.
__device__ inline float exp2_fast(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/// c += a b of m16n8k16: 16 rows of a, 8 columns of b (b0: the first eight of the summed index).
template <class T>
__device__ inline void mma16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    tile::fragment_step<T>(c, a[0], a[1], a[2], a[3], b0, b1);
}

/// load_matrices by the address in shared memory.
__device__ inline void load_matrices(std::uint32_t (&to)[4], std::uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

template <int kTiles, int kColumns>
__device__ inline void clear(float (&sums)[kTiles][kColumns][4]) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumns; ++n) sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
}

/// The row and the column that number i of four of sums (m, n) belongs to, of a warp's sums[m][n][4].
__device__ inline int row_of(int m, int i) { return 16 * m + static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8; }
__device__ inline int column_of(int n, int i) { return 8 * n + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2; }

}  // namespace millrace::ops::cuda
