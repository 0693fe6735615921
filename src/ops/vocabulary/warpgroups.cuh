#pragma once
// The vocabulary head (bf16 and f16), logits in tiles alone, with products of whole warpgroups (compute capability 9.0a), at most
// 256 columns: what its two kernels share. A block owns 128 rows of one matrix, 64 for each of two warpgroups, while tiles of 128
// rows of the other one stream through a ring that a third warpgroup fills. A tile serves two products, as in FlashAttention-3:
// with the owned rows over its columns, and with what became of the results over its rows. Where registers suffice, the second
// one runs while the first one of the next tile does; otherwise the other warpgroup's products fill the time in between.
//
// Tiles lie in shared memory as kChunks of 64 columns, each as hopper.cuh says. The second product reads the same bytes with
// rows as the summed index.

#include <cuda.h>

#include "ops/cuda/async_copy.cuh"
#include "ops/cuda/cluster.cuh"
#include "ops/text/token_sums.cuh"
#include "ops/tile/element.cuh"
#include "ops/tile/hopper.cuh"
#include "ops/tile/ring.cuh"
#include "ops/vocabulary/vocabulary.h"

namespace millrace::ops::cuda::vocabulary {

/// Sums are only rescaled when a logit exceeds the reference by this much (e^6 leaves f32 and bf16 their precision), unless the
/// largest one is to be found.
constexpr float kMargin = 6;

using Bits = std::uint16_t;  ///< an element of bf16 or f16

/// What the rows of the batch leave for the gradient of the weights, [K][rows up to a multiple of 128].
struct RowInfo {
    float logsumexp;      ///< in units of log 2; infinite unless the row predicts a token of the vocabulary
    std::int32_t target;  ///< -1: none
};

/// The id that a row predicts, -1: none, -2: one outside of the vocabulary.
__device__ inline int target_of(const Mat<const std::int32_t>& ids, const Mat<const std::int32_t>& lengths, int k, int row,
                                const TokenShape& shape, int first) {
    const int sequence = row / shape.positions, t = row - sequence * shape.positions - first;
    if (t < 0 || t >= tokens_of(lengths, k, sequence, shape.tokens)) return -1;
    const std::int32_t id = ids.row(k, 0, sequence)[t];
    return id >= 0 && id < shape.vocabulary ? id : -2;
}

/// What the launches of one vocabulary_loss share.
struct Args : TokenSums {
    Mat<const Bits> x, weight;
    Mat<const float> bias;
    Mat<const std::int32_t> ids;
    Mat<float> losses;
    Mat<Bits> dx;               ///< optional
    Mat<float> dweight, dbias;  ///< each optional
    int members = 0, rows = 0, cols = 0;
    bool exact = false;  ///< the largest logit's entry is wanted
    bool add_dx = false, add_weight = false, add_bias = false;
    int parts = 1;                        ///< of the vocabulary for a block of rows
    int blocks = 1;                       ///< of the kernel for the weights, which share its tiles evenly
    float* sums = nullptr;                ///< handed over from block to block
    std::int32_t* handed_over = nullptr;  ///< [blocks][8]: whether they are there, zeros
    float* shares = nullptr;              ///< [K]: factor of a token's gradients in the mean over the member's, 0 without tokens
    RowInfo* info = nullptr;
    float* squares = nullptr;  ///< [K][square_parts]: sums of squares of dweight, for the norm; null: not computed
    int square_parts = 0;

    [[nodiscard]] __host__ __device__ int padded_rows() const { return (rows + 127) / 128 * 128; }
    [[nodiscard]] __device__ RowInfo* info_of(int k) const { return info + std::int64_t{k} * padded_rows(); }
};

/// Leaves the share of member k's tokens, times the scale of its loss, and returns it; by all threads of a block, `shared` as in
/// block_sum.
__device__ inline float put_share(const Args& a, int k, int* shared) {
    const double divisor = block_divisor(a, k, shared);
    const float share = divisor > 0 ? static_cast<float>(a.params.scale / divisor) * a.state[k].loss_scale : 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) a.shares[k] = share;
    return share;
}

/// Leaves what follows from a row's largest logit, the sum of exponentials over it, the target's logit and the entry of the
/// largest. Rows up to the end of the last tile get their info.
__device__ inline void put_row(const Args& a, int k, int row, int target, float top, float sum, float logit, int best) {
    const float log_sum = logf(sum), loss = log_sum - (logit - top);
    a.info_of(k)[row] = target < 0 ? RowInfo{INFINITY, -1} : RowInfo{(top + log_sum) * kLog2E, target};
    if (row >= a.rows) return;
    a.found[std::int64_t{k} * a.rows + row] =
        target < 0 ? Found{0, 0, target == -2} : Found{loss, best == target, !isfinite(loss)};
    *a.losses.row(k, 0, row) = target < 0 ? 0 : loss;
}

/// The sum over a warp is number `part` of member k's sums of squares.
__device__ inline void put_squares(const Args& a, int k, int part, float sum) {
    if (a.squares == nullptr) return;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) a.squares[std::int64_t{k} * a.square_parts + part] = sum;
}

/// Boxes of 128 rows and 64 columns, laid out as a chunk of a tile.
struct Maps {
    CUtensorMap x, weight;
};

/// How many clusters of `parts` blocks of the forward kernel run at once.
int active_clusters(const Context& c, int parts);
/// Logits and their sums: info, found, shares, losses and dx. `type`: of the elements.
KernelResult make_forward(Context& c, const Args& args, const Maps& maps, tensor::DType type);
/// dweight and dbias from info; the warps that copy also add up what was found.
KernelResult make_weight_gradient(Context& c, const Args& args, const Maps& maps, tensor::DType type);

namespace warpgroups {

constexpr int kRows = 128, kThreads = 384, kMostColumns = 256;
constexpr std::uint32_t kChunkBytes = kRows * 128, kExtraBytes = 8 * kRows;
constexpr int kRoom = 12, kMostSlots = 6;  ///< chunks in shared memory, and tiles
constexpr std::uint32_t kExtras = kRoom * kChunkBytes, kBarriers = kExtras + (kMostSlots + 2) * kExtraBytes;
constexpr std::size_t kBytes = 1024 + kBarriers + 8 * (kRoom + kMostSlots);

/// Of 64 columns, in rows of `cols`.
constexpr int chunks_of(int cols) { return cols <= 128 ? 2 : cols <= 192 ? 3 : 4; }
template <int kChunks>
using Chunks = std::integral_constant<int, kChunks>;
/// f with their number.
template <class F>
auto by_chunks(int cols, F f) {
    const int chunks = chunks_of(cols);
    return chunks == 2 ? f(Chunks<2>{}) : chunks == 3 ? f(Chunks<3>{}) : f(Chunks<4>{});
}
/// Floats that a block hands over to the next one: sums, and those of biases.
constexpr int handed_over_by(int chunks) { return 256 * (32 * chunks + 2); }

using Numbers = float[2][32];  ///< a thread's of 64 x 128: tile/hopper.cuh
template <int kChunks>
using Sums = float[kChunks][32];
using Weights = std::uint32_t[8][4];  ///< numbers in 16 bits, as the left side of a product over the 128
using tile::Cursor;

/// Shared memory: tiles, what each of them needs besides, and barriers. Slots 0 to kStages - 1 are the ring, kOwned behind them
/// have owned rows.
template <int kChunks>
struct Memory {
    static constexpr int kSlots = kRoom / kChunks, kOwned = kChunks == 2 ? 2 : 1, kStages = kSlots - kOwned;
    static constexpr bool kOverlaps = kChunks < 4;  ///< registers suffice for the weights of one tile and the numbers of the next
    unsigned char* data;
    std::uint32_t base;

    __device__ explicit Memory(unsigned char* memory)
        : data(memory + (1024 - shared_address(memory) % 1024) % 1024), base(shared_address(data)) {}
    [[nodiscard]] __device__ std::uint32_t tile(int slot) const { return base + slot * kChunks * kChunkBytes; }
    /// Of a slot of the ring, or owned_extra().
    template <class T>
    [[nodiscard]] __device__ T* extra(int place) const {
        return reinterpret_cast<T*>(data + kExtras + place * kExtraBytes);
    }
    /// Of the block's owned rows `number`. They are needed until those of `number` + 1 are multiplied, and a slot is filled again
    /// before that is known.
    [[nodiscard]] static __device__ int owned_extra(int number) { return kStages + number % (kOwned + 2); }
    [[nodiscard]] __device__ std::uint32_t filled(int slot, int chunk) const {
        return base + kBarriers + 8 * (slot * kChunks + chunk);
    }
    [[nodiscard]] __device__ std::uint32_t free(int slot) const { return base + kBarriers + 8 * (kRoom + slot); }

    /// By one thread.
    __device__ void begin() const {
        for (int s = 0; s < kSlots; ++s) {
            for (int c = 0; c < kChunks; ++c) hopper::barrier_init(filled(s, c), c == 0 ? 128 + 1 : 1);
            hopper::barrier_init(free(s), 8);
        }
        hopper::barriers_ready();
    }
};

/// What the first warpgroup does: fills the ring of kCount slots from kFirst on. It waits until the next slot is free and copies
/// kRows rows of member k from `row` on; extras(slot) stores what they need besides.
template <int kChunks, int kFirst, int kCount>
struct Filling {
    const Memory<kChunks>& memory;
    Cursor ring = {};

    template <class Extras>
    __device__ void operator()(const CUtensorMap& from, int k, int row, Extras extras) {
        const int slot = kFirst + ring.stage;
        hopper::barrier_wait(memory.free(slot), ring.phase ^ 1);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int c = 0; c < kChunks; ++c) {
                hopper::barrier_expect(memory.filled(slot, c), kChunkBytes);
                tile::copy_box(memory.tile(slot) + c * kChunkBytes, from, 64 * c, row, 0, k, memory.filled(slot, c), 1);
            }
        }
        extras(slot);
        hopper::barrier_arrive(memory.filled(slot, 0));
        ring.template advance<kCount>();
    }
};
template <int kChunks>
using FillTiles = Filling<kChunks, 0, Memory<kChunks>::kStages>;
template <int kChunks>
using FillOwned = Filling<kChunks, Memory<kChunks>::kStages, Memory<kChunks>::kOwned>;

/// numbers = 64 owned rows at `own` times the tile's, as its chunks come. Descriptors count 16 bytes.
template <class T, int kChunks>
__device__ inline void multiply_across(Numbers& numbers, std::uint32_t own, const Memory<kChunks>& memory, const Cursor& ring) {
    const std::uint64_t left = hopper::operand(own), right = hopper::operand(memory.tile(ring.stage));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        hopper::barrier_wait(memory.filled(ring.stage, c), ring.phase);
        hopper::products_begin();
#pragma unroll
        for (int d = 0; d < 4; ++d) {
            const int at = c * (kChunkBytes / 16) + 2 * d;
            tile::multiply_step<T, false, false>(numbers, left + at, right + at, at > 0 ? 1 : 0);
        }
    }
}

/// sums += weights times the tile's rows.
template <class T, int kChunks>
__device__ inline void multiply_along(Sums<kChunks>& sums, const Weights& weights, std::uint32_t tile) {
    const std::uint64_t right = hopper::summed_rows(tile, kChunkBytes);
#pragma unroll
    for (int v = 0; v < kRows / 16; ++v) hopper::multiply_along<T>(sums, weights[v], right + v * (16 * 128 / 16));
}

template <class T>
__device__ inline void to_weights(Weights& weights, const Numbers& numbers) {
#pragma unroll
    for (int v = 0; v < 8; ++v)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            weights[v][i] = pack<T>(numbers[v / 4][v % 4 * 8 + 2 * i], numbers[v / 4][v % 4 * 8 + 2 * i + 1]);
}

template <int kCount>
__device__ inline void hold(float (&numbers)[kCount][32]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) hopper::hold(numbers[i]);
}

/// Multiplies numbers 2 half (+ 1) of each four by factor[half].
template <int kCount>
__device__ inline void scale(float (&numbers)[kCount][32], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 32 * kCount; ++i) numbers[i / 32][i % 32] *= factor[i % 4 / 2];
}

template <int kCount>
__device__ inline void clear(float (&numbers)[kCount][32]) {
#pragma unroll
    for (int i = 0; i < 32 * kCount; ++i) numbers[i / 32][i % 32] = 0;
}

template <int kChunks>
__device__ inline void release(const Memory<kChunks>& memory, int slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) hopper::barrier_arrive(memory.free(slot));
}

/// What the second and third warpgroup do, in turns, so that one computes exponentials while products of the other run; with
/// work:
/// - tiles(number): how many stream past the block's owned rows `number`, 0 behind the last of these;
/// - begin(number): the owned rows have come, with what they need besides;
/// - change(n, slot, numbers) turns products with tile n into weights;
/// - with kSums, those times the tile's rows are added up. The sums may still grow during change; before those of tile n are
///   added, settle(n, sums) may rescale them. Before those of other owned rows are, finish(number, sums) gets them, and after
///   the last ones the caller. They start at zero.
template <class T, bool kSums, int kChunks, class Work>
__device__ inline void multiply_ring(const Memory<kChunks>& memory, Sums<kChunks>& sums, Work& work) {
    using Room = Memory<kChunks>;
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // known to be the same in a warp
    const int turn = 1 + group, other = 4 - group;                                       // numbers of barriers
    Numbers numbers;
    Weights weights;
    Cursor owned, ring;
    int last = -1;
    const auto begin_sums = [&] {
        hopper::products_begin();
        multiply_along<T, kChunks>(sums, weights, memory.tile(last));
        hopper::products_commit();
    };
    const auto end_sums = [&] {
        hopper::products_wait<0>();
        hold(sums);
        if (last >= 0) release(memory, last);
    };
    if (group == 2) hopper::give_turn(other);
    // Only what is known to be the same in a warp stays in uniform registers, where products want their addresses.
    const auto tiles = [&](int number) { return __shfl_sync(0xffffffffu, work.tiles(number), 0); };
    for (int number = 0, count = tiles(0); count > 0; count = tiles(++number)) {
        const int slot = Room::kStages + owned.stage;
        const std::uint32_t own = memory.tile(slot) + (group - 1) * 64 * 128;
        for (int c = 0; c < kChunks; ++c) hopper::barrier_wait(memory.filled(slot, c), owned.phase);
        work.begin(number);
        for (int n = 0; n < count; ++n) {
            const bool adds = kSums && last >= 0;
            hopper::await_turn(turn);
            if (!Room::kOverlaps) {  // the other one's second product runs beside this one's first
                if (adds) {
                    begin_sums();
                    end_sums();
                }
                hopper::give_turn(other);
            }
            multiply_across<T, kChunks>(numbers, own, memory, ring);
            hopper::products_commit();
            if (adds && Room::kOverlaps) {
                begin_sums();
                hopper::give_turn(other);
                hopper::products_wait<1>();
            } else {
                if (Room::kOverlaps) hopper::give_turn(other);
                hopper::products_wait<0>();
            }
            hold(numbers);
            if (n + 1 == count) release(memory, slot);
            work.change(n, ring.stage, numbers);
            if (!kSums) {
                release(memory, ring.stage);
            } else {
                if (Room::kOverlaps) end_sums();
                if (n == 0 && number > 0) {
                    work.finish(number - 1, sums);
                    __syncwarp();  // whole before the next product
                    clear(sums);
                }
                work.settle(n, sums);
                to_weights<T>(weights, numbers);
                last = ring.stage;
            }
            ring.advance<Room::kStages>();
        }
        owned.advance<Room::kOwned>();
    }
    if (kSums && last >= 0) {
        begin_sums();
        end_sums();
    }
    if (group == 1) hopper::await_turn(turn);  // the one that is left
}

/// The row, of the warpgroup's 64, that numbers 2 half (+ 1) of each four of a thread belong to.
__device__ inline int row_of(int half) {
    return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
}

/// Where rows of sums go, from the first of a warpgroup on: to (+) = factor * sum. Pairs lie at multiples of 8 bytes.
struct Target {
    float* to;
    std::int64_t stride;
    float factor = 1;
    bool add = false;
};

/// Puts the warpgroup's sums, `rows` rows of `cols` columns of them. Returns a thread's sum of squares. kPlain: no columns are
/// missing, and nothing is added to.
template <bool kPlain, int kChunks>
__device__ inline float put_pairs(const Sums<kChunks>& sums, const Target& target, int rows, int cols) {
    float squares = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (row_of(half) >= rows) continue;
        float* to = target.to + row_of(half) * target.stride + column_of(0, 0);
#pragma unroll
        for (int n = 0; n < 8 * kChunks; ++n) {
            if (!kPlain && column_of(n, 0) >= cols) continue;
            auto* at = reinterpret_cast<float2*>(to + 8 * n);
            const float2 before = !kPlain && target.add ? *at : make_float2(0, 0);
            const float* pair = sums[n / 8] + n % 8 * 4 + 2 * half;
            const float2 now = make_float2(before.x + target.factor * pair[0], before.y + target.factor * pair[1]);
            *at = now;
            squares += now.x * now.x + now.y * now.y;
        }
    }
    return squares;
}
template <int kChunks>
__device__ inline float put_sums(const Sums<kChunks>& sums, const Target& target, int rows, int cols) {
    if (cols == 64 * kChunks && !target.add) return put_pairs<true, kChunks>(sums, target, rows, cols);
    return put_pairs<false, kChunks>(sums, target, rows, cols);
}

}  // namespace warpgroups
}  // namespace millrace::ops::cuda::vocabulary
