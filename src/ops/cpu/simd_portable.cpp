// Sixteen-byte vectors: NEON on aarch64, SSE2 on x86-64.
#include "ops/cpu/simd_kernels.h"

namespace millrace::ops::cpu {
namespace {
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 4, kTileVectors = 4;
}  // namespace

#include "ops/cpu/gemm_tiles.inl"

#include "ops/cpu/elementary.inl"

#include "ops/cpu/column_loops.inl"

#include "ops/cpu/row_loops.inl"

#include "ops/cpu/flow_loops.inl"

#include "ops/cpu/text_loops.inl"

#include "ops/cpu/simd_table.inl"

#if defined(__aarch64__)
constexpr const char *kId = "neon", *kName = "NEON";
#elif defined(__x86_64__)
constexpr const char *kId = "sse2", *kName = "SSE2";
#else
constexpr const char *kId = "portable", *kName = "portable";
#endif

const SimdKernels& simd_portable() {
    static const SimdKernels table = simd_table(kId, kName);
    return table;
}

}  // namespace millrace::ops::cpu
