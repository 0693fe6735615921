// The first kernel of forward.cu for whole warpgroups: the same references, margin and results. Where a block sees all of the
// vocabulary it does what the second one does, too.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// What a thread carries from tile to tile for its two rows; sum is its share of the four threads of a row.
struct Carried {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    float factor[2];     ///< of sums over earlier references
    bool rises = false;  ///< some reference of the warp, in this tile
};
/// What is rarely needed, for each owned row.
struct Rows {
    int target[kRows], best[kRows];
    float chosen[kRows];  ///< the target's logit
};

/// Raises the references to the tile's largest logits.
__device__ inline void raise(Carried& carried, const float (&largest)[2], const Numbers& logits, int begin, int* best,
                             bool exact) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float most = largest[half];
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float before = carried.top[half], now = fmaxf(before, most);
        if (exact) {
            int entry = kRows;
#pragma unroll
            for (int n = kRows / 8 - 1; n >= 0; --n)
#pragma unroll
                for (int e = 1; e >= 0; --e)
                    if (logits[n / 8][n % 8 * 4 + 2 * half + e] == most) entry = column_of(n, e);
            entry = min(entry, __shfl_xor_sync(0xffffffffu, entry, 1));
            entry = min(entry, __shfl_xor_sync(0xffffffffu, entry, 2));
            if (most > before && threadIdx.x % 4 == 0) best[8 * half] = begin + entry;
        }
        carried.factor[half] = before == now ? 1 : exp2_fast((before - now) * kLog2E);
        carried.top[half] = now;
        carried.sum[half] *= carried.factor[half];
    }
}

/// Sums over the references before this tile become sums over those of now.
__device__ inline void rescale(Numbers& sums, const Carried& carried) {
    if (!carried.rises) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[i / 32][i % 32] *= carried.factor[i % 4 / 2];
}

/// Logits of the tile from entry `begin` on become exponentials over the references; `row` is the thread's first.
__device__ inline void exponentiate(Numbers& logits, Carried& carried, Rows& rows, int row, const float* bias, int begin,
                                    int vocabulary, bool exact) {
    if (begin + kRows > vocabulary) {
#pragma unroll
        for (int i = 0; i < 64; ++i)
            if (column_of(i / 4, i % 4) >= vocabulary - begin) logits[i / 32][i % 32] = -INFINITY;
    }
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
        const float2 shift = *reinterpret_cast<const float2*>(bias + column_of(n, 0));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& logit = logits[n / 8][n % 8 * 4 + i];
            logit += i % 2 == 0 ? shift.x : shift.y;
            largest[i / 2] = fmaxf(largest[i / 2], logit);
        }
    }
    const float margin = exact ? 0 : kMargin;
    const int target[2] = {rows.target[row] - begin, rows.target[row + 8] - begin};
    const auto inside = [&](int half) { return target[half] >= 0 && target[half] < kRows; };
    carried.rises = __any_sync(0xffffffffu, largest[0] > carried.top[0] + margin || largest[1] > carried.top[1] + margin);
    if (carried.rises) raise(carried, largest, logits, begin, rows.best + row, exact);
    if (__any_sync(0xffffffffu, inside(0) || inside(1))) {
#pragma unroll
        for (int i = 0; i < 64; ++i)
            if (column_of(i / 4, i % 4) == target[i % 4 / 2]) rows.chosen[row + i % 4 / 2 * 8] = logits[i / 32][i % 32];
    }
    const float base[2] = {carried.top[0] * kLog2E, carried.top[1] * kLog2E};
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        float& logit = logits[i / 32][i % 32];
        logit = exp2_fast(fmaf(logit, kLog2E, -base[i % 4 / 2]));
        carried.sum[i % 4 / 2] += logit;
    }
}

struct ForwardWork {
    const Args& a;
    const Memory& memory;
    Rows& rows;
    int first, count;  ///< tiles of the vocabulary
    int row;           ///< of the block's, the thread's first
    Carried carried = {};

    __device__ int tiles(int number) const { return number == 0 ? count : 0; }
    __device__ void begin(int, int) {}
    __device__ void change(int n, int slot, Numbers& logits) {
        exponentiate(logits, carried, rows, row, memory.extra<float>(slot), (first + n) * kRows, a.shape.vocabulary, a.exact);
    }
    __device__ void settle(int, Numbers& sums) { rescale(sums, carried); }
    __device__ void finish(int, int, Numbers&) {}
};

/// The gradient of row `row`, numbers 2 `half` (+ 1) of each four of the thread's sums.
__device__ inline void put_gradient(const Args& a, int k, int row, int target, const Numbers& sums, int half, float total,
                                    float share) {
    bf16* to = a.dx.row(k, 0, row);
    const bf16* weight = a.weight.row(k, 0, max(target, 0));
    if (target < 0 && a.add_dx) return;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
        const int column = column_of(n, 0);
        if (column >= a.cols) continue;
        auto* both = reinterpret_cast<__nv_bfloat162*>(to + column);
        float2 value = make_float2(0, 0);
        if (target >= 0) {
            const float2 chosen = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(weight + column));
            value.x = (sums[n / 8][n % 8 * 4 + 2 * half] / total - chosen.x) * share;
            value.y = (sums[n / 8][n % 8 * 4 + 2 * half + 1] / total - chosen.y) * share;
        }
        if (a.add_dx) {
            const float2 before = __bfloat1622float2(*both);
            value = make_float2(before.x + value.x, before.y + value.y);
        }
        *both = __floats2bfloat162_rn(value.x, value.y);
    }
}

template <bool kGradient>
__global__ void __launch_bounds__(warpgroups::kThreads, 1)
    warpgroup_forward_kernel(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ int counts[32];
    __shared__ float share;  // not in a register: they are scarce
    __shared__ Rows rows;
    const Memory memory(memory_of_block);
    const int begin = blockIdx.x * kRows, part = blockIdx.y, k = blockIdx.z;
    const int all = (a.shape.vocabulary + kRows - 1) / kRows, first = all * part / a.parts;
    if (threadIdx.x == 0) memory.begin();
    begin_kernel();
    if (a.joined) {
        const float found = put_share(a, k, counts);
        if (threadIdx.x == 0) share = found;
    }
    int target = -1;
    if (threadIdx.x < kRows) {
        const int row = begin + static_cast<int>(threadIdx.x);
        if (row < a.rows) target = target_of(a.ids, a.lengths, k, row, a.shape, a.params.first);
        rows.target[threadIdx.x] = target;
        rows.best[threadIdx.x] = 0;
        rows.chosen[threadIdx.x] = 0;
    }
    const bool needed = __syncthreads_or(target >= 0);
    if (!needed && !a.joined) return;
    const int count = needed ? all * (part + 1) / a.parts - first : 0;
    if (threadIdx.x < 128) {
        hopper::give_registers<24>();
        Filling filling{memory};
        if (count > 0) filling.own(maps.x, k, begin, [](int) {});
        for (int n = 0; n < count; ++n) {
            const int tile = (first + n) * kRows, entry = tile + static_cast<int>(threadIdx.x);
            filling.tile(maps.weight, k, tile, [&](int slot) {
                const bool there = a.bias && entry < a.shape.vocabulary;
                copy4(shared_address(memory.extra<float>(slot) + threadIdx.x), a.bias.row(k, 0, 0) + entry, there);
            });
        }
    } else {
        hopper::take_registers<240>();
        Numbers sums = {};
        const int group_begin = (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
        ForwardWork work{a, memory, rows, first, count, group_begin + row_of(0)};
        multiply_ring<kGradient>(memory, sums, work);
        __syncwarp();
        const std::int64_t place = (std::int64_t{part} * a.members + k) * a.rows + begin;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(work.carried.sum[half]), top = work.carried.top[half];
            const int at = group_begin + row_of(half), row = begin + at;
            if (a.joined) {
                if (threadIdx.x % 4 == 0) put_row(a, k, row, rows.target[at], top, sum, rows.chosen[at], rows.best[at]);
                if (kGradient && row < a.rows) put_gradient(a, k, row, rows.target[at], sums, half, sum, share);
            } else if (threadIdx.x % 4 == 0 && row < a.rows) {
                a.stats[place + at] = make_float4(top, sum, rows.chosen[at], __int_as_float(rows.best[at]));
            }
        }
        const Target target_of_sums{a.sums + (place + group_begin) * a.cols, a.cols};
        if (kGradient && !a.joined) put_sums(sums, target_of_sums, a.rows - begin - group_begin, a.cols);
    }
}

template <bool kGradient>
KernelResult make(Context& c, const Args& a, const Maps& maps) {
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(warpgroup_forward_kernel<kGradient>)));
    const dim3 grid(blocks_for(a.rows, kRows), static_cast<unsigned>(a.parts), static_cast<unsigned>(a.members));
    return make_launch(c, warpgroup_forward_kernel<kGradient>, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a, maps);
}

}  // namespace

KernelResult make_warpgroup_forward(Context& c, const Args& args, const warpgroups::Maps& maps) {
    return args.dx.data != nullptr ? make<true>(c, args, maps) : make<false>(c, args, maps);
}

}  // namespace millrace::ops::cuda::vocabulary
