#pragma once
// Steps of products of 16-bit elements on the matrix units of compute capability 9.0a, 16 summed elements each, for kernels that
// fill shared memory themselves (ops/tile/hopper.cuh says how it lies).

#include <type_traits>

#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda::tile {

// clang-format off
#define MILLRACE_HALF_STEP(shape, registers, left_at, right_at, rows, ...) \
    if constexpr (std::is_same_v<T, bf16>) \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" \
                     registers "}, " left_at ", " right_at ", p, 1, 1, " rows ", " rows "; }" \
                     : __VA_ARGS__ : "l"(left), "l"(right)); \
    else \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" \
                     registers "}, " left_at ", " right_at ", p, 1, 1, " rows ", " rows "; }" \
                     : __VA_ARGS__ : "l"(left), "l"(right))

/// Sums += 64 rows at `left` times 64 rows at `right` (hopper::operand), over 16 columns. A thread's sums lie as in
/// hopper::multiply.
template <class T>
__device__ inline void multiply_rows_step(float (&a)[32], std::uint64_t left, std::uint64_t right) {
    MILLRACE_HALF_STEP("m64n64k16", MILLRACE_REGISTERS_0, "%32", "%33", "0", MILLRACE_SUMS(a));
}
/// Sums += 64 columns at `left` (hopper::summed_rows) times 32 columns at `right` (hopper::summed_short_rows), over 16 rows.
template <class T>
__device__ inline void multiply_columns_step(float (&a)[16], std::uint64_t left, std::uint64_t right) {
    MILLRACE_HALF_STEP("m64n32k16", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16", "%17", "1",
                       "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3]), "+f"(a[4]), "+f"(a[5]), "+f"(a[6]), "+f"(a[7]),
                       "+f"(a[8]), "+f"(a[9]), "+f"(a[10]), "+f"(a[11]), "+f"(a[12]), "+f"(a[13]), "+f"(a[14]), "+f"(a[15]));
}
#undef MILLRACE_HALF_STEP
// clang-format on

}  // namespace millrace::ops::cuda::tile
