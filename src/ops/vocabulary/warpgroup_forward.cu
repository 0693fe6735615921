// Blocks own rows of the batch, the vocabulary streams, as in FlashAttention with keys = values = weights: the logits of a tile
// become exponentials over a reference, whose products with the weights are the first part of dx. Where the largest logit is not
// wanted, a block first takes 0 as the reference of all rows, and begins again with the largest logits so far where a row's sum
// of exponentials turns out to be too small or too large for that. The blocks of a cluster share the vocabulary of the same rows.
// They join their sums through their shared memory, each for its share of the rows.

#include <climits>

#include "ops/tile/plan.cuh"
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
    float4 found[kRows];  ///< for the cluster: reference, sum of exponentials over it, target's logit, entry of the largest
    int target[kRows], best[kRows];
    float chosen[kRows];  ///< the target's logit
    float share;          ///< of a token: Args::shares
};

/// Raises the references to the tile's largest logits.
__device__ inline void raise(Carried& carried, const float (&largest)[2], const Numbers& logits, int begin, int* best,
                             bool exact) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float most = quad_max(largest[half]);
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
            const float sum = quad_sum(carried.sum[half]);
            return rows.target[row + 8 * half] < 0 || fits_reference<T>(sum, count * kRows);
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

/// What the first warpgroup copies: the owned rows, then tiles of the vocabulary.
template <class T, int kChunks>
struct ForwardFilling {
    const Args& a;
    const Maps& maps;
    const Memory<kChunks>& memory;
    int k, begin, first;  ///< member, first owned row, first tile
    FillOwned<kChunks> fill_owned{memory};
    FillTiles<kChunks> fill_tile{memory};

    /// Tiles `from` to `to`, with biases over the fixed reference or none.
    __device__ void operator()(int from, int to, bool fixed) {
        if (from == 0) fill_owned(maps.x, k, begin, [](int) {});
        for (int n = from; n < to; ++n) {
            const int tile = (first + n) * kRows, entry = tile + static_cast<int>(threadIdx.x);
            float bias = entry < a.shape.vocabulary ? 0 : -INFINITY;
            if (a.bias && entry < a.shape.vocabulary) bias = a.bias.row(k, 0, 0)[entry] * (fixed ? kLog2E : 1);
            if (fixed) bias -= kReference<T>;
            fill_tile(maps.weight, k, tile, [&](int slot) { memory.template extra<float>(slot)[threadIdx.x] = bias; });
        }
    }
    /// Until the first `count` tiles and the owned rows have come.
    __device__ void await(int count) const {
        for (int slot = 0; slot < Memory<kChunks>::kSlots; ++slot)
            for (int c = 0; c < kChunks && (slot < count || slot == Memory<kChunks>::kStages); ++c)
                hopper::barrier_wait(memory.filled(slot, c), 0);
    }
};

/// Finds what the owned rows predict, by all threads of a block. Returns whether one of them predicts a token.
__device__ inline bool find_rows(const Args& a, Rows& rows, int k, int begin, int* counts) {
    const int at = static_cast<int>(threadIdx.x) - 128, row = begin + at;
    int target = -1;
    if (at >= 0 && at < kRows && row < a.rows) target = target_of(a.ids, a.lengths, k, row, a.shape, a.params.first);
    const float share = put_share(a, k, counts);  // while the targets come
    if (at >= 0 && at < kRows) {
        rows.target[at] = target;
        rows.best[at] = 0;
        rows.chosen[at] = 0;
    }
    if (at == 0) rows.share = share;
    return __syncthreads_or(target >= 0);
}

/// Waits for all threads of the cluster.
__device__ inline void meet() {
    __syncwarp();
    cluster_arrive();
    cluster_wait();
}

/// Leaves what follows from the numbers that all parts have found about a row, in the block whose share it is. Each of the row's
/// four lanes has those of two parts. Returns what this part's sums of exponentials times weights are multiplied by.
__device__ inline float join_row(const Args& a, const Rows& rows, const float4 (&found)[2], int k, int begin, int at, int part) {
    const float top = quad_max(fmaxf(found[0].x, found[1].x));
    const auto entry = [&](int i) { return found[i].x == top ? __float_as_int(found[i].w) : INT_MAX; };
    int best = min(entry(0), entry(1));
    best = min(best, __shfl_xor_sync(0xffffffffu, best, 1));
    best = min(best, __shfl_xor_sync(0xffffffffu, best, 2));
    const auto scale_of = [&](float reference) { return exp2_fast((reference - top) * kLog2E); };
    const float sum = quad_sum(scale_of(found[0].x) * found[0].y + scale_of(found[1].x) * found[1].y),
                chosen = quad_sum(found[0].z + found[1].z);
    const bool mine = at >= kRows * part / a.parts && at < kRows * (part + 1) / a.parts;
    if (mine && threadIdx.x % 4 == 0) put_row(a, k, begin + at, rows.target[at], top, sum, chosen, best);
    return scale_of(rows.found[at].x) / sum * rows.share;
}

constexpr int stride_of(int chunks) { return 64 * chunks + 8; }  ///< floats from row to row of sums, without bank conflicts

/// sum += eight numbers at `from` of every part, in order, four on their way at once.
__device__ inline void add_parts(float (&sum)[8], const float* from, int parts) {
    for (int begin = 0; begin < parts; begin += 4) {
        float4 value[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            value[i] = read_rank(reinterpret_cast<const float4*>(from) + i % 2, min(begin + i / 2, parts - 1));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const bool there = begin + i / 2 < parts;
            sum[i % 2 * 4] += there ? value[i].x : 0;
            sum[i % 2 * 4 + 1] += there ? value[i].y : 0;
            sum[i % 2 * 4 + 2] += there ? value[i].z : 0;
            sum[i % 2 * 4 + 3] += there ? value[i].w : 0;
        }
    }
}

/// The gradients of this block's share of the rows, by the second and third warpgroup: `sums` of all parts in order, less the
/// weights of the target.
template <class T, int kChunks>
__device__ inline void put_gradients(const Args& a, const Rows& rows, const float* sums, int k, int begin, int part) {
    const int first = kRows * part / a.parts, last = min(kRows * (part + 1) / a.parts, a.rows - begin), runs = a.cols / 8;
    for (int i = static_cast<int>(threadIdx.x) - 128; i < (last - first) * runs; i += 256) {
        const int at = first + i / runs, column = i % runs * 8, target = rows.target[at];
        auto* to = reinterpret_cast<uint4*>(a.dx.row(k, 0, begin + at) + column);
        uint4 weights = {}, now = {};
        if (target >= 0) weights = *reinterpret_cast<const uint4*>(a.weight.row(k, 0, target) + column);
        if (a.add_dx) now = *to;
        float sum[8] = {};
        add_parts(sum, sums + at * stride_of(kChunks) + column, a.parts);
        if (target < 0 && a.add_dx) continue;
        std::uint32_t before[4] = {now.x, now.y, now.z, now.w}, less[4] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float low = fmaf(-rows.share, low_of<T>(less[j]), sum[2 * j]),
                        high = fmaf(-rows.share, high_of<T>(less[j]), sum[2 * j + 1]);
            before[j] = pack<T>(low_of<T>(before[j]) + low, high_of<T>(before[j]) + high);
        }
        *to = target < 0 ? uint4{} : make_uint4(before[0], before[1], before[2], before[3]);
    }
}

/// Joins what the blocks of a cluster have found, by the second and third warpgroup; `staged` has room for all sums.
template <class T, bool kGradient, int kChunks>
__device__ inline void join(const Args& a, Rows& rows, Sums<kChunks>& sums, const Carried& carried, bool fixed, float* staged,
                            int k, int begin, int part) {
    const int group_begin = (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(carried.sum[half]), top = fixed ? kReference<T> / kLog2E : carried.top[half];
        const int at = group_begin + row_of(half);
        if (threadIdx.x % 4 == 0) rows.found[at] = make_float4(top, sum, rows.chosen[at], __int_as_float(rows.best[at]));
    }
    meet();
    const int mine[2] = {group_begin + row_of(0), group_begin + row_of(1)};
    float4 found[2][2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int p = static_cast<int>(threadIdx.x) % 4 + i % 2 * 4;
        found[i / 2][i % 2] = read_rank(rows.found + mine[i / 2], min(p, a.parts - 1));
        if (p >= a.parts) found[i / 2][i % 2] = make_float4(-INFINITY, 0, 0, 0);
    }
    const float factor[2] = {join_row(a, rows, found[0], k, begin, mine[0], part),
                             join_row(a, rows, found[1], k, begin, mine[1], part)};
    if constexpr (kGradient) {
        scale(sums, factor);
        put_sums<kChunks>(sums, {staged + group_begin * stride_of(kChunks), stride_of(kChunks)}, 64, 64 * kChunks);
        meet();
        put_gradients<T, kChunks>(a, rows, staged, k, begin, part);
    }
    meet();  // what the others read stays until then
}

template <class T, bool kGradient, int kChunks>
__global__ void __launch_bounds__(warpgroups::kThreads, 1)
    warpgroup_forward_kernel(const __grid_constant__ Args a, const __grid_constant__ Maps maps) {
    extern __shared__ __align__(16) unsigned char memory_of_block[];
    __shared__ int counts[32];
    __shared__ Rows rows;
    const Memory<kChunks> memory(memory_of_block);
    const int begin = blockIdx.x * kRows, part = static_cast<int>(blockIdx.z) % a.parts, k = blockIdx.z / a.parts;
    const int all = (a.shape.vocabulary + kRows - 1) / kRows, first = all * part / a.parts;
    const int count = all * (part + 1) / a.parts - first, ahead = min(count, Memory<kChunks>::kStages);
    if (threadIdx.x == 0) memory.begin();
    begin_kernel();
    __syncthreads();
    ForwardFilling<T, kChunks> fill{a, maps, memory, k, begin, first};
    if (threadIdx.x < 128) fill(0, ahead, !a.exact);
    const bool needed = find_rows(a, rows, k, begin, counts);
    if (!needed) fill.await(ahead);
    if (threadIdx.x < 128) {
        hopper::give_registers<40>();
        int from = ahead;
        for (bool fixed = !a.exact, again = needed; again; fixed = false) {
            fill(from, count, fixed);
            from = 0;
            again = fixed && __syncthreads_or(false);
        }
        for (int i = 0; i < (kGradient ? 3 : 2); ++i) meet();
    } else {
        hopper::take_registers<232>();
        Sums<kChunks> sums = {};
        const int group_begin = (static_cast<int>(threadIdx.x) / 128 - 1) * 64;
        ForwardWork<T, kChunks> work{a, memory, rows, first, needed ? count : 0, group_begin + row_of(0), !a.exact};
        multiply_ring<T, kGradient, kChunks>(memory, sums, work);
        __syncwarp();
        join<T, kGradient, kChunks>(a, rows, sums, work.carried, work.fixed, reinterpret_cast<float*>(memory.data), k, begin,
                                    part);
    }
}

template <class T, int kChunks>
KernelResult make(Context& c, const Args& a, const Maps& maps) {
    const auto kernel =
        a.dx.data != nullptr ? warpgroup_forward_kernel<T, true, kChunks> : warpgroup_forward_kernel<T, false, kChunks>;
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(kernel)));
    const auto parts = static_cast<unsigned>(a.parts);
    const dim3 grid(blocks_for(a.rows, kRows), 1, parts * static_cast<unsigned>(a.members));
    return make_kernel([stream = c.stream, kernel, grid, parts, a, maps] {
        launch_clusters(kernel, grid, dim3(warpgroups::kThreads), parts, warpgroups::kBytes, stream, a, maps);
    });
}

}  // namespace

int active_clusters(const Context& c, int parts) {
    const auto* kernel = reinterpret_cast<const void*>(warpgroup_forward_kernel<bf16, true, 2>);
    if (!raise_shared_memory(c, kernel).ok()) return 1;
    return tile::clusters_at_once(kernel, warpgroups::kThreads, warpgroups::kBytes, static_cast<unsigned>(parts));
}

KernelResult make_forward(Context& c, const Args& args, const Maps& maps, tensor::DType type) {
    return by_half(type, [&]<class T>(T) {
        return by_chunks(args.cols, [&]<int kChunks>(Chunks<kChunks>) { return make<T, kChunks>(c, args, maps); });
    });
}

}  // namespace millrace::ops::cuda::vocabulary
