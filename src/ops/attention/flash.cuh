#pragma once
// Pieces of attention on tensor cores (T: bf16 or f16). A warp owns 16 kTiles rows (queries, or keys on the way back) as
// fragments in registers; rows of the other side stream through shared memory in tiles. Products of own and streamed rows stay in
// registers: as the sums of an m16n8k16 step they lie as the next step's left side wants them.

#include "ops/attention/attention.cuh"
#include "ops/cuda/async_copy.cuh"
#include "ops/tile/mma.cuh"

namespace millrace::ops::cuda {

constexpr int kFlashWarps = 4, kFlashThreads = 32 * kFlashWarps;
constexpr int kStreamed = 64;  ///< rows of a tile
constexpr float kLn2 = 0.69314718f;

/// Which rows of which head a block has, of `blocks` per head. Number 0 of all heads of a group begin first, then number 1, ...:
/// when these see most, the last blocks to begin are short and multiprocessors finish together. The group's keys and values stay
/// in the L2 cache.
struct FlashBlock {
    int pair, number;
    __device__ FlashBlock(int pairs, int blocks) {
        constexpr int kGroup = 16;
        const int first = static_cast<int>(blockIdx.x) / (kGroup * blocks) * kGroup, group = min(kGroup, pairs - first);
        const int inside = static_cast<int>(blockIdx.x) - first * blocks;
        number = inside / group;
        pair = first + inside % group;
    }
};

/// Elements of a row in shared memory: eight rows of a fragment lie in different banks.
template <int kWidth>
constexpr int kFlashStride = kWidth + 8;
template <int kWidth>
constexpr std::size_t flash_bytes(int rows) {
    return 2 * static_cast<std::size_t>(rows) * kFlashStride<kWidth>;
}

/// Begins copies of kRows rows of a head to shared memory: zeros from row `rows` on and in columns from `width` on.
template <int kWidth, int kRows, class T>
__device__ inline void stage_rows(const T* from, int stride, int rows, int width, T* to) {
    constexpr int kVectors = kWidth / 8, kStep = kFlashThreads / kVectors;
    static_assert(kRows % kStep == 0);
    const int row = static_cast<int>(threadIdx.x) / kVectors, column = static_cast<int>(threadIdx.x) % kVectors * 8;
    const int limit = column < width ? rows - row : 0;
    const std::uint32_t base = shared_address(to + row * kFlashStride<kWidth> + column);
    from += row * stride + column;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) copy16(base + 2 * i * kFlashStride<kWidth>, from + i * stride, i < limit);
}

/// Where this lane's row of a 16 x 16 block begins: for fragments of the left side and for transposed ones of the right side,
template <int kWidth>
__device__ inline int along_offset() {
    const int lane = threadIdx.x % 32;
    return (lane % 16) * kFlashStride<kWidth> + lane / 16 * 8;
}
/// and for fragments of the right side as it lies.
template <int kWidth>
__device__ inline int across_offset() {
    const int lane = threadIdx.x % 32;
    return (lane % 8 + lane / 16 * 8) * kFlashStride<kWidth> + lane / 8 % 2 * 8;
}

template <int kTiles, int kColumns>
using Sums = float[kTiles][kColumns / 8][4];

/// Fragments of a warp's 16 kTiles rows. Where registers are short they are not held but read again for every product.
template <class T, int kTiles, int kWidth, bool kHeld = true>
struct OwnRows {
    std::uint32_t held[kTiles][kWidth / 16][4];
    __device__ void load(const T* rows) {
        const T* from = rows + along_offset<kWidth>();
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int d = 0; d < kWidth / 16; ++d) load_matrices(held[m][d], from + 16 * m * kFlashStride<kWidth> + 16 * d);
    }
    __device__ void fragment(std::uint32_t (&to)[4], int m, int d) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i] = held[m][d][i];
    }
};
template <class T, int kTiles, int kWidth>
struct OwnRows<T, kTiles, kWidth, false> {
    const T* from;
    __device__ void load(const T* rows) { from = rows + along_offset<kWidth>(); }
    __device__ void fragment(std::uint32_t (&to)[4], int m, int d) const {
        load_matrices(to, from + 16 * m * kFlashStride<kWidth> + 16 * d);
    }
};

/// sums = own rows times kColumns streamed rows, over the width; `from` has the lane's across_offset.
template <int kTiles, int kWidth, int kColumns, class T, bool kHeld>
__device__ inline void multiply_across(Sums<kTiles, kColumns>& sums, const OwnRows<T, kTiles, kWidth, kHeld>& own,
                                       const T* from) {
    clear(sums);
#pragma unroll
    for (int d = 0; d < kWidth / 16; ++d) {
        std::uint32_t left[kTiles][4];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) own.fragment(left[m], m, d);
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
            std::uint32_t right[4];
            load_matrices(right, from + 16 * n * kFlashStride<kWidth> + 16 * d);
#pragma unroll
            for (int m = 0; m < kTiles; ++m) {
                mma16<T>(sums[m][2 * n], left[m], right[0], right[1]);
                mma16<T>(sums[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/// sums += weights of own rows and 16 streamed rows times these rows; `from` has the lane's along_offset.
template <int kTiles, int kWidth, class T>
__device__ inline void multiply_along(Sums<kTiles, kWidth>& sums, const std::uint32_t (&weights)[kTiles][4], const T* from) {
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
        std::uint32_t right[4];
        load_transposed(right, from + 16 * n);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
            mma16<T>(sums[m][2 * n], weights[m], right[0], right[1]);
            mma16<T>(sums[m][2 * n + 1], weights[m], right[2], right[3]);
        }
    }
}

/// Fragments for multiply_along of the 16 columns from 8 n on.
template <class T, int kTiles, int kColumns>
__device__ inline void pack_weights(std::uint32_t (&to)[kTiles][4], const Sums<kTiles, kColumns>& from, int n) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) to[m][i] = pack<T>(from[m][n + i / 2][i % 2 * 2], from[m][n + i / 2][i % 2 * 2 + 1]);
}

/// Writes a warp's rows times `factor` through its rows of shared memory, whole 16 bytes per lane: zeros from row `filled` on,
/// nothing from row `rows` on.
template <int kTiles, int kWidth, class T>
__device__ inline void store_rows(const Sums<kTiles, kWidth>& sums, const float (&factor)[kTiles][2], T* staging, T* to,
                                  std::int64_t stride, int filled, int rows, int width) {
    constexpr int kVectors = kWidth / 8;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                *reinterpret_cast<std::uint32_t*>(staging + row_of(m, 2 * half) * kFlashStride<kWidth> + column_of(n, 0)) =
                    pack<T>(sums[m][n][2 * half] * factor[m][half], sums[m][n][2 * half + 1] * factor[m][half]);
    __syncwarp();
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * kTiles * kVectors; i += 32) {
        const int row = i / kVectors, column = i % kVectors * 8;
        if (row >= rows || column >= width) continue;
        *reinterpret_cast<uint4*>(to + row * stride + column) =
            row < filled ? *reinterpret_cast<const uint4*>(staging + row * kFlashStride<kWidth> + column)
                         : make_uint4(0, 0, 0, 0);
    }
    __syncwarp();
}

/// Whether blocks of two tiles a warp give every multiprocessor two. Otherwise there are twice as many with one tile; the results
/// are the same to the bit.
template <class T>
bool fill_device(const Context& c, const AttentionArgs<T>& a) {
    constexpr int kRows = 32 * kFlashWarps;
    return std::int64_t{a.pairs()} * a.members * ((a.shape.positions + kRows - 1) / kRows) >= 2 * c.multiprocessors;
}

/// f<the width of the kernels that take heads of `width` columns>().
template <class F>
KernelResult with_flash_width(int width, F f) {
    return width <= 16   ? f.template operator()<16>()
           : width <= 32 ? f.template operator()<32>()
           : width <= 64 ? f.template operator()<64>()
                         : f.template operator()<128>();
}

}  // namespace millrace::ops::cuda
