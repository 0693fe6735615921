// Blocks own rows of the batch, the vocabulary streams, as in FlashAttention with keys = values = weights: the logits of a tile
// become exponentials over the largest so far, whose products with the weights are the first part of dx. Several blocks may share
// the vocabulary of the same rows (forward.cu joins them). Where a block sees all of it, it finishes its rows and looks for
// largest logits only if it must: it first takes 0 as the reference of all rows, and begins again where a row's sum of
// exponentials turns out to be too small or too large for that.

#include "ops/vocabulary/warpgroups.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

using namespace warpgroups;

/// The fixed reference, in units of log 2. The exponentials of logits around 0 stand in the middle of what f16 holds.
template <class T>
constexpr float kReference = std::is_same_v<T, f16> ? 8 : 0;

/// Whether a row's sum of exponentials over it is as good as one over the row's largest logit. In bf16 those below 2^-126 are
/// zero: with up to 2^20 entries those missing are less than 2^-26 of a sum of 2^-80. One of 2^80 times weights up to 2^47 is
/// finite. In f16 none is infinite, and their mean has all digits.
template <class T>
__device__ inline bool fits_reference(float sum, int entries) {
    if constexpr (std::is_same_v<T, f16>)
        return sum > static_cast<float>(entries) * 0x1p-14f && sum < 65504;
    else
        return sum > 0x1p-80f && sum < 0x1p80f;
}

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

/// Keeps the logits of targets in the tile from entry `begin` on; `row` is the thread's first. Biases in units of 1 / unit, less
/// `reference` of these.
__device__ inline void keep_targets(const Numbers& products, Rows& rows, int row, const float* bias, int begin, float unit,
                                    float reference) {
    const int target[2] = {rows.target[row] - begin, rows.target[row + 8] - begin};
    const auto inside = [&](int half) { return target[half] >= 0 && target[half] < kRows; };
    if (!__any_sync(0xffffffffu, inside(0) || inside(1))) return;
    float product[2] = {};
#pragma unroll
    for (int i = 0; i < 64; ++i)
        if (column_of(i / 4, i % 4) == target[i % 4 / 2]) product[i % 4 / 2] = products[i / 32][i % 32];
#pragma unroll
    for (int half = 0; half < 2; ++half)
        if (inside(half) && target[half] % 8 / 2 == static_cast<int>(threadIdx.x) % 4)
            rows.chosen[row + 8 * half] = product[half] + (bias[target[half]] + reference) / unit;
}

/// Products with the tile from entry `begin` on become exponentials over the references, with kFixed over the fixed one. Biases,
/// with kFixed in units of log 2 and less that reference, are -inf behind the vocabulary.
template <class T, bool kFixed>
__device__ inline void exponentiate(Numbers& logits, Carried& carried, Rows& rows, int row, const float* bias, int begin,
                                    bool exact) {
    keep_targets(logits, rows, row, bias, begin, kFixed ? kLog2E : 1, kFixed ? kReference<T> : 0);
    float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
        const float2 both = *reinterpret_cast<const float2*>(bias + column_of(n, 0));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float &logit = logits[n / 8][n % 8 * 4 + i], shift = i % 2 == 0 ? both.x : both.y;
            logit = kFixed ? exp2_fast(fmaf(logit, kLog2E, shift)) : logit + shift;
            if (kFixed) carried.sum[i / 2] += logit;
            if (!kFixed) largest[i / 2] = fmaxf(largest[i / 2], logit);
        }
    }
    if (kFixed) return;
    const float margin = exact ? 0 : kMargin;
    carried.rises = __any_sync(0xffffffffu, largest[0] > carried.top[0] + margin || largest[1] > carried.top[1] + margin);
    if (carried.rises) raise(carried, largest, logits, begin, rows.best + row, exact);
    const float base[2] = {carried.top[0] * kLog2E, carried.top[1] * kLog2E};
#pragma unroll
    for (int i = 0; i < 64; ++i) {
        float& logit = logits[i / 32][i % 32];
        logit = exp2_fast(fmaf(logit, kLog2E, -base[i % 4 / 2]));
        carried.sum[i % 4 / 2] += logit;
    }
}

template <class T, int kChunks>
struct ForwardWork {
    const Args& a;
    const Memory<kChunks>& memory;
    Rows& rows;
    int first, count;  ///< tiles of the vocabulary
    int row;           ///< of the block's, the thread's first
    bool fixed;        ///< the reference is
    Carried carried = {};

    /// The tiles come a second time if some row needs another reference than the fixed one.
    [[nodiscard]] __device__ int tiles(int number) const {
        if (number == 0 || !fixed) return number == 0 ? count : 0;
        const auto fits = [&](int half) {
            const float sum = row_sum(carried.sum[half]);
            return rows.target[row + 8 * half] < 0 || fits_reference<T>(sum, a.shape.vocabulary);
        };
        const bool first = fits(0), second = fits(1);
        return __syncthreads_or(!first || !second) ? count : 0;
    }
    __device__ void begin(int number) {
        fixed = fixed && number == 0;
        carried = {};
    }
    __device__ void change(int n, int slot, Numbers& logits) {
        const float* bias = memory.template extra<float>(slot);
        const int begin = (first + n) * kRows;
        if (fixed)
            exponentiate<T, true>(logits, carried, rows, row, bias, begin, a.exact);
        else
            exponentiate<T, false>(logits, carried, rows, row, bias, begin, a.exact);
    }
    __device__ void settle(int, Sums<kChunks>& sums) {
        if (carried.rises) scale(sums, carried.factor);
    }
    __device__ void finish(int, Sums<kChunks>&) {}
};

/// The gradient of row `row`, numbers 2 `half` (+ 1) of each four of the thread's sums.
template <class T, int kChunks>
__device__ inline void put_gradient(const Args& a, int k, int row, int target, const Sums<kChunks>& sums, int half, float total,
                                    float share) {
    auto* to = reinterpret_cast<std::uint32_t*>(a.dx.row(k, 0, row) + column_of(0, 0));
    const auto* weight = reinterpret_cast<const std::uint32_t*>(a.weight.row(k, 0, max(target, 0)) + column_of(0, 0));
    const float factor = share / total;
    std::uint32_t chosen[8 * kChunks];
#pragma unroll
    for (int n = 0; n < 8 * kChunks; ++n)  // all on their way before the first one is needed
        if (column_of(n, 0) < a.cols) chosen[n] = weight[4 * n];
#pragma unroll
    for (int n = 0; n < 8 * kChunks; ++n) {
        if (column_of(n, 0) >= a.cols) continue;
        float2 value = make_float2(fmaf(sums[n / 8][n % 8 * 4 + 2 * half], factor, -low_of<T>(chosen[n]) * share),
                                   fmaf(sums[n / 8][n % 8 * 4 + 2 * half + 1], factor, -high_of<T>(chosen[n]) * share));
        if (target < 0) value = make_float2(0, 0);
        const std::uint32_t before = a.add_dx ? to[4 * n] : 0;
        to[4 * n] = pack<T>(low_of<T>(before) + value.x, high_of<T>(before) + value.y);
    }
}

template <class T, bool kGradient, int kChunks>
__global__ void __launch_bounds__(warpgroups::kThreads, 1)
    warpgroup_forward_kernel(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ int counts[32];
    __shared__ float share;  // not in a register: they are scarce
    __shared__ Rows rows;
    const Memory<kChunks> memory(memory_of_block);
    const int begin = blockIdx.x * kRows, part = blockIdx.y, k = blockIdx.z;
    const int all = (a.shape.vocabulary + kRows - 1) / kRows, first = all * part / a.parts;
    if (threadIdx.x == 0) memory.begin();
    begin_kernel();
    int target = -1;
    if (const int row = begin + static_cast<int>(threadIdx.x); threadIdx.x < kRows && row < a.rows)
        target = target_of(a.ids, a.lengths, k, row, a.shape, a.params.first);
    if (a.joined) {  // while the targets come
        const float found = put_share(a, k, counts);
        if (threadIdx.x == 0) share = found;
    }
    if (threadIdx.x < kRows) {
        rows.target[threadIdx.x] = target;
        rows.best[threadIdx.x] = 0;
        rows.chosen[threadIdx.x] = 0;
    }
    const bool needed = __syncthreads_or(target >= 0);
    if (!needed && !a.joined) return;
    const int count = needed ? all * (part + 1) / a.parts - first : 0;
    const bool over_fixed = a.joined && !a.exact;
    if (threadIdx.x < 128) {
        hopper::give_registers<24>();
        FillOwned<kChunks> fill_owned{memory};
        FillTiles<kChunks> fill_tile{memory};
        for (bool fixed = over_fixed, again = count > 0; again; fixed = false) {
            fill_owned(maps.x, k, begin, [](int) {});
            for (int n = 0; n < count; ++n) {
                const int tile = (first + n) * kRows, entry = tile + static_cast<int>(threadIdx.x);
                float bias = entry < a.shape.vocabulary ? 0 : -INFINITY;
                if (a.bias && entry < a.shape.vocabulary) bias = a.bias.row(k, 0, 0)[entry] * (fixed ? kLog2E : 1);
                if (fixed) bias -= kReference<T>;
                fill_tile(maps.weight, k, tile, [&](int slot) { memory.template extra<float>(slot)[threadIdx.x] = bias; });
            }
            again = fixed && __syncthreads_or(false);
        }
    } else {
        hopper::take_registers<240>();
        Sums<kChunks> sums = {};
        const int group_begin = (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
        ForwardWork<T, kChunks> work{a, memory, rows, first, count, group_begin + row_of(0), over_fixed};
        multiply_ring<T, kGradient, kChunks>(memory, sums, work);
        __syncwarp();
        const std::int64_t place = (std::int64_t{part} * a.members + k) * a.rows + begin;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(work.carried.sum[half]), top = work.fixed ? kReference<T> / kLog2E : work.carried.top[half];
            const int at = group_begin + row_of(half), row = begin + at;
            if (a.joined) {
                if (threadIdx.x % 4 == 0) put_row(a, k, row, rows.target[at], top, sum, rows.chosen[at], rows.best[at]);
                if (kGradient && row < a.rows) put_gradient<T, kChunks>(a, k, row, rows.target[at], sums, half, sum, share);
            } else if (threadIdx.x % 4 == 0 && row < a.rows) {
                a.stats[place + at] = make_float4(top, sum, rows.chosen[at], __int_as_float(rows.best[at]));
            }
        }
        const Target target_of_sums{a.sums + (place + group_begin) * a.cols, a.cols};
        if (kGradient && !a.joined) put_sums<kChunks>(sums, target_of_sums, a.rows - begin - group_begin, a.cols);
    }
}

template <class T, int kChunks>
KernelResult make(Context& c, const Args& a, const Maps& maps) {
    const auto kernel =
        a.dx.data != nullptr ? warpgroup_forward_kernel<T, true, kChunks> : warpgroup_forward_kernel<T, false, kChunks>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const dim3 grid(blocks_for(a.rows, kRows), static_cast<unsigned>(a.parts), static_cast<unsigned>(a.members));
    return make_launch(c, kernel, grid, dim3(warpgroups::kThreads), warpgroups::kBytes, a, maps);
}

}  // namespace

KernelResult make_warpgroup_forward(Context& c, const Args& args, const warpgroups::Maps& maps, tensor::DType type) {
    return by_half(type, [&]<class T>(T) {
        return by_chunks(args.cols, [&]<int kChunks>(Chunks<kChunks>) { return make<T, kChunks>(c, args, maps); });
    });
}

}  // namespace millrace::ops::cuda::vocabulary
