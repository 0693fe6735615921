#pragma once
// Further products of a warpgroup (hopper.cuh): 64 rows on the left; the left side may lie in registers, and the rows of either
// side may be the summed index instead of their columns.

#include "ops/tile/hopper.cuh"

namespace millrace::ops::cuda::hopper {

/// Rows from `address` on (a multiple of 1,024 bytes) as the summed index, 16 of them for one product (2,048 bytes on for the
/// next ones). 64 columns lie in the 128 bytes of a row, the next 64 are `next` bytes further: the 128-byte swizzle, MN-major.
__device__ inline std::uint64_t summed_rows(std::uint32_t address, std::uint32_t next) {
    constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
    return kSwizzle128 | kEightRows | std::uint64_t{next >> 4} << 16 | (address >> 4 & 0x3fff);
}

/// The same of rows of 32 columns, 64 bytes: 16-byte piece c of row r at place c ^ (r / 2 & 3), from a multiple of 512 bytes on.
/// The next 16 rows are 1,024 bytes on.
__device__ inline std::uint64_t summed_short_rows(std::uint32_t address) {
    constexpr std::uint64_t kSwizzle64 = std::uint64_t{2} << 62, kEightRows = std::uint64_t{512 >> 4} << 32;
    return kSwizzle64 | kEightRows | std::uint64_t{1} << 16 | (address >> 4 & 0x3fff);
}

/// Begins copies of kRows rows of kColumns columns for summed_rows, by kThreads threads: zeros from row `rows` and column `cols`
/// on. 64 columns are a part, the next part lies behind the rows of this one. Rows begin at multiples of 16 bytes.
template <int kThreads, int kRows, int kColumns, class T>
requires(sizeof(T) == 2) __device__ void stage_columns(const T* from, int ld, int rows, int cols, std::uint32_t to) {
    constexpr int kPieces = kColumns / 8, kStep = kThreads / kPieces;
    static_assert(kStep % 8 == 0);  // a thread's rows have one swizzle
    const int row = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces;
    const int bytes = min(16, 2 * (cols - 8 * piece)), limit = bytes > 0 ? rows : 0;
    to += piece / 8 * (kRows * 128) + row * 128 + ((piece % 8 ^ (row & 7)) << 4);
    from += bytes > 0 ? 8 * piece : 0;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
        const bool there = row + i < limit;
        copy16(to + 128 * i, from + std::int64_t{there ? row + i : 0} * ld, there ? bytes : 0);
    }
}

/// Copies the box of a map of [K][G][rows][columns] that begins at (column, row, 0, k) to shared memory; zeros where it leaves
/// the tensor.
__device__ inline void tensor_copy(std::uint32_t to, const void* map, int column, int row, int k, std::uint32_t barrier) {
    MILLRACE_ASM(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
        "[%6];" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(0), "r"(k), "r"(barrier)
        : "memory");
}

/// Until the others of kThreads have given these threads their turn, with the same number, as many times as these have waited;
/// where all of them wait, until all have come.
template <int kThreads = 256>
__device__ inline void await_turn(int number) {
    MILLRACE_ASM("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
template <int kThreads = 256>
__device__ inline void give_turn(int number) {
    MILLRACE_ASM("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// clang-format off
#define MILLRACE_ALONG(shape, registers, left, right, ...) \
    if constexpr (std::is_same_v<T, bf16>) \
        MILLRACE_ASM("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" registers "}, {" \
                     left "}, " right ", p, 1, 1, 1; }" \
                     : __VA_ARGS__ : "r"(from_left[0]), "r"(from_left[1]), "r"(from_left[2]), "r"(from_left[3]), "l"(from_right)); \
    else \
        MILLRACE_ASM("{ .reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" registers "}, {" \
                     left "}, " right ", p, 1, 1, 1; }" \
                     : __VA_ARGS__ : "r"(from_left[0]), "r"(from_left[1]), "r"(from_left[2]), "r"(from_left[3]), "l"(from_right))

/// Sums += 64 x 16 numbers in registers times 16 rows at `from_right` (summed_rows), 64 columns for each array. Thread t has rows
/// 16 (t / 32) + t % 32 / 4 (in from_left[0] and [2], + 8 in the others) and columns 2 (t % 4) and the next one (+ 8 in [2] and [3]).
template <class T>
__device__ inline void multiply_along(float (&sums)[2][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n128k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1, "%64, %65, %66, %67", "%68",
                   MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]));
}
template <class T>
__device__ inline void multiply_along(float (&sums)[3][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n192k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2,
                   "%96, %97, %98, %99", "%100", MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]));
}
template <class T>
__device__ inline void multiply_along(float (&sums)[4][32], const std::uint32_t (&from_left)[4], std::uint64_t from_right) {
    MILLRACE_ALONG("m64n256k16", MILLRACE_REGISTERS_0 ", " MILLRACE_REGISTERS_1 ", " MILLRACE_REGISTERS_2 ", " MILLRACE_REGISTERS_3,
                   "%128, %129, %130, %131", "%132",
                   MILLRACE_SUMS(sums[0]), MILLRACE_SUMS(sums[1]), MILLRACE_SUMS(sums[2]), MILLRACE_SUMS(sums[3]));
}
#undef MILLRACE_ALONG
// clang-format on

}  // namespace millrace::ops::cuda::hopper
