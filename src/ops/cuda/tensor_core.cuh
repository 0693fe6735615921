#pragma once
// Names of ops/tile/element.cuh for kernels that are written for bf16.

#include "ops/cuda/cluster.cuh"
#include "ops/tile/element.cuh"

namespace millrace::ops::cuda {

using tile::load_matrices;
using tile::load_transposed;

__device__ inline void mma_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                std::uint32_t b0, std::uint32_t b1) {
    tile::fragment_step<bf16>(c, a0, a1, a2, a3, b0, b1);
}
template <bool kVector>
__device__ inline uint4 fetch8(const bf16* row, int at, int limit) {
    return tile::fetch_piece<kVector>(row, at, limit);
}

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

}  // namespace millrace::ops::cuda
