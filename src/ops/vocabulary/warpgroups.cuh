#pragma once
// The vocabulary head with products of whole warpgroups (compute capability 9.0a), at most 128 columns: what its two kernels
// share. A block owns 128 rows of one matrix, 64 for each of two warpgroups, while tiles of 128 rows of the other one stream
// through a ring that a third warpgroup fills. A tile serves two products, as in FlashAttention-3: with the owned rows over its
// columns, and, while the first product of the next tile runs, with what became of the results over its rows. A block that goes
// on to other owned rows does so without a pause: there is room for the next ones.
//
// Tiles lie in shared memory as two halves of 64 columns, each as hopper.cuh says. The second product reads the same bytes with
// rows as the summed index.

#include <cuda.h>

#include "ops/cuda/async_copy.cuh"
#include "ops/tile/cursor.cuh"
#include "ops/tile/warpgroup_product.cuh"
#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda::vocabulary::warpgroups {

constexpr int kWidth = 128, kRows = 128, kThreads = 384;
constexpr int kStages = 4, kSlots = kStages + 2;  ///< of the ring, and two of owned rows behind them
constexpr std::uint32_t kHalfBytes = kRows * 128, kTileBytes = 2 * kHalfBytes, kExtraBytes = 8 * kRows;
constexpr std::uint32_t kExtras = kSlots * kTileBytes, kBarriers = kExtras + kSlots * kExtraBytes;
constexpr std::size_t kBytes = 1024 + kBarriers + 8 * 2 * kSlots;
constexpr int kHandedOver = 256 * (64 + 2);  ///< floats that a block hands over to the next one: sums, and those of biases

using Numbers = float[2][32];         ///< a thread's of 64 x 128: hopper.cuh, multiply
using Weights = std::uint32_t[8][4];  ///< the same in 16 bits, as the left side of a product over the 128
using tile::Cursor;

/// Boxes of 128 rows and 64 columns, laid out as a half of a tile.
struct Maps {
    CUtensorMap x, weight;
};

/// Shared memory: tiles, what each of them needs besides, and barriers.
struct Memory {
    unsigned char* data;
    std::uint32_t base;

    __device__ explicit Memory(unsigned char* memory)
        : data(memory + (1024 - shared_address(memory) % 1024) % 1024), base(shared_address(data)) {}
    [[nodiscard]] __device__ std::uint32_t tile(int slot) const { return base + slot * kTileBytes; }
    template <class T>
    [[nodiscard]] __device__ T* extra(int slot) const {
        return reinterpret_cast<T*>(data + kExtras + slot * kExtraBytes);
    }
    [[nodiscard]] __device__ std::uint32_t filled(int slot) const { return base + kBarriers + 8 * slot; }
    [[nodiscard]] __device__ std::uint32_t free(int slot) const { return filled(kSlots + slot); }

    /// By one thread.
    __device__ void begin() const {
        for (int s = 0; s < kSlots; ++s) {
            hopper::barrier_init(filled(s), 128 + 1);
            hopper::barrier_init(free(s), 8);
        }
        hopper::barriers_ready();
    }
};

/// What the first warpgroup does: fills the ring of kCount slots from kFirst on. It waits until the next slot is free and copies
/// kRows rows of member k from `row` on; extras(slot) stores what they need besides.
template <int kFirst, int kCount>
struct Filling {
    const Memory& memory;
    Cursor ring = {};

    template <class Extras>
    __device__ void operator()(const CUtensorMap& from, int k, int row, Extras extras) {
        const int slot = kFirst + ring.stage;
        const std::uint32_t filled = memory.filled(slot);
        hopper::barrier_wait(memory.free(slot), ring.phase ^ 1);
        if (threadIdx.x == 0) {
            hopper::barrier_expect(filled, kTileBytes);
            hopper::tensor_copy(memory.tile(slot), &from, 0, row, k, filled);
            hopper::tensor_copy(memory.tile(slot) + kHalfBytes, &from, 64, row, k, filled);
        }
        extras(slot);
        hopper::barrier_arrive(filled);
        ring.template advance<kCount>();
    }
};

/// numbers = 64 owned rows at `own` times the tile's. Descriptors count 16 bytes.
template <class T>
__device__ inline void multiply_across(Numbers& numbers, std::uint32_t own, std::uint32_t tile) {
    const std::uint64_t left = hopper::operand(own), right = hopper::operand(tile);
#pragma unroll
    for (int d = 0; d < kWidth / 16; ++d) {
        const int at = d / 4 * (kHalfBytes / 16) + 2 * (d % 4);
        if (d == 0)
            hopper::multiply_128<T, false>(numbers[0], numbers[1], left, right);
        else
            hopper::multiply_128<T, true>(numbers[0], numbers[1], left + at, right + at);
    }
}

/// sums += weights times the tile's rows.
template <class T>
__device__ inline void multiply_along(Numbers& sums, const Weights& weights, std::uint32_t tile) {
    const std::uint64_t right = hopper::summed_rows(tile, kHalfBytes);
#pragma unroll
    for (int v = 0; v < kRows / 16; ++v) hopper::multiply_128<T>(sums[0], sums[1], weights[v], right + v * (16 * 128 / 16));
}

template <class T>
__device__ inline void to_weights(Weights& weights, const Numbers& numbers) {
#pragma unroll
    for (int v = 0; v < 8; ++v)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            weights[v][i] = pack<T>(numbers[v / 4][v % 4 * 8 + 2 * i], numbers[v / 4][v % 4 * 8 + 2 * i + 1]);
}

__device__ inline void hold(Numbers& numbers) {
    hopper::hold(numbers[0]);
    hopper::hold(numbers[1]);
}

/// Multiplies numbers 2 half (+ 1) of each four by factor[half].
__device__ inline void scale(Numbers& numbers, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 64; ++i) numbers[i / 32][i % 32] *= factor[i % 4 / 2];
}

__device__ inline void clear(Numbers& numbers) {
#pragma unroll
    for (int i = 0; i < 64; ++i) numbers[i / 32][i % 32] = 0;
}

__device__ inline void release(const Memory& memory, int slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) hopper::barrier_arrive(memory.free(slot));
}

/// What the second and third warpgroup do, in turns, so that one computes exponentials while products of the other run; with
/// work:
/// - tiles(number): how many stream past the block's owned rows `number`, 0 behind the last of these;
/// - begin(number, slot): the owned rows have come, with what they need besides;
/// - change(n, slot, numbers) turns products with tile n into weights;
/// - with kSums, those times the tile's rows are added up. The sums still grow during change; before those of tile n are added,
///   settle(n, sums) may rescale them. Before those of other owned rows are, finish(number, slot, sums) gets them, and after the
///   last ones the caller. They start at zero.
template <class T, bool kSums, class Work>
__device__ inline void multiply_ring(const Memory& memory, Numbers& sums, Work& work) {
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be the same in a warp
    const int turn = 1 + group, other = 4 - group;                                       // numbers of barriers
    Numbers numbers;
    Weights weights;
    Cursor owned, ring;
    int last = -1;
    if (group == 2) hopper::give_turn(other);
    // Only what is known to be the same in a warp stays in uniform registers, where products want their addresses.
    const auto tiles = [&](int number) { return __shfl_sync(0xffffffffu, work.tiles(number), 0); };
    for (int number = 0, count = tiles(0); count > 0; count = tiles(++number)) {
        const int slot = kStages + owned.stage;
        const std::uint32_t own = memory.tile(slot) + (group - 1) * 64 * 128;
        hopper::barrier_wait(memory.filled(slot), owned.phase);
        work.begin(number, slot);
        for (int n = 0; n < count; ++n) {
            hopper::barrier_wait(memory.filled(ring.stage), ring.phase);
            hopper::await_turn(turn);
            hopper::products_begin();
            multiply_across<T>(numbers, own, memory.tile(ring.stage));
            hopper::products_commit();
            if (kSums && last >= 0) {
                hopper::products_begin();
                multiply_along<T>(sums, weights, memory.tile(last));
                hopper::products_commit();
                hopper::give_turn(other);
                hopper::products_wait<1>();
            } else {
                hopper::give_turn(other);
                hopper::products_wait<0>();
            }
            hold(numbers);
            work.change(n, ring.stage, numbers);
            if (!kSums) {
                release(memory, ring.stage);
            } else {
                hopper::products_wait<0>();
                hold(sums);
                if (last >= 0) release(memory, last);
                if (n == 0 && number > 0) {
                    const int before = kStages + (owned.stage ^ 1);
                    work.finish(number - 1, before, sums);
                    release(memory, before);
                    clear(sums);
                }
                work.settle(n, sums);
                to_weights<T>(weights, numbers);
                last = ring.stage;
            }
            ring.advance<kStages>();
        }
        owned.advance<2>();
    }
    if (kSums && last >= 0) {
        hopper::products_begin();
        multiply_along<T>(sums, weights, memory.tile(last));
        hopper::products_commit();
        hopper::products_wait<0>();
        hold(sums);
    }
    if (group == 1) hopper::await_turn(turn);  // the one that is left
}

/// The row, of the warpgroup's 64, that numbers 2 half (+ 1) of each four of a thread belong to.
__device__ inline int row_of(int half) {
    return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
}

/// Puts the warpgroup's sums, `rows` rows of `cols` columns of them. Returns a thread's sum of squares. kPlain: no columns are
/// missing, and nothing is added to.
template <bool kPlain>
__device__ inline float put_sums(const Numbers& sums, const Target& target, int rows, int cols) {
    float squares = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row_of(half) >= rows) continue;
        const Target of_row{target.to + row_of(half) * target.stride + column_of(0, 0), 0, target.factor, !kPlain && target.add};
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n)
            if (kPlain || column_of(n, 0) < cols)
                squares += of_row.put_pair(0, 8 * n, sums[n / 8][n % 8 * 4 + 2 * half], sums[n / 8][n % 8 * 4 + 2 * half + 1]);
    }
    return squares;
}
__device__ inline float put_sums(const Numbers& sums, const Target& target, int rows, int cols) {
    if (cols == kWidth && !target.add) return put_sums<true>(sums, target, rows, cols);
    return put_sums<false>(sums, target, rows, cols);
}

}  // namespace millrace::ops::cuda::vocabulary::warpgroups
