// The first kernel of weight_gradient.cu for whole warpgroups: the same probabilities and results. A block goes from entries to
// entries; the copies of the next ones run while it finishes with these.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// Products become probabilities, with kTargets less one where one of the warp's 16 entries from `first` on is the row's target;
/// `of` has the rows of the tile, bias this thread's two entries, both in units of log 2. Adds them up for each entry.
template <bool kTargets>
__device__ inline void to_gradients(Numbers& products, const RowInfo* of, const float (&bias)[2], float (&sum)[2], int first) {
    const int mine = first + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
        const float4 both = *reinterpret_cast<const float4*>(of + column_of(n, 0));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& product = products[n / 8][n % 8 * 4 + i];
            product = exp2_fast(fmaf(product, kLog2E, bias[i / 2] - (i % 2 == 0 ? both.x : both.z)));
            if (kTargets && __float_as_int(i % 2 == 0 ? both.y : both.w) == mine + i / 2 * 8) product -= 1;
            sum[i / 2] += product;
        }
    }
}

/// Whether one of the tile's rows has one of the 16 entries from `first` on as its target.
__device__ inline bool has_targets(const RowInfo* of, int first) {
    bool owned = false;
#pragma unroll
    for (int i = 0; i < kRows; i += 32) {
        const int target = of[static_cast<int>(threadIdx.x) % 32 + i].target;
        owned = owned || (target >= first && target < first + 16);
    }
    return __any_sync(0xffffffffu, owned);
}

/// Tiles of rows that one block takes for 128 entries. Where other blocks have the tiles before or behind them, it takes their
/// sums over and leaves its own.
struct Piece {
    int k, part, entry, tile, count;
    bool takes, leaves;
};

/// What a block does: parts `bottom` to `top`, the last one first. With hand-over all tiles of all parts are one row, of which
/// every block gets a run of the same length, at least that of a part: of part `top` the tiles before `high`, of part `bottom`
/// those from `low` on. The block before this one begins with the other tiles of `bottom`: a block only waits at its end, and
/// only for one that was started before it.
struct Run {
    int owned, all, parts;  ///< blocks of entries, tiles of rows, parts of these
    int bottom, top, low, high;

    Run() = default;
    __device__ explicit Run(const Args& a)
        : owned((a.shape.vocabulary + kRows - 1) / kRows), all((a.rows + kRows - 1) / kRows), parts(a.weight_parts) {
        const std::int64_t unit = a.handed_over != nullptr ? all : 1, units = std::int64_t{owned} * a.members * parts * unit;
        const std::int64_t begin = units * blockIdx.x / a.blocks, end = units * (blockIdx.x + 1) / a.blocks;
        bottom = static_cast<int>(begin / unit);
        top = static_cast<int>((end - 1) / unit);
        low = static_cast<int>(begin - bottom * unit);
        high = a.handed_over != nullptr ? static_cast<int>(end - top * unit) : all;
    }
    [[nodiscard]] __device__ int pieces() const { return top - bottom + 1; }
    [[nodiscard]] __device__ Piece piece(int number) const {
        const int job = top - number, rest = job / owned, k = rest / parts, part = rest - k * parts;
        const int first = all * part / parts, last = all * (part + 1) / parts;
        const int begin = job == bottom ? first + low : first, end = job == top ? min(first + high, last) : last;
        return {k, part, (job - rest * owned) * kRows, begin, end - begin, begin > first, end < last};
    }
};

/// Leaves a warp's sums for the block behind this one.
__device__ inline void hand_over(const Args& a, const Numbers& sums, const float (&bias_sum)[2]) {
    float* to = a.sums + std::int64_t{blockIdx.x} * kHandedOver + threadIdx.x - 128;
#pragma unroll
    for (int i = 0; i < 64; ++i) __stcg(to + 256 * i, sums[i / 32][i % 32]);
#pragma unroll
    for (int i = 0; i < 2; ++i) __stcg(to + 256 * (64 + i), bias_sum[i]);
    __threadfence();
    __syncwarp();
    if (threadIdx.x % 32 == 0) atomicExch(a.handed_over + 8 * blockIdx.x + threadIdx.x / 32 - 4, 1);
}

/// Adds the sums that the same warp of the block before this one has left.
__device__ inline void take_over(const Args& a, Numbers& sums, float (&bias_sum)[2]) {
    std::int32_t* there = a.handed_over + 8 * (blockIdx.x - 1) + threadIdx.x / 32 - 4;
    if (threadIdx.x % 32 == 0)
        while (atomicExch(there, 0) == 0) {
        }
    __syncwarp();
    __threadfence();
    const float* from = a.sums + std::int64_t{blockIdx.x - 1} * kHandedOver + threadIdx.x - 128;
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[i / 32][i % 32] += __ldcg(from + 256 * i);
#pragma unroll
    for (int i = 0; i < 2; ++i) bias_sum[i] += __ldcg(from + 256 * (64 + i));
}

struct WeightWork {
    const Args& a;
    const Memory& memory;
    const Run& run;
    int row;        ///< of the block's 128, the warp's first
    int entry = 0;  ///< the warp's first
    float bias[2] = {}, bias_sum[2] = {}, bias_sum_before[2] = {};

    [[nodiscard]] __device__ int tiles(int number) const { return number < run.pieces() ? run.piece(number).count : 0; }
    __device__ void begin(int number, int slot) {
        entry = run.piece(number).entry + row;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * half;
            bias[half] = memory.extra<float>(slot)[at] * kLog2E;
            bias_sum_before[half] = bias_sum[half];
            bias_sum[half] = 0;
        }
    }
    __device__ void change(int, int slot, Numbers& products) {
        const RowInfo* of = memory.extra<RowInfo>(slot);
        if (has_targets(of, entry))
            to_gradients<true>(products, of, bias, bias_sum, entry);
        else
            to_gradients<false>(products, of, bias, bias_sum, entry);
    }
    __device__ void settle(int, Numbers&) {}
    __device__ void finish(int number, int slot, Numbers& sums) {
        const Piece p = run.piece(number);
        if (p.leaves)
            hand_over(a, sums, bias_sum_before);
        else
            put(p, slot, sums, bias_sum_before);
    }
    __device__ void finish_last(Numbers& sums) {
        const int number = run.pieces() - 1;
        const Piece p = run.piece(number);
        if (p.takes) take_over(a, sums, bias_sum);
        put(p, kStages + number % 2, sums, bias_sum);
    }
    __device__ void put(const Piece& p, int slot, const Numbers& sums, const float (&biases)[2]) const {
        const float share = memory.extra<float>(slot)[kRows];
        const int group_entry = p.entry + row / 64 * 64, left = a.shape.vocabulary - group_entry;
        const float squares = put_sums(sums, a.weight_target(p.part, p.k, group_entry, share), left, a.cols);
        if (a.direct) put_squares(a, p.k, (p.entry + row) / 16, squares);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(biases[half]);
            if (const int at = row_of(half); threadIdx.x % 4 == 0 && at < left)
                a.put_bias(p.part, p.k, group_entry + at, sum, share);
        }
    }
};

__global__ void __launch_bounds__(warpgroups::kThreads, 1)
    warpgroup_weight_gradient_kernel(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ Run run;  // not in registers: they are scarce
    const Memory memory(memory_of_block);
    if (threadIdx.x == 0) {
        memory.begin();
        run = Run(a);
    }
    begin_kernel();
    __syncthreads();
    if (threadIdx.x < 128) {
        hopper::give_registers<24>();
        Filling filling{memory};
        for (int number = 0; number < run.pieces(); ++number) {
            const Piece p = run.piece(number);
            filling.own(maps.weight, p.k, p.entry, [&](int slot) {
                const int entry = p.entry + static_cast<int>(threadIdx.x);
                const std::uint32_t extra = shared_address(memory.extra<float>(slot));
                copy4(extra + 4 * threadIdx.x, a.bias.row(p.k, 0, 0) + entry, a.bias && entry < a.shape.vocabulary);
                if (threadIdx.x == 0) copy4(extra + 4 * kRows, a.shares + p.k, true);
            });
            for (int n = 0; n < p.count; ++n) {
                const int row = (p.tile + n) * kRows, pair = 2 * static_cast<int>(threadIdx.x);
                filling.tile(maps.x, p.k, row, [&](int slot) {
                    if (pair < kRows)
                        copy16(shared_address(memory.extra<RowInfo>(slot) + pair), a.info_of(p.k) + row + pair, true);
                });
            }
        }
    } else {
        hopper::take_registers<240>();
        Numbers sums = {};
        WeightWork work{a, memory, run, (static_cast<int>(threadIdx.x) / 32 - 4) * 16};
        multiply_ring<true>(memory, sums, work);
        work.finish_last(sums);
    }
}

}  // namespace

KernelResult make_warpgroup_weight_gradient(Context& c, const Args& a, const warpgroups::Maps& maps) {
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(warpgroup_weight_gradient_kernel)));
    const dim3 grid(static_cast<unsigned>(a.blocks));
    return make_launch(c, warpgroup_weight_gradient_kernel, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a, maps);
}

}  // namespace millrace::ops::cuda::vocabulary
