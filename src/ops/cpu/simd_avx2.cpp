// Thirty-two-byte vectors, built with -mavx2 -mfma; run only where the processor has them.
#include "ops/cpu/simd_kernels.h"

#if defined(__x86_64__)
namespace millrace::ops::cpu {
namespace {
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6, kTileVectors = 2;
}  // namespace

#include "ops/cpu/gemm_tiles.inl"

#include "ops/cpu/elementary.inl"

#include "ops/cpu/column_loops.inl"

#include "ops/cpu/row_loops.inl"

#include "ops/cpu/flow_loops.inl"

#include "ops/cpu/text_loops.inl"

#include "ops/cpu/simd_table.inl"

const SimdKernels& simd_avx2() {
    static const SimdKernels table = simd_table("avx2", "AVX2");
    return table;
}

}  // namespace millrace::ops::cpu
#endif
