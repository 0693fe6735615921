#pragma once
// Further products of a warpgroup (hopper.cuh): 64 rows on the left, 128 on the right; the left side may lie in registers, and
// the rows of either side may be the summed index instead of their columns.

#include "ops/cuda/hopper.cuh"

namespace millrace::ops::cuda::hopper {

/// Rows from `address` on (a multiple of 1,024 bytes) as the summed index, 16 of them for one product (2,048 bytes on for the
/// next ones). 64 columns lie in the 128 bytes of a row, the next 64 are `next` bytes further: the 128-byte swizzle, MN-major.
__device__ inline std::uint64_t summed_rows(std::uint32_t address, std::uint32_t next) {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | std::uint64_t{next >> 4} << 16 | (address >> 4 & 0x3fff);
}

/// Copies the box of a tensor map that begins at (column, row, matrix) to shared memory; zeros where it leaves the tensor.
__device__ inline void tensor_copy(std::uint32_t to, const void* map, int column, int row, int matrix, std::uint32_t barrier) {
    MILLRACE_ASM(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
            to),
        "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
        : "memory");
}

/// Until another warpgroup has given this one its turn, with the same number, as many times as this one has waited.
__device__ inline void await_turn(int number) { MILLRACE_ASM("bar.sync %0, 256;" ::"r"(number) : "memory"); }
__device__ inline void give_turn(int number) { MILLRACE_ASM("bar.arrive %0, 256;" ::"r"(number) : "memory"); }

// clang-format off
/// Sums (+)= 64 rows at `left` times 128 rows at `right`, over 16 columns.
template <bool kAdd>
__device__ inline void multiply_128(float (&a)[32], float (&b)[32], std::uint64_t left, std::uint64_t right) {
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 "}, %64, %65, p, 1, 1, 0, 0; }"
                 : MILLRACE_SUMS(a), MILLRACE_SUMS(b)
                 : "l"(left), "l"(right), "n"(kAdd ? 1 : 0));
}
/// Sums += 64 x 16 numbers in registers times 16 x 128 at `right` (summed_rows). Thread t has rows 16 (t / 32) + t % 32 / 4 (in left[0] and left[2], + 8 in the others) and columns 2 (t % 4) and the next one
/// (+ 8 in left[2] and left[3]).
__device__ inline void multiply_128(float (&a)[32], float (&b)[32], const std::uint32_t (&left)[4], std::uint64_t right) {
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
                 : MILLRACE_SUMS(a), MILLRACE_SUMS(b)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}
/// Sums += 64 columns at `left` times 128 columns at `right`, over 16 rows: both are summed_rows.
__device__ inline void multiply_columns(float (&a)[32], float (&b)[32], std::uint64_t left, std::uint64_t right) {
    MILLRACE_ASM("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 "}, %64, %65, p, 1, 1, 1, 1; }"
                 : MILLRACE_SUMS(a), MILLRACE_SUMS(b)
                 : "l"(left), "l"(right));
}
// clang-format on

}  // namespace millrace::ops::cuda::hopper
