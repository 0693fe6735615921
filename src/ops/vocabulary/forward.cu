// Blocks own rows of the batch, the vocabulary streams, as in FlashAttention with keys = values = weights: the logits of a tile
// become exponentials over the largest so far, whose products with the weights are the first part of dx. Several blocks share the
// vocabulary of the same rows; a second kernel joins their parts in order.

#include "ops/vocabulary/tiles.cuh"

namespace millrace::ops::cuda::vocabulary {
namespace {

/// What a warp carries from tile to tile for its rows.
template <int kWidth>
struct Carried {
    float top[Layout<kWidth>::kTiles][2], sum[Layout<kWidth>::kTiles][2];
    typename Layout<kWidth>::Sums sums;
};

/// Raises the references of the warp's rows to the tile's largest logits and rescales what was summed over the old ones. `best`
/// gets the entries, where wanted.
template <int kWidth, bool kGradient>
__device__ inline void raise(Carried<kWidth>& carried, const float (&largest)[Layout<kWidth>::kTiles][2],
                             const typename Layout<kWidth>::Products& logits, int begin, int* best, bool exact) {
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = largest[m][half];
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            const float before = carried.top[m][half], now = fmaxf(before, most);
            if (exact) {
                int entry = kTile;
#pragma unroll
                for (int n = kTile / 8 - 1; n >= 0; --n)
#pragma unroll
                    for (int e = 1; e >= 0; --e)
                        if (logits[m][n][2 * half + e] == most) entry = column_of(n, e);
                entry = min(entry, __shfl_xor_sync(0xffffffffu, entry, 1));
                entry = min(entry, __shfl_xor_sync(0xffffffffu, entry, 2));
                if (most > before && threadIdx.x % 4 == 0) best[row_of(m, 2 * half)] = begin + entry;
            }
            const float factor = before == now ? 1 : exp2_fast((before - now) * kLog2E);
            carried.top[m][half] = now;
            carried.sum[m][half] *= factor;
            if constexpr (kGradient) {
#pragma unroll
                for (int n = 0; n < kWidth / 8; ++n) {
                    carried.sums[m][n][2 * half] *= factor;
                    carried.sums[m][n][2 * half + 1] *= factor;
                }
            }
        }
}

/// Entries behind the vocabulary never count.
template <int kWidth>
__device__ inline void mask(typename Layout<kWidth>::Products& logits, int entries) {
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (column_of(n, i) >= entries) logits[m][n][i] = -INFINITY;
}

/// Adds biases; the largest logits of this thread.
template <int kWidth>
__device__ inline void add_bias(typename Layout<kWidth>::Products& logits, const float* bias,
                                float (&largest)[Layout<kWidth>::kTiles][2]) {
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m) largest[m][0] = largest[m][1] = -INFINITY;
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
        const float2 shift = *reinterpret_cast<const float2*>(bias + column_of(n, 0));
#pragma unroll
        for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                logits[m][n][i] += i % 2 == 0 ? shift.x : shift.y;
                largest[m][i / 2] = fmaxf(largest[m][i / 2], logits[m][n][i]);
            }
    }
}

/// Keeps the logits of the targets that lie in the tile; targets and chosen: of the warp's rows.
template <int kWidth>
__device__ inline void keep_targets(const typename Layout<kWidth>::Products& logits, const int* targets, int begin,
                                    float* chosen) {
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = row_of(m, i), entry = targets[row] - begin;
#pragma unroll
            for (int n = 0; n < kTile / 8; ++n)
                if (column_of(n, i) == entry) chosen[row] = logits[m][n][i];
        }
}

/// Logits become exponentials over the references, which are added up.
template <int kWidth>
__device__ inline void exponentiate(typename Layout<kWidth>::Products& logits, Carried<kWidth>& carried) {
#pragma unroll
    for (int m = 0; m < Layout<kWidth>::kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float base = carried.top[m][i / 2] * kLog2E;
#pragma unroll
            for (int n = 0; n < kTile / 8; ++n) {
                logits[m][n][i] = exp2_fast(fmaf(logits[m][n][i], kLog2E, -base));
                carried.sum[m][i / 2] += logits[m][n][i];
            }
        }
}

template <int kWidth, bool kGradient>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(const __grid_constant__ Args a) {
    using Shape = Layout<kWidth>;
    constexpr int kTiles = Shape::kTiles;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ int targets[Shape::kOwned], best[Shape::kOwned];
    __shared__ float chosen[Shape::kOwned];  // logits of the targets
    bf16 *own = reinterpret_cast<bf16*>(memory), *tiles = own + Shape::kOwned * Shape::kStride;
    float* biases = reinterpret_cast<float*>(tiles + 2 * kTile * Shape::kStride);
    const int begin = blockIdx.x * Shape::kOwned, part = blockIdx.y, k = blockIdx.z;
    const int all = (a.shape.vocabulary + kTile - 1) / kTile;
    const int first = all * part / a.parts, last = all * (part + 1) / a.parts;
    begin_kernel();
    const auto fetch = [&](int tile) {
        const int buffer = tile % 2, entry = tile * kTile + threadIdx.x;
        stage<kWidth, kTile>(a.weight, k, tile * kTile, a.shape.vocabulary, a.cols, tiles + buffer * kTile * Shape::kStride);
        const bool there = a.bias && entry < a.shape.vocabulary;
        if (threadIdx.x < kTile) copy4(shared_address(biases + buffer * kTile + threadIdx.x), a.bias.row(k, 0, 0) + entry, there);
        commit_copies();
    };
    stage<kWidth, Shape::kOwned>(a.x, k, begin, a.rows, a.cols, own);
    fetch(first);
    int mine = -1;
    if (threadIdx.x < Shape::kOwned && begin + static_cast<int>(threadIdx.x) < a.rows)
        mine = target_of(a.ids, a.lengths, k, begin + threadIdx.x, a.shape, a.params.first);
    if (threadIdx.x < Shape::kOwned) {
        targets[threadIdx.x] = mine;
        best[threadIdx.x] = 0;
        chosen[threadIdx.x] = 0;
    }
    const bool needed = __syncthreads_or(mine >= 0);
    if (!needed) {
        await_copies<0>();
        return;
    }
    const int warp_row = threadIdx.x / 32 * 16 * kTiles;
    Carried<kWidth> carried;
    clear(carried.sums);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
        carried.top[m][0] = carried.top[m][1] = -INFINITY;
        carried.sum[m][0] = carried.sum[m][1] = 0;
    }
    const float margin = a.exact ? 0 : kMargin;
    for (int tile = first; tile < last; ++tile) {
        await_copies<0>();
        __syncthreads();
        if (tile + 1 < last) fetch(tile + 1);
        const bf16* weights = tiles + tile % 2 * kTile * Shape::kStride;
        const int entry = tile * kTile;
        typename Shape::Products logits;
        multiply_across<kWidth>(logits, own + warp_row * Shape::kStride, weights);
        if (entry + kTile > a.shape.vocabulary) mask<kWidth>(logits, a.shape.vocabulary - entry);
        float largest[kTiles][2];
        add_bias<kWidth>(logits, biases + tile % 2 * kTile, largest);
        bool rises = false, meets = false;
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rises = rises || largest[m][half] > carried.top[m][half] + margin;
                const int target = targets[warp_row + row_of(m, 2 * half)];
                meets = meets || (target >= entry && target < entry + kTile);
            }
        if (__any_sync(0xffffffffu, rises)) raise<kWidth, kGradient>(carried, largest, logits, entry, best + warp_row, a.exact);
        if (__any_sync(0xffffffffu, meets)) keep_targets<kWidth>(logits, targets + warp_row, entry, chosen + warp_row);
        exponentiate<kWidth>(logits, carried);
        if constexpr (kGradient) multiply_along<kWidth>(carried.sums, logits, weights);
    }
    __syncwarp();
    const std::int64_t place = (std::int64_t{part} * a.members + k) * a.rows + begin + warp_row;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = row_sum(carried.sum[m][half]);
            const int row = row_of(m, 2 * half), at = warp_row + row;
            if (threadIdx.x % 4 == 0 && begin + at < a.rows)
                a.stats[place + row] = make_float4(carried.top[m][half], sum, chosen[at], __int_as_float(best[at]));
        }
    if constexpr (kGradient) put_sums<kWidth>(carried.sums, {a.sums + place * a.cols, a.cols}, a.rows - begin - warp_row, a.cols);
}

constexpr int kJoinWarps = 8;

/// One warp per row: joins the parts of the vocabulary, lane p those of part p.
template <class T>
__global__ void join_kernel(const __grid_constant__ Args a) {
    __shared__ int counts[32];
    begin_kernel();
    const int k = blockIdx.z, row = blockIdx.x * kJoinWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    const float share = put_share(a, k, counts);
    if (row >= a.padded_rows()) return;
    const int target = row < a.rows ? target_of(a.ids, a.lengths, k, row, a.shape, a.params.first) : -1;
    if (target < 0) {
        if (lane == 0) put_row(a, k, row, target, 0, 1, 0, 0);
        for (int c = lane; row < a.rows && a.dx && !a.add_dx && c < a.cols; c += 32) store(a.dx.row(k, 0, row) + c, 0.0f);
        return;
    }
    const std::int64_t stride = std::int64_t{a.members} * a.rows, place = std::int64_t{k} * a.rows + row;
    const float4 part = lane < a.parts ? a.stats[lane * stride + place] : make_float4(-INFINITY, 0, 0, 0);
    float top = part.x;
    for (int d = 16; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    const unsigned holders = __ballot_sync(0xffffffffu, part.x == top);
    const int best = __float_as_int(__shfl_sync(0xffffffffu, part.w, holders == 0 ? 0 : __ffs(holders) - 1));
    const float scale = lane < a.parts ? exp2_fast((part.x - top) * kLog2E) : 0;
    float sum = lane < a.parts ? scale * part.y : 0, logit = part.z;
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, d);
        logit += __shfl_xor_sync(0xffffffffu, logit, d);
    }
    if (lane == 0) put_row(a, k, row, target, top, sum, logit, best);
    if (!a.dx) return;
    const auto* weight = reinterpret_cast<const T*>(a.weight.row(k, 0, target));
    auto* dx = reinterpret_cast<T*>(a.dx.row(k, 0, row));
    for (int begin = 0; begin < a.cols; begin += 64) {
        const int c = begin + 2 * lane;
        float2 total = make_float2(0, 0);
        for (int p = 0; p < a.parts; ++p) {
            const float factor = __shfl_sync(0xffffffffu, scale, p);
            if (c >= a.cols) continue;
            const float2 value = *reinterpret_cast<const float2*>(a.sums + (p * stride + place) * a.cols + c);
            total.x = fmaf(factor, value.x, total.x);
            total.y = fmaf(factor, value.y, total.y);
        }
        if (c >= a.cols) continue;
        put(dx + c, (total.x / sum - load(weight + c)) * share, a.add_dx);
        put(dx + c + 1, (total.y / sum - load(weight + c + 1)) * share, a.add_dx);
    }
}

template <int kWidth, bool kGradient>
KernelResult make(Context& c, const Args& a) {
    MILLRACE_TRY(raise_shared_memory(c, reinterpret_cast<const void*>(forward_kernel<kWidth, kGradient>)));
    const dim3 grid(blocks_for(a.rows, Layout<kWidth>::kOwned), static_cast<unsigned>(a.parts), static_cast<unsigned>(a.members));
    return make_launch(c, forward_kernel<kWidth, kGradient>, grid, dim3(kThreads), Layout<kWidth>::kBytes, a);
}

KernelResult make_parts(Context& c, const Args& a, const warpgroups::Maps& maps) {
    if (a.warpgroups) return make_warpgroup_forward(c, a, maps);
    return with_width(a.cols,
                      [&]<int kWidth>() { return a.dx.data != nullptr ? make<kWidth, true>(c, a) : make<kWidth, false>(c, a); });
}

}  // namespace

KernelResult make_forward(Context& c, const Args& args, const warpgroups::Maps& maps) {
    MILLRACE_LET(parts, make_parts(c, args, maps));
    if (args.joined) return KernelResult(std::move(parts));
    const dim3 rows(blocks_for(args.padded_rows(), kJoinWarps), 1, static_cast<unsigned>(args.members));
    const auto join = by_half(args.type, []<class T>(T) { return join_kernel<T>; });
    return make_kernel([stream = c.stream, parts = std::shared_ptr<Kernel>(std::move(parts)), args, rows, join] {
        parts->run();
        launch(join, rows, dim3(32 * kJoinWarps), 0, stream, args);
    });
}

}  // namespace millrace::ops::cuda::vocabulary
