// Blocks own entries of the vocabulary, rows of the batch stream: the logits of a tile are computed again and become
// probabilities, less one where an entry is the row's target, whose products with the rows are dweight. All tiles are one line,
// of which every block gets a run of the same length; where a run ends inside of the rows for some entries, the sums are handed
// over. A block goes from entries to entries; the copies of the next ones run while it finishes with these.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// What probabilities are multiplied by, in units of log 2, until sums are written: small ones keep their digits in f16.
template <class T>
constexpr float kShift = std::is_same_v<T, f16> ? 8 : 0;

/// The part of an entry's bias, in units of log 2, that multiplies its sums in the end instead of every exponential: all of it,
/// unless exponentials could become infinite (those of probabilities stay below 2^40, in f16 below 2^12) or vanish (from 2^-86
/// down). Zero or all.
template <class T>
__device__ inline float outside(float bias) {
    constexpr float kMost = std::is_same_v<T, f16> ? 4 : 40;
    return fabsf(bias) < kMost ? bias : 0;
}

/// The rows of a tile, as in RowInfo.
struct RowsOf {
    float logsumexp[kRows];
    std::int32_t target[kRows];
};

/// Products become probabilities over what is left outside, with kTargets less `one` where one of the warp's 16 entries from
/// `first` on is the row's target; with kInside biases of this thread's two entries count. Adds them up for each entry.
template <bool kTargets, bool kInside>
__device__ inline void to_gradients(Numbers& products, const RowsOf& of, const float (&inside)[2], const float (&one)[2],
                                    float (&sum)[2], int first) {
    const int mine = first + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
        const float2 base = *reinterpret_cast<const float2*>(of.logsumexp + column_of(n, 0));
        const int2 target = kTargets ? *reinterpret_cast<const int2*>(of.target + column_of(n, 0)) : int2{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& product = products[n / 8][n % 8 * 4 + i];
            const float less = i % 2 == 0 ? base.x : base.y;
            product = exp2_fast(fmaf(product, kLog2E, kInside ? inside[i / 2] - less : -less));
            if (kTargets && (i % 2 == 0 ? target.x : target.y) == mine + i / 2 * 8) product -= one[i / 2];
            sum[i / 2] += product;
        }
    }
}

/// Whether one of the tile's rows has one of the 16 entries from `first` on as its target.
__device__ inline bool has_targets(const RowsOf& of, int first) {
    const int4 four = reinterpret_cast<const int4*>(of.target)[threadIdx.x % 32];
    const auto owned = [&](int target) { return target >= first && target < first + 16; };
    return __any_sync(0xffffffffu, owned(four.x) || owned(four.y) || owned(four.z) || owned(four.w));
}

/// Tiles of rows that one block takes for 128 entries. Where other blocks have the tiles before or behind them, it takes their
/// sums over and leaves its own.
struct Piece {
    int k, entry, tile, count;
    bool takes, leaves;
};

/// What a block does: parts (128 entries with all rows) `bottom` to `top`, the last one first, of part `top` the tiles before
/// `high`, of part `bottom` those from `low` on. The block before this one has the tiles of `bottom` before these and, unless its
/// run lies inside of one part, begins with them: a block only waits at its end, and only for one that was started before it.
struct Run {
    int owned, all;  ///< blocks of entries of a member, tiles of rows
    int bottom, top, low, high;

    Run() = default;
    __device__ explicit Run(const Args& a) : owned((a.shape.vocabulary + kRows - 1) / kRows), all((a.rows + kRows - 1) / kRows) {
        const std::int64_t tiles = std::int64_t{owned} * a.members * all;
        const std::int64_t begin = tiles * blockIdx.x / a.blocks, end = tiles * (blockIdx.x + 1) / a.blocks;
        bottom = static_cast<int>(begin / all);
        top = static_cast<int>((end - 1) / all);
        low = static_cast<int>(begin - std::int64_t{bottom} * all);
        high = static_cast<int>(end - std::int64_t{top} * all);
    }
    [[nodiscard]] __device__ int pieces() const { return top - bottom + 1; }
    [[nodiscard]] __device__ Piece piece(int number) const {
        const int job = top - number, k = job / owned;
        const int begin = job == bottom ? low : 0, end = job == top ? high : all;
        return {k, (job - k * owned) * kRows, begin, end - begin, begin > 0, end < all};
    }
};

/// Leaves a warp's sums for the block behind this one.
template <int kChunks>
__device__ inline void hand_over(const Args& a, const Sums<kChunks>& sums, const float (&bias_sum)[2]) {
    float* to = a.sums + std::int64_t{blockIdx.x} * handed_over_by(kChunks) + threadIdx.x - 128;
#pragma unroll
    for (int i = 0; i < 32 * kChunks; ++i) __stcg(to + 256 * i, sums[i / 32][i % 32]);
#pragma unroll
    for (int i = 0; i < 2; ++i) __stcg(to + 256 * (32 * kChunks + i), bias_sum[i]);
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) atomicExch(a.handed_over + 8 * blockIdx.x + threadIdx.x / 32 - 4, 1);
}

/// Adds the sums that the same warp of the block before this one has left.
template <int kChunks>
__device__ inline void take_over(const Args& a, Sums<kChunks>& sums, float (&bias_sum)[2]) {
    std::int32_t* there = a.handed_over + 8 * (blockIdx.x - 1) + threadIdx.x / 32 - 4;
    if (threadIdx.x % 32 == 0)
        while (atomicExch(there, 0) == 0) {
        }
    __syncwarp();
    __threadfence();
    const float* from = a.sums + std::int64_t{blockIdx.x - 1} * handed_over_by(kChunks) + threadIdx.x - 128;
#pragma unroll
    for (int i = 0; i < 32 * kChunks; ++i) sums[i / 32][i % 32] += __ldcg(from + 256 * i);
#pragma unroll
    for (int i = 0; i < 2; ++i) bias_sum[i] += __ldcg(from + 256 * (32 * kChunks + i));
}

template <class T, int kChunks>
struct WeightWork {
    const Args& a;
    const Memory<kChunks>& memory;
    const Run& run;
    int row;        ///< of the block's 128, the warp's first
    int entry = 0;  ///< the warp's first
    int own = 0;    ///< place of the entries' biases
    float bias_sum[2] = {}, bias_sum_before[2] = {};
    bool all_outside = false;  ///< no bias belongs to the exponents, in the warp

    [[nodiscard]] __device__ int tiles(int number) const { return number < run.pieces() ? run.piece(number).count : 0; }
    __device__ void begin(int number) {
        entry = run.piece(number).entry + row;
        own = memory.owned_extra(number);
        const auto leaves_none = [&](int half) { return outside<T>(bias_of(own, half)) == bias_of(own, half); };
        all_outside = __all_sync(0xffffffffu, leaves_none(0) && leaves_none(1));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            bias_sum_before[half] = bias_sum[half];
            bias_sum[half] = 0;
        }
    }
    /// In units of log 2, of the thread's entry `half`.
    [[nodiscard]] __device__ float bias_of(int place, int half) const {
        return memory.template extra<float>(place)[row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half] * kLog2E;
    }
    __device__ void change(int, int slot, Numbers& products) {
        const RowsOf& of = *memory.template extra<RowsOf>(slot);
        const bool targets = has_targets(of, entry);
        if (!targets && all_outside) return to_gradients<false, false>(products, of, {}, {}, bias_sum, entry);
        const float bias[2] = {bias_of(own, 0), bias_of(own, 1)}, left_out[2] = {outside<T>(bias[0]), outside<T>(bias[1])};
        const float inside[2] = {bias[0] - left_out[0], bias[1] - left_out[1]};
        if (targets)
            to_gradients<true, true>(products, of, inside,
                                     {exp2_fast(kShift<T> - left_out[0]), exp2_fast(kShift<T> - left_out[1])}, bias_sum, entry);
        else
            to_gradients<false, true>(products, of, inside, {}, bias_sum, entry);
    }
    __device__ void settle(int, Sums<kChunks>&) {}
    __device__ void finish(int number, Sums<kChunks>& sums) { finish(number, sums, bias_sum_before); }
    __device__ void finish(int number, Sums<kChunks>& sums, float (&biases)[2]) {
        const Piece p = run.piece(number);
        if (p.takes) take_over<kChunks>(a, sums, biases);
        if (p.leaves)
            hand_over<kChunks>(a, sums, biases);
        else
            put(p, memory.owned_extra(number), sums, biases);
    }
    __device__ void put(const Piece& p, int place, Sums<kChunks>& sums, const float (&biases)[2]) const {
        const float factor[2] = {exp2_fast(outside<T>(bias_of(place, 0)) - kShift<T>),
                                 exp2_fast(outside<T>(bias_of(place, 1)) - kShift<T>)};
        scale(sums, factor);
        const float share = memory.template extra<float>(place)[kRows];
        const int group_entry = p.entry + row / 64 * 64, left = a.shape.vocabulary - group_entry;
        const Target target{a.dweight.row(p.k, 0, group_entry), a.dweight.stride_row, share, a.add_weight};
        put_squares(a, p.k, (p.entry + row) / 16, put_sums<kChunks>(sums, target, left, a.cols));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(biases[half] * factor[half]);
            if (const int at = row_of(half); a.dbias && threadIdx.x % 4 == 0 && at < left)
                millrace::ops::cuda::put(a.dbias.row(p.k, 0, 0) + group_entry + at, sum * share, a.add_bias);
        }
    }
};

template <class T, int kChunks>
__global__ void __launch_bounds__(warpgroups::kThreads, 1)
    warpgroup_weight_gradient_kernel(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ Run run;  // not in registers: they are scarce
    __shared__ TokenSum token_parts[4];
    const Memory<kChunks> memory(memory_of_block);
    if (threadIdx.x == 0) {
        memory.begin();
        run = Run(a);
    }
    begin_kernel();
    __syncthreads();
    if (threadIdx.x < 128) {
        hopper::give_registers<40>();
        FillOwned<kChunks> fill_owned{memory};
        FillTiles<kChunks> fill_tile{memory};
        for (int number = 0; number < run.pieces(); ++number) {
            const Piece p = run.piece(number);
            const int thread = static_cast<int>(threadIdx.x), entry = p.entry + thread;
            const float bias = a.bias && entry < a.shape.vocabulary ? a.bias.row(p.k, 0, 0)[entry] : 0, share = a.shares[p.k];
            fill_owned(maps.weight, p.k, p.entry, [&](int) {
                auto* extra = memory.template extra<float>(memory.owned_extra(number));
                extra[thread] = bias;
                if (thread == 0) extra[kRows] = share;
            });
            for (int n = 0; n < p.count; ++n) {
                const int row = (p.tile + n) * kRows;
                const RowInfo info = a.info_of(p.k)[row + thread];
                fill_tile(maps.x, p.k, row, [&](int slot) {
                    memory.template extra<RowsOf>(slot)->logsumexp[thread] = info.logsumexp - kShift<T>;
                    memory.template extra<RowsOf>(slot)->target[thread] = info.target;
                });
            }
        }
        for (int k = static_cast<int>(blockIdx.x); k < a.members; k += a.blocks)
            add_token_sums(a, k, 4, token_parts, [] { hopper::await_turn<128>(1); });
    } else {
        hopper::take_registers<232>();
        Sums<kChunks> sums = {};
        WeightWork<T, kChunks> work{a, memory, run, (static_cast<int>(threadIdx.x) / 32 - 4) * 16};
        multiply_ring<T, true, kChunks>(memory, sums, work);
        work.finish(run.pieces() - 1, sums, work.bias_sum);
    }
}

}  // namespace

KernelResult make_weight_gradient(Context& c, const Args& a, const Maps& maps, tensor::DType type) {
    const auto kernel = by_half(type, [&]<class T>(T) {
        return by_chunks(a.cols, []<int kChunks>(Chunks<kChunks>) { return warpgroup_weight_gradient_kernel<T, kChunks>; });
    });
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(static_cast<unsigned>(a.blocks));
    return make_launch(c, kernel, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a, maps);
}

}  // namespace millrace::ops::cuda::vocabulary
