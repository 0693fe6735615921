#pragma once
// A step of a product on the matrix units of compute capability 9.0a with few columns on the right (multiply.cuh has the others).

#include <type_traits>

#include "ops/cuda/hopper.cuh"

namespace millrace::ops::cuda::tile {

// clang-format off
#define MILLRACE_SHORT_STEP(type) \
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 1; }" \
                 : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3]), "+f"(a[4]), "+f"(a[5]), "+f"(a[6]), "+f"(a[7]), \
                   "+f"(a[8]), "+f"(a[9]), "+f"(a[10]), "+f"(a[11]), "+f"(a[12]), "+f"(a[13]), "+f"(a[14]), "+f"(a[15]) \
                 : "l"(left), "l"(right))

/// Sums += 64 columns at `left` (hopper::summed_rows) times 32 columns at `right` (hopper::summed_short_rows), over 16 rows.
template <class T>
__device__ inline void multiply_short_step(float (&a)[16], std::uint64_t left, std::uint64_t right) {
    if constexpr (std::is_same_v<T, bf16>)
        MILLRACE_SHORT_STEP("bf16");
    else
        MILLRACE_SHORT_STEP("f16");
}
#undef MILLRACE_SHORT_STEP
// clang-format on

}  // namespace millrace::ops::cuda::tile
