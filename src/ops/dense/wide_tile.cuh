#pragma once
// Fused dense layers for many members: where blocks suffice to fill the device, a block owns 128 rows (or all of them) and 16, 32
// or 64 columns, and the operands of its product go through a ring of slices in shared memory, so that each is read from L2 once
// per tile. A warp owns 32 rows and 8 * kTiles columns; a thread ends with four rows of a run of 2 * kTiles neighbouring columns,
// so that random blocks, loads and stores serve whole runs. Elements have 16 bits: transposed loads from shared memory know no
// others.

#include "ops/cuda/async_copy.cuh"
#include "ops/tile/element.cuh"
#include "ops/tile/wide.h"

namespace millrace::ops::cuda::wide {

constexpr int kPieces = kDepth / 8;  ///< of 16 bytes in a row of a slice

/// E: bf16 or f16. kAcross warps lie side by side. kWhole: rows of both operands are whole pieces. kRolled: loops stay loops.
/// What surrounds a product is executed once per tile, so that a block which has a multiprocessor to itself waits for
/// instructions as long as for data (6 of 13 cycles of a warp's instruction, measured on an H200); where blocks share one,
/// unrolled code is a tenth faster. kMixed: not those of each left operand.
template <class E, int kTiles_, int kAcross_, bool kWhole_, bool kRolled_ = false, bool kMixed_ = false>
struct Tile {
    using Element = E;
    static constexpr bool kWhole = kWhole_, kRolled = kRolled_, kMixed = kMixed_;
    static constexpr int kTiles = kTiles_, kAcross = kAcross_, kColumns = 8 * kTiles * kAcross, kRun = 2 * kTiles;
};

/// Where a thread's values lie: rows row + 8 i (i < 4) of the tile, columns column + j (j < kRun).
template <class T>
struct Owner {
    int strip, across, row, column;
    __device__ Owner() {
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        strip = warp / T::kAcross;
        across = warp % T::kAcross;
        row = 32 * strip + lane / 4;
        column = 8 * T::kTiles * across + T::kRun * (lane & 3);
    }
};

/// The row of a slice where the weights of a column of the tile lie, so that a thread's sums are a run of columns.
template <class T>
__device__ inline int packed_row(int column) {
    constexpr int kWarp = 8 * T::kTiles;
    const int c = column % kWarp;
    return column - c + c % T::kRun / 2 * 8 + c / T::kRun * 2 + c % 2;
}

/// 16-byte place of a piece among rows of kCount: the same piece of eight rows, or eight pieces of a row, meet all banks.
template <int kCount>
__device__ inline int place(int row, int piece) {
    return row * kCount + (piece ^ (row * kCount / 8 & (kCount - 1)));
}

/// The copy of elements [at, at + 8) of a row of `limit`, or of zeros. kWhole: begins at a multiple of 16 bytes and is whole.
template <bool kWhole, class E>
__device__ inline void copy_piece(uint4* to, const E* row, int at, int limit, bool there) {
    if constexpr (kWhole)
        copy16(shared_address(to), row + at, there);
    else
        *to = tile::fetch_piece<false>(there ? row : nullptr, at, limit);
}

/// Rows of the left operand, rows x limit elements.
template <class T>
struct Left {
    const typename T::Element* first;
    std::int64_t stride;
    int rows, limit;
    bool whole = true;  ///< of a mixed tile: rows are whole pieces

    /// Begins the copy of columns [kDepth * slice, + kDepth).
    __device__ void copy(uint4* to, int slice) const {
        int r = threadIdx.x / kPieces;
        const int piece = threadIdx.x % kPieces, at = kDepth * slice + 8 * piece, step = blockDim.x / kPieces;
        const auto* row = first + r * stride;
        to += place<kPieces>(r, piece);
        constexpr int kPasses = kPieces / T::kAcross;
        if (T::kMixed && !whole) {
#pragma unroll 1
            for (int pass = 0; pass < kPasses; ++pass) {
                *to = tile::fetch_piece<false>(r < rows ? row : nullptr, at, limit);
                r += step;
                row += step * stride;
                to += step * kPieces;
            }
            return;
        }
        uint4 v[kPasses];  // all under way before the first is needed
        if constexpr (!T::kWhole) {
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass)
                v[pass] = tile::fetch_piece<false>(r + pass * step < rows ? row + pass * step * stride : nullptr, at, limit);
        }
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {  // steps of whole eights of rows keep the order of pieces
            if constexpr (T::kWhole)
                copy16(shared_address(to), row + at, r < rows && at < limit);
            else
                *to = v[pass];
            r += step;
            row += step * stride;
            to += step * kPieces;
        }
    }
};

/// Weights whose rows are the tile's columns (forward).
template <class T>
struct RightColumns {
    const typename T::Element* first;  ///< row of the tile's first column
    std::int64_t stride;
    int columns, limit;

    __device__ void copy(uint4* to, int slice) const {
        const int piece = threadIdx.x % kPieces, at = kDepth * slice + 8 * piece, step = blockDim.x / kPieces;
        int c = threadIdx.x / kPieces;
        const auto* row = first + c * stride;
#pragma unroll T::kRolled ? 1 : 4
        for (; c < T::kColumns; c += step, row += step * stride)
            copy_piece<T::kWhole>(to + place<kPieces>(packed_row<T>(c), piece), row, at, limit, c < columns && at < limit);
    }
    /// Where a lane reads fragments of tiles t and t + 1 for the first 16 summed elements, and for others.
    __device__ static int place_of(int across, int t) {
        const int lane = threadIdx.x & 31;
        return place<kPieces>(8 * (T::kTiles * across + t + lane / 16) + lane % 8, lane / 8 % 2);
    }
    __device__ static void load(std::uint32_t (&b)[4], const uint4* memory, int place, int step) {
        tile::load_matrices(b, memory + (place ^ 2 * step));
    }
};

/// Weights whose rows are summed over (backward).
template <class T>
struct RightSummed {
    const typename T::Element* first;  ///< element of the tile's first column in row 0
    std::int64_t stride;
    int columns, limit;

    __device__ void copy(uint4* to, int slice) const {
        constexpr int kAcross = T::kColumns / 8;
        const int at = threadIdx.x % kAcross * 8, step = blockDim.x / kAcross;
        const int used = min(kDepth, (limit - kDepth * slice + 15) / 16 * 16);
        int r = threadIdx.x / kAcross, n = kDepth * slice + r;
        const auto* row = first + n * stride;
        to += place<kAcross>(r, at / 8);
#pragma unroll T::kRolled ? 1 : 4
        for (; r < used; r += step, n += step, row += step * stride, to += step * kAcross)
            copy_piece<T::kWhole>(to, row, at, columns, n < limit && at < columns);
    }
    __device__ static int place_of(int across, int t) {
        const int lane = threadIdx.x & 31;
        return place<T::kColumns / 8>(lane % 16, T::kTiles * across + t + lane / 16);
    }
    __device__ static void load(std::uint32_t (&b)[4], const uint4* memory, int place, int step) {
        tile::load_transposed(b, memory + place + 2 * T::kColumns * step);
    }
};

template <int kTiles>
using Sums = float[2][kTiles][4];

/// The product of a tile. The caller has begun `right`'s copies of the first `stages` - 1 slices (begin_right); on return all
/// threads are done with the ring. meanwhile(): while the first slices are under way.
template <class T, class Right, class Meanwhile>
__device__ void product(Sums<T::kTiles>& acc, uint4* ring, int stages, const Left<T>& left, const Right& right,
                        const Owner<T>& own, Meanwhile meanwhile) {
    const int slices = (left.limit + kDepth - 1) / kDepth, lane = threadIdx.x & 31;
    const int left_size = blockDim.x / T::kAcross * kPieces, size = left_size + T::kColumns * kPieces;
#pragma unroll 1
    for (int s = 0; s < stages - 1; ++s) {
        if (s < slices) left.copy(ring + s * size, s);
        commit_copies();
    }
    meanwhile();
    const int left_place = place<kPieces>(32 * own.strip + lane % 16, lane / 16);
    int right_place[T::kTiles / 2], slot = 0;
#pragma unroll
    for (int t = 0; t < T::kTiles; t += 2) right_place[t / 2] = left_size + Right::place_of(own.across, t);
    for (int slice = 0; slice < slices; ++slice) {
        if (stages == kStages)
            await_copies<kStages - 2>();
        else if (stages == kMiddle)
            await_copies<kMiddle - 2>();
        else
            await_copies<kDeep - 2>();
        __syncthreads();
        if (const int next = slice + stages - 1; next < slices) {
            uint4* to = ring + (slot == 0 ? stages - 1 : slot - 1) * size;
            left.copy(to, next);
            right.copy(to + left_size, next);
        }
        commit_copies();
        const int from = slot * size, steps = (left.limit - kDepth * slice + 15) / 16;
#pragma unroll
        for (int step = 0; step < kDepth / 16; ++step) {
            if (step >= steps) break;
            std::uint32_t a[2][4], b[T::kTiles / 2][4];
#pragma unroll
            for (int m = 0; m < 2; ++m) tile::load_matrices(a[m], ring + 16 * kPieces * m + ((from + left_place) ^ 2 * step));
#pragma unroll
            for (int t = 0; t < T::kTiles; t += 2) Right::load(b[t / 2], ring, from + right_place[t / 2], step);
            multiply_fragments<typename T::Element>(acc, a, b);
        }
        slot = slot == stages - 1 ? 0 : slot + 1;
    }
    __syncthreads();
}
template <class T, class Right>
__device__ void begin_right(uint4* ring, int stages, const Right& right) {
    const int left_size = blockDim.x / T::kAcross * kPieces, size = left_size + T::kColumns * kPieces;
#pragma unroll 1
    for (int s = 0; s < stages - 1; ++s)
        if (s * kDepth < right.limit) right.copy(ring + s * size + left_size, s);
}

/// Sums over the 32 rows of a warp; v: the thread's sums over its own four. Every thread gets its columns'.
template <class T>
__device__ void sum_over_rows(float (&v)[T::kRun]) {
#pragma unroll T::kRolled ? 1 : 3
    for (int d = 4; d <= 16; d *= 2)
#pragma unroll
        for (int j = 0; j < T::kRun; ++j) v[j] += __shfl_xor_sync(0xffffffffu, v[j], d);
}

/// What was read of memory before is read again.
__device__ inline void forget_memory() { asm volatile("" ::: "memory"); }

/// The dropout of a thread's four rows, a bit each. It is drawn while operands are under way.
template <class T>
struct Mask {
    static constexpr int kRun = T::kRun;
    std::uint32_t kept = 0;
    float factor = 1;
    bool drops = false;

    /// first: the element of the first of the rows, which are `step` elements apart.
    __device__ void draw(const DropoutKey& key, std::uint64_t first, std::uint64_t step) {
        const DropoutRule rule = dropout_rule(key);
        factor = rule.factor;
        drops = rule.threshold != 0;
        if (!drops) return;
#pragma unroll T::kRolled ? 1 : 4
        for (int i = 0; i < 4; ++i) {
            const std::uint64_t element = first + i * step;
            const int skipped = static_cast<int>(element & 3);  // of rows that do not begin with a random block
            std::uint32_t row = 0;
            const auto draw_block = [&](int b) {
                const auto block = static_cast<std::uint32_t>(element >> 2) + static_cast<std::uint32_t>(b);
                const auto four = base::random_block(key.seed, key.step, key.micro, key.op, block);
                std::uint32_t bits = 0;
#pragma unroll
                for (int n = 0; n < 4; ++n) bits |= four.v[n] >= rule.threshold ? 1u << n : 0u;
                row |= bits << (4 * b);
            };
            if constexpr (T::kRolled) {
                const int blocks = kRun / 4 + (skipped != 0 ? 1 : 0);
#pragma unroll 1
                for (int b = 0; b < blocks; ++b) draw_block(b);
            } else {
#pragma unroll
                for (int b = 0; b < kRun / 4; ++b) draw_block(b);
                if (skipped != 0) draw_block(kRun / 4);
            }
            kept |= (row >> skipped & ((1u << kRun) - 1)) << (kRun * i);
        }
    }
    /// Of the row that is next.
    __device__ void apply(float (&v)[kRun]) {
        if (!drops) return;
#pragma unroll
        for (int j = 0; j < kRun; ++j) v[j] *= (kept >> j & 1u) != 0 ? factor : 0;
        kept >>= kRun;
    }
};

/// Row 0 of a thread's four; the others move up, so that a loop over them needs no index into registers.
template <int kTiles>
__device__ void take_row(Sums<kTiles>& acc, float (&v)[2 * kTiles]) {
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) {
        const int t = j / 2, e = j % 2;
        v[j] = acc[0][t][e];
        acc[0][t][e] = acc[0][t][2 + e];
        acc[0][t][2 + e] = acc[1][t][e];
        acc[1][t][e] = acc[1][t][2 + e];
    }
}

/// The last row, which take_row has left free.
template <int kTiles>
__device__ void put_row(Sums<kTiles>& acc, const float (&v)[2 * kTiles]) {
#pragma unroll
    for (int j = 0; j < 2 * kTiles; ++j) acc[1][j / 2][2 + j % 2] = v[j];
}

/// kRun values to memory, of which `count` exist. whole: `at` is a multiple of their size.
template <int kRun>
__device__ void store_words(void* at, const std::uint32_t (&words)[kRun / 2], int count, bool whole) {
    if (whole && count >= kRun) {
        if constexpr (kRun == 8)
            *reinterpret_cast<uint4*>(at) = make_uint4(words[0], words[1], words[2], words[3]);
        else
            *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
        return;
    }
    std::uint64_t low = words[0] | std::uint64_t{words[1]} << 32, high = 0;
    if constexpr (kRun == 8) high = words[2] | std::uint64_t{words[3]} << 32;
    auto* bits = reinterpret_cast<unsigned short*>(at);
#pragma unroll 1
    for (int j = 0; j < min(count, kRun); ++j) {
        bits[j] = static_cast<unsigned short>(low);
        low = low >> 16 | high << 48;
        high >>= 16;
    }
}
template <class E, int kRun>
__device__ void pack_run(const float (&v)[kRun], std::uint32_t (&words)[kRun / 2]) {
#pragma unroll
    for (int j = 0; j < kRun / 2; ++j) words[j] = pack<E>(v[2 * j], v[2 * j + 1]);
}
/// Value j of a run.
template <class E>
__device__ inline float value_of(const std::uint32_t* words, int j) {
    return j % 2 == 0 ? low_of<E>(words[j / 2]) : high_of<E>(words[j / 2]);
}

}  // namespace millrace::ops::cuda::wide
