// The first kernel of forward.cu for whole warpgroups: the same references, margin and results.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// What a thread carries from tile to tile for its two rows; best is the same in the four threads of a row, chosen is 0 in all
/// but one of them, sum is their share.
struct Carried {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, chosen[2] = {};
    int target[2], best[2] = {};
    float factor[2];     ///< of sums over earlier references
    bool rises = false;  ///< some reference of the warp, in this tile
};

/// Raises the references to the tile's largest logits.
__device__ inline void raise(Carried& carried, const float (&largest)[2], const Numbers& logits, int begin, bool exact) {
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
            if (most > before) carried.best[half] = begin + entry;
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

/// Logits of the tile from entry `begin` on become exponentials over the references.
__device__ inline void exponentiate(Numbers& logits, Carried& carried, const float* bias, int begin, int vocabulary, bool exact) {
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
    const auto inside = [&](int half) { return carried.target[half] >= begin && carried.target[half] < begin + kRows; };
    carried.rises = __any_sync(0xffffffffu, largest[0] > carried.top[0] + margin || largest[1] > carried.top[1] + margin);
    if (carried.rises) raise(carried, largest, logits, begin, exact);
    if (__any_sync(0xffffffffu, inside(0) || inside(1))) {
#pragma unroll
        for (int i = 0; i < 64; ++i)
            if (column_of(i / 4, i % 4) == carried.target[i % 4 / 2] - begin) carried.chosen[i % 4 / 2] = logits[i / 32][i % 32];
    }
    const float base[2] = {carried.top[0] * kLog2E, carried.top[1] * kLog2E};
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        float& logit = logits[i / 32][i % 32];
        logit = exp2_fast(fmaf(logit, kLog2E, -base[i % 4 / 2]));
        carried.sum[i % 4 / 2] += logit;
    }
}

template <bool kGradient>
__global__ void __launch_bounds__(warpgroups::kThreads, 1) warpgroup_forward_kernel(const __grid_constant__ Args a) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    const Memory memory(memory_of_block);
    const int begin = blockIdx.x * kRows, part = blockIdx.y, k = blockIdx.z;
    const int all = (a.shape.vocabulary + kRows - 1) / kRows;
    const int first = all * part / a.parts, count = all * (part + 1) / a.parts - first;
    const int group_row = begin + (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
    if (threadIdx.x == 0) memory.begin();
    begin_kernel();
    Carried carried;
    bool mine = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = group_row + row_of(half);
        carried.target[half] =
            threadIdx.x >= 128 && row < a.rows ? target_of(a.ids, a.lengths, k, row, a.shape, a.params.first) : -1;
        mine = mine || carried.target[half] >= 0;
    }
    if (!__syncthreads_or(mine)) return;
    if (threadIdx.x < 128) {
        hopper::give_registers<24>();
        stage_rows(a.x, k, begin, a.rows, a.cols, memory.own());
        hopper::copies_arrive(memory.own_filled());
        fill_ring(memory, count, [&](int n, int stage) {
            const int tile = (first + n) * kRows, entry = tile + threadIdx.x;
            stage_rows(a.weight, k, tile, a.shape.vocabulary, a.cols, memory.tile(stage));
            const bool there = a.bias && entry < a.shape.vocabulary;
            copy4(shared_address(memory.extra<float>(stage) + threadIdx.x), a.bias.row(k, 0, 0) + entry, there);
        });
    } else {
        hopper::take_registers<240>();
        Numbers sums = {};
        const auto change = [&](int n, int stage, Numbers& logits) {
            exponentiate(logits, carried, memory.extra<float>(stage), (first + n) * kRows, a.shape.vocabulary, a.exact);
        };
        multiply_ring<kGradient>(memory, count, sums, change, [&] { rescale(sums, carried); });
        const std::int64_t place = (std::int64_t{part} * a.members + k) * a.rows + group_row;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(carried.sum[half]), chosen = row_sum(carried.chosen[half]);
            if (const int row = row_of(half); threadIdx.x % 4 == 0 && group_row + row < a.rows)
                a.stats[place + row] = make_float4(carried.top[half], sum, chosen, __int_as_float(carried.best[half]));
        }
        if constexpr (kGradient) put_sums(sums, {a.sums + place * a.cols, a.cols}, a.rows - group_row, a.cols);
    }
}

template <bool kGradient>
KernelResult make(Context& c, const Args& a) {
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(warpgroup_forward_kernel<kGradient>)));
    const dim3 grid(blocks_for(a.rows, kRows), static_cast<unsigned>(a.parts), static_cast<unsigned>(a.members));
    return make_launch(c, warpgroup_forward_kernel<kGradient>, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a);
}

}  // namespace

KernelResult make_warpgroup_forward(Context& c, const Args& args, bool gradient) {
    return gradient ? make<true>(c, args) : make<false>(c, args);
}

}  // namespace millrace::ops::cuda::vocabulary
