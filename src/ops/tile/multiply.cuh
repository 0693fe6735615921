#pragma once
// One step of a product on the matrix units of compute capability 9.0a: 64 rows times kWide, over 16 summed elements. Operands
// lie in shared memory (ops/tile/hopper.cuh); either may have the summed index along its rows instead of its columns.

#include <type_traits>

#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda::tile {

// clang-format off
#define MILLRACE_STEP(shape, registers, left, right, left_rows, right_rows, more, ...) \
    if constexpr (std::is_same_v<T, bf16>) \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, " more ", 0; wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" \
                     registers "}, " left ", " right ", p, 1, 1, " left_rows ", " right_rows "; }" \
                     : __VA_ARGS__ : "l"(from_left), "l"(from_right), "n"(kLeftRows ? 1 : 0), "n"(kRightRows ? 1 : 0), "r"(add)); \
    else \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, " more ", 0; wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" \
                     registers "}, " left ", " right ", p, 1, 1, " left_rows ", " right_rows "; }" \
                     : __VA_ARGS__ : "l"(from_left), "l"(from_right), "n"(kLeftRows ? 1 : 0), "n"(kRightRows ? 1 : 0), "r"(add))

/// Thread t of the warpgroup holds of sums[g] those of rows 16 (t / 32) + t % 32 / 4 (+ 8) and columns 64 g + 8 j + 2 (t % 4)
/// (+ 1): numbers 4 j (+ 1), 4 j + 2 (+ 1). add: 0 where the sums begin.
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n64k16", MILLRACE_REGISTERS_0, "%32", "%33", "%34", "%35", "%36", MILLRACE_SUMS(sums));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[1][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    multiply_step<T, kLeftRows, kRightRows>(sums[0], from_left, from_right, add);
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[2][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n128k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1, "%64", "%65", "%66", "%67", "%68",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[4][32], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n256k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 ", " MILLRACE_REGISTERS_3,
                  "%128", "%129", "%130", "%131", "%132",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]), MILLRACE_SUMS(sums[3]));
}
/// The same of 32 columns, and of eight: numbers 0 (+ 1) and 2 (+ 1).
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[16], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n32k16", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16", "%17", "%18", "%19", "%20",
                  "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]), "+f"(sums[6]), "+f"(sums[7]),
                  "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]), "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]));
}
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[4], std::uint64_t from_left, std::uint64_t from_right, int add) {
    MILLRACE_STEP("m64n8k16", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "%8", "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]));
}
#undef MILLRACE_STEP
// clang-format on

}  // namespace millrace::ops::cuda::tile
