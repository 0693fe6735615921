#pragma once
// One step of a product on the matrix units of compute capability 9.0a: 64 rows times kWide, over 16 summed elements. Operands
// lie in shared memory (ops/cuda/hopper.cuh); either may have the summed index along its rows instead of its columns.

#include <type_traits>

#include "ops/cuda/hopper.cuh"

namespace millrace::ops::cuda::tile {

// clang-format off
#define MILLRACE_STEP(shape, registers, left, right, left_rows, right_rows, adds, ...) \
    if constexpr (std::is_same_v<T, bf16>) \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, " adds ", 0; wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" \
                     registers "}, " left ", " right ", p, 1, 1, " left_rows ", " right_rows "; }" \
                     : __VA_ARGS__ : "l"(from_left), "l"(from_right), "n"(kLeftRows ? 1 : 0), "n"(kRightRows ? 1 : 0), "n"(kAdds ? 1 : 0)); \
    else \
        MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, " adds ", 0; wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" \
                     registers "}, " left ", " right ", p, 1, 1, " left_rows ", " right_rows "; }" \
                     : __VA_ARGS__ : "l"(from_left), "l"(from_right), "n"(kLeftRows ? 1 : 0), "n"(kRightRows ? 1 : 0), "n"(kAdds ? 1 : 0))

/// Thread t of the warpgroup holds of sums[g] those of rows 16 (t / 32) + t % 32 / 4 (+ 8) and columns 64 g + 8 j + 2 (t % 4)
/// (+ 1): numbers 4 j (+ 1), 4 j + 2 (+ 1). Without kAdds nothing is added to.
template <class T, bool kLeftRows, bool kRightRows, bool kAdds = true>
__device__ inline void multiply_step(float (&sums)[1][32], std::uint64_t from_left, std::uint64_t from_right) {
    MILLRACE_STEP("m64n64k16", MILLRACE_REGISTERS_0, "%32", "%33", "%34", "%35", "%36", MILLRACE_SUMS(sums[0]));
}
template <class T, bool kLeftRows, bool kRightRows, bool kAdds = true>
__device__ inline void multiply_step(float (&sums)[2][32], std::uint64_t from_left, std::uint64_t from_right) {
    MILLRACE_STEP("m64n128k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1, "%64", "%65", "%66", "%67", "%68",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]));
}
template <class T, bool kLeftRows, bool kRightRows, bool kAdds = true>
__device__ inline void multiply_step(float (&sums)[4][32], std::uint64_t from_left, std::uint64_t from_right) {
    MILLRACE_STEP("m64n256k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 ", " MILLRACE_REGISTERS_3,
                  "%128", "%129", "%130", "%131", "%132",
                  MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]), MILLRACE_SUMS(sums[3]));
}
/// The same of eight columns: numbers 0 (+ 1) and 2 (+ 1).
template <class T, bool kLeftRows, bool kRightRows>
__device__ inline void multiply_step(float (&sums)[4], std::uint64_t from_left, std::uint64_t from_right) {
    MILLRACE_STEP("m64n8k16", "%0, %1, %2, %3", "%4", "%5", "%6", "%7", "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]));
}
#undef MILLRACE_STEP

/// Sums += 64 x 16 elements in registers times 16 x 128 whose rows are the summed index. Thread t has rows 16 (t / 32) + t % 32 / 4
/// (in left[0] and left[2], + 8 in the others) and columns 2 (t % 4) and the next one (+ 8 in left[2] and left[3]).
#define MILLRACE_STEP(type) \
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
                 MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }" \
                 : MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]) \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(from_right))
template <class T>
__device__ inline void multiply_step(float (&sums)[2][32], const std::uint32_t (&left)[4], std::uint64_t from_right) {
    if constexpr (std::is_same_v<T, bf16>)
        MILLRACE_STEP("bf16");
    else
        MILLRACE_STEP("f16");
}
#undef MILLRACE_STEP
// clang-format on

}  // namespace millrace::ops::cuda::tile
